//! Admission of writes: computes the object to store from the request, with the rules that all
//! kinds share. No I/O.

pub(crate) mod defaults;
mod meta;
pub(crate) mod name;
mod rules;
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

/// Priority classes that every cluster has, with their values.
pub(crate) const SYSTEM_PRIORITIES: [(&str, i64); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

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

/// Builds the object to store for a create request. `own` records the owner of what the request and
/// the defaults set.
pub(crate) fn create(
    resource: &Resource,
    mut new: Value,
    now: Timestamp,
    bits: u128,
    own: impl FnOnce(&mut Value),
) -> Result<Admitted, Failure> {
    let unknown = read(resource, &mut new)?;
    if !object::meta(&new, "resourceVersion").is_empty() {
        let message = "resourceVersion should not be set on objects to be created";
        return Err(Failure::unexplained(message));
    }
    // Compat: a generated name is cut so that it also fits in a label value.
    let prefix: String = object::meta(&new, "generateName").chars().take(58).collect();
    if object::name(&new).is_empty() && !prefix.is_empty() {
        object::set_meta(&mut new, "name", format!("{prefix}{}", clock::suffix(bits)));
    }
    let name = object::name(&new).to_owned();
    defaults::fill(resource, &mut new);
    let mut faults = name::check(resource, &new);
    faults.extend(meta::check(resource, &new));
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        object::drop_meta(&mut new, field);
    }
    object::set_meta(&mut new, "uid", clock::uuid(bits));
    object::set_meta(&mut new, "creationTimestamp", clock::rfc3339(now));
    if resource.generation {
        object::set_meta(&mut new, "generation", 1);
    }
    // Compat: the annotation that counts the templates of a DaemonSet belongs to its creator.
    let is_owned_late = resource.custom || resource.kind == "DaemonSet";
    let mut own = Some(own);
    if let Some(own) = own.take_if(|_| !is_owned_late) {
        own(&mut new);
    }
    defaults::new_object(resource, &mut new, now);
    complete(resource, &mut new);
    let pruned = validate(resource, &name, &mut new, None, Part::Main, faults, now)?;
    if let Some(own) = own {
        own(&mut new);
    }
    Ok(Admitted { object: new, unknown: [unknown, pruned].concat() })
}

/// Builds the object to store for an update of `old`. Equal to `old` when nothing changes. `own`
/// records the owner of what the request changes.
pub(crate) fn update(
    resource: &Resource,
    old: &Value,
    mut new: Value,
    part: Part,
    now: Timestamp,
    own: impl FnOnce(&mut Value),
) -> Result<Admitted, Failure> {
    let name = object::name(old).to_owned();
    let unknown = read(resource, &mut new)?;
    check_version(resource, old, &new, &name)?;
    if part == Part::Status {
        let status = new.get_mut("status").map(Value::take);
        let owners = object::at(&new, &["metadata", "managedFields"]).cloned();
        let metadata = new.get("metadata").cloned();
        new = old.clone();
        // Compat: a write of the status of a built-in kind may change the metadata, too.
        if let Some(metadata) = metadata.filter(|_| !resource.custom) {
            object::map_of(&mut new).insert("metadata".into(), metadata);
            keep_metadata_of_status(resource, old, &mut new);
        }
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
    if part == Part::Status {
        defaults::stamp_conditions(resource, old, &mut new, now);
        defaults::keep_class(resource, old, &mut new);
    }
    keep_system_fields(old, &mut new);
    let mut faults = meta::check(resource, &new);
    faults.extend(new_finalizers(old, &new));
    defaults::fill(resource, &mut new);
    defaults::keep_count(resource, old, &mut new);
    let mut own = Some(own);
    if let Some(own) = own.take_if(|_| !resource.custom) {
        own(&mut new);
    }
    defaults::changed_object(resource, old, &mut new);
    complete(resource, &mut new);
    let pruned = validate(resource, &name, &mut new, Some(old), part, faults, now)?;
    if let Some(own) = own {
        own(&mut new);
    }
    if resource.generation && is_new_generation(resource, part, old, &new) {
        let generation = object::at(old, &["metadata", "generation"]).and_then(Value::as_u64);
        object::set_meta(&mut new, "generation", generation.unwrap_or(0) + 1);
    }
    Ok(Admitted { object: new, unknown: [unknown, pruned].concat() })
}

/// Reads an object by the type of its kind. Returns the paths of its unknown fields.
fn read(resource: &Resource, object: &mut Value) -> Result<Vec<String>, Failure> {
    typed::check(resource, object).map_err(|error| {
        let Resource { kind, version, .. } = resource;
        Failure::bad_request(format!(
            "{kind} in version \"{version}\" cannot be handled as a {kind}: {error}"
        ))
    })
}

/// Returns why an applied object cannot be read by its type, if it cannot.
pub(crate) fn unreadable(resource: &Resource, applied: &Value) -> Option<String> {
    let mut object = applied.clone();
    let mut unknown = match typed::check(resource, &mut object) {
        Ok(unknown) => unknown,
        Err(why) => return Some(why),
    };
    if let Some(schema) = &resource.schema {
        unknown.extend(schema::prune::prune(schema, &mut object));
    }
    unknown.first().map(|path| format!(".{path}: field not declared in schema"))
}

/// Adds the fields that every object of a built-in kind has, and drops the empty ones.
fn complete(resource: &Resource, object: &mut Value) {
    // The object was read by its type before, and the server changes only fields that it knows.
    drop(typed::check(resource, object));
}

fn check_version(resource: &Resource, old: &Value, new: &Value, name: &str) -> Result<(), Failure> {
    let wanted = object::meta(new, "resourceVersion");
    if !wanted.is_empty() && wanted.parse::<u64>().is_err() {
        let message = format!("strconv.ParseUint: parsing \"{wanted}\": invalid syntax");
        return Err(Failure::unexplained(message));
    }
    if !wanted.is_empty() && wanted != object::meta(old, "resourceVersion") {
        return Err(Failure::modified(resource, name));
    }
    check_same(resource, old, new, ("uid", "UID"))
}

/// Fails if a request names another identity or version of an object than the stored one.
pub(crate) fn check_identity(
    resource: &Resource,
    old: &Value,
    request: &Value,
) -> Result<(), Failure> {
    check_same(resource, old, request, ("uid", "UID"))?;
    check_same(resource, old, request, ("resourceVersion", "ResourceVersion"))
}

fn check_same(
    resource: &Resource,
    old: &Value,
    new: &Value,
    (field, label): (&str, &str),
) -> Result<(), Failure> {
    let (have, given) = (object::meta(old, field), object::meta(new, field));
    if given.is_empty() || given == have {
        return Ok(());
    }
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: \
         Precondition failed: {label} in precondition: {given}, {label} in object meta: {have}",
        registry_key(resource, old)
    );
    Err(Failure::conflict(resource, object::name(old), &why))
}

/// Returns the key of an object in etcd, which messages name.
fn registry_key(resource: &Resource, object: &Value) -> String {
    let group = if resource.custom { format!("{}/", resource.group) } else { String::new() };
    let plural =
        if resource.kind == "Node" && !resource.custom { "minions" } else { &resource.plural };
    let namespace = object::namespace(object);
    let namespace = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
    format!("/registry/{group}{plural}/{namespace}{}", object::name(object))
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
    object::drop_meta(new, "selfLink");
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

/// Restores the metadata that a write of the status does not change.
fn keep_metadata_of_status(resource: &Resource, old: &Value, new: &mut Value) {
    let field = match resource.kind.as_str() {
        "Deployment" => "labels",
        "Pod" => "ownerReferences",
        _ => return,
    };
    match object::at(old, &["metadata", field]) {
        Some(value) => object::set_meta(new, field, value.clone()),
        None => object::drop_meta(new, field),
    }
}

/// Returns true if a change counts as a new generation.
fn is_new_generation(resource: &Resource, part: Part, old: &Value, new: &Value) -> bool {
    let is_new = |field: &str| {
        let path = ["metadata", field];
        object::at(old, &path) != object::at(new, &path)
    };
    match resource.kind.as_str() {
        // Compat: a priority class keeps its first generation; a slice counts its labels, and a
        // Deployment its annotations.
        "PriorityClass" if !resource.custom => false,
        "EndpointSlice" if !resource.custom && is_new("labels") => true,
        "Deployment" if !resource.custom && part == Part::Main && is_new("annotations") => true,
        _ if resource.custom && !resource.status => {
            content_differs(old, new) || old.get("status") != new.get("status")
        }
        _ => content_differs(old, new),
    }
}

/// Returns true if anything but metadata and status changed.
fn content_differs(old: &Value, new: &Value) -> bool {
    content(old).ne(content(new))
}

/// Returns the fields of an object but metadata and status.
fn content(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let fields = object.as_object().into_iter().flatten();
    fields.filter(|(key, _)| !matches!(key.as_str(), "metadata" | "status"))
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
        faults.extend(rules::check(resource, new, old));
        if part == Part::Status {
            faults.extend(rules::status::check(resource, new, old));
        }
    }
    if let Some(schema) = &resource.schema {
        unknown = schema::prune::prune(schema, new);
        schema::default::fill(schema, new);
        faults.extend(schema::validate::object(schema, new, old, part));
    }
    if &*resource.collection == builtin::CRDS {
        match part {
            Part::Main => faults.extend(crd::establish(new, old, now)),
            Part::Status => {}
        }
    }
    if faults.is_empty() { Ok(unknown) } else { Err(Failure::invalid(resource, name, &faults)) }
}

#[cfg(test)]
mod tests;
