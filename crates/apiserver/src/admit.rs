//! Admission of writes: computes the object to store from the request, with the rules that all
//! kinds share. No I/O.

pub(crate) mod defaults;
pub(crate) mod name;
mod typed;

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    clock,
    failure::{Failure, Fault},
    object,
    resource::{Resource, builtin, crd},
    schema,
};

/// The part of an object that a request writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Main,
    Status,
}

/// An object ready to be stored, and the warnings for the client.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) object: Value,
    /// Paths of the fields that were dropped because the schema does not define them.
    pub(crate) unknown: Vec<String>,
}

/// Builds the object to store for a create request.
pub(crate) fn create(
    resource: &Resource,
    mut new: Value,
    now: Timestamp,
    bits: u128,
) -> Result<Admitted, Failure> {
    if !object::meta(&new, "resourceVersion").is_empty() {
        return Err(Failure::bad_request(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    // Compat: a generated name is cut so that it also fits in a label value.
    let prefix: String = object::meta(&new, "generateName").chars().take(58).collect();
    if object::name(&new).is_empty() && !prefix.is_empty() {
        object::set_meta(&mut new, "name", format!("{prefix}{}", clock::suffix(bits)));
    }
    let name = object::name(&new).to_owned();
    let mut faults = name::check(resource, &name);
    faults.extend(name::check_labels(&new));
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"] {
        object::drop_meta(&mut new, field);
    }
    object::set_meta(&mut new, "uid", clock::uuid(bits));
    object::set_meta(&mut new, "creationTimestamp", clock::rfc3339(now));
    if resource.generation {
        object::set_meta(&mut new, "generation", 1);
    }
    defaults::new_object(resource, &mut new, now);
    let unknown = validate(resource, &name, &mut new, None, Part::Main, faults, now)?;
    Ok(Admitted { object: new, unknown })
}

/// Builds the object to store for an update of `old`. Equal to `old` when nothing changes.
pub(crate) fn update(
    resource: &Resource,
    old: &Value,
    mut new: Value,
    part: Part,
    now: Timestamp,
) -> Result<Admitted, Failure> {
    let name = object::name(old).to_owned();
    check_version(resource, old, &new, &name)?;
    if part == Part::Status {
        let status = new.get_mut("status").map(Value::take);
        let owners = object::at(&new, &["metadata", "managedFields"]).cloned();
        new = old.clone();
        if let Some(owners) = owners {
            object::set_meta(&mut new, "managedFields", owners);
        }
        let map = object::map_of(&mut new);
        match status {
            Some(status) => map.insert("status".into(), status),
            None => map.remove("status"),
        };
    } else if resource.status {
        let map = object::map_of(&mut new);
        match old.get("status") {
            Some(status) => map.insert("status".into(), status.clone()),
            None => map.remove("status"),
        };
    }
    keep_system_fields(old, &mut new);
    let mut faults = name::check_labels(&new);
    faults.extend(new_finalizers(old, &new));
    defaults::changed_object(resource, &mut new);
    let unknown = validate(resource, &name, &mut new, Some(old), part, faults, now)?;
    if resource.generation && content_differs(old, &new) {
        let generation = object::at(old, &["metadata", "generation"]).and_then(Value::as_u64);
        object::set_meta(&mut new, "generation", generation.unwrap_or(0) + 1);
    }
    Ok(Admitted { object: new, unknown })
}

fn check_version(resource: &Resource, old: &Value, new: &Value, name: &str) -> Result<(), Failure> {
    let wanted = object::meta(new, "resourceVersion");
    if !wanted.is_empty() && wanted != object::meta(old, "resourceVersion") {
        return Err(Failure::modified(resource, name));
    }
    let (have, given) = (object::meta(old, "uid"), object::meta(new, "uid"));
    if !given.is_empty() && given != have {
        return Err(Failure::conflict(
            resource,
            name,
            &format!(
                "Precondition failed: UID in precondition: {given}, UID in object meta: {have}"
            ),
        ));
    }
    Ok(())
}

/// Restores the metadata fields that only the server writes.
fn keep_system_fields(old: &Value, new: &mut Value) {
    const SERVER_FIELDS: [&str; 8] = [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "resourceVersion",
    ];
    for field in SERVER_FIELDS {
        match object::at(old, &["metadata", field]) {
            Some(value) => object::set_meta(new, field, value.clone()),
            None => object::drop_meta(new, field),
        }
    }
}

fn new_finalizers(old: &Value, new: &Value) -> Option<Fault> {
    if !object::is_deleting(old) {
        return None;
    }
    let added: Vec<String> = object::finalizers(new)
        .filter(|one| !object::finalizers(old).any(|had| had == *one))
        .map(|one| format!("\"{one}\""))
        .collect();
    (!added.is_empty()).then(|| {
        let why = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers \
             []string{{{}}}",
            added.join(", ")
        );
        Fault::forbidden("metadata.finalizers", &why)
    })
}

/// Returns true if anything but metadata and status changed.
fn content_differs(old: &Value, new: &Value) -> bool {
    let content = |value: &Value| {
        let map = value.as_object().cloned().unwrap_or_default();
        map.into_iter().filter(|(key, _)| key != "metadata" && key != "status").collect::<Vec<_>>()
    };
    content(old) != content(new)
}

/// Applies the rules of the kind. Returns the paths of the fields that were dropped as unknown.
fn validate(
    resource: &Resource,
    name: &str,
    new: &mut Value,
    old: Option<&Value>,
    part: Part,
    mut faults: Vec<Fault>,
    now: Timestamp,
) -> Result<Vec<String>, Failure> {
    let mut unknown = Vec::new();
    if !resource.custom {
        unknown = typed::check(resource, new).map_err(|error| {
            let Resource { kind, version, .. } = resource;
            Failure::bad_request(format!(
                "{kind} in version \"{version}\" cannot be handled as a {kind}: {error}"
            ))
        })?;
    }
    if let Some(schema) = &resource.schema {
        unknown = schema::prune::prune(schema, new);
        schema::default::fill(schema, new);
        faults.extend(schema::validate::object(schema, new, old, part));
    }
    if &*resource.collection == builtin::CRDS {
        match part {
            Part::Main => faults.extend(crd::establish(new, now)),
            Part::Status => {}
        }
    }
    if faults.is_empty() { Ok(unknown) } else { Err(Failure::invalid(resource, name, &faults)) }
}

#[cfg(test)]
mod tests;
