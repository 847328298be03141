//! Checks of the bodies of writes against their paths. No I/O.

use serde_json::Value;

use crate::{
    admit, body,
    failure::{Failure, Fault, type_name},
    object,
    resource::Resource,
    server::Call,
    types,
};

/// Checks that kind and version in the body match the path, and fills them in.
pub(super) fn check_kind(call: &Call, new: &mut Value) -> Result<(), Failure> {
    let resource = &call.resource;
    let (expected, kind) = (resource.api_version(), &resource.kind);
    let given = |field| object::text(new, &[field]).to_owned();
    let (version, found) = (given("apiVersion"), given("kind"));
    let unrecognized =
        |new: &Value, why: &str| body::unrecognized(kind, why, new.to_string().as_bytes());
    for field in ["apiVersion", "kind"] {
        let value = new.get(field).unwrap_or(&Value::Null);
        if !value.is_null() && !value.is_string() {
            let why = format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go \
                 struct field .{field} of type string",
                if value.is_number() { "number" } else { type_name(value) }
            );
            return Err(unrecognized(new, &why));
        }
    }
    let metadata = new.get("metadata").filter(|it| !it.is_null() && !it.is_object());
    if let Some(why) = metadata.and_then(|_| admit::unreadable(resource, new)) {
        return Err(Failure::bad_request(format!(
            "{kind} in version \"{}\" cannot be handled as a {kind}: {why}",
            resource.version
        )));
    }
    if resource.custom && found.is_empty() {
        return Err(unrecognized(new, &format!("Object 'Kind' is missing in '{new}'")));
    }
    if version.split('/').count() > 2 {
        return Err(unrecognized(new, &format!("unexpected GroupVersion string: {version}")));
    }
    let wanted = |given: &str, expected: &str| given.is_empty() || given == expected;
    if !wanted(&version, &expected) || !wanted(&found, kind) {
        let version = if version.is_empty() { &expected } else { &version };
        let found = if found.is_empty() { kind } else { &found };
        return Err(other_kind(call, version, found, object::name(new)));
    }
    let map = object::map_of(new);
    map.insert("apiVersion".into(), expected.into());
    map.insert("kind".into(), kind.clone().into());
    Ok(())
}

/// Checks that a patch leaves kind, version and namespace of an object as they are.
pub(super) fn check_patched(call: &Call, new: &Value) -> Result<(), Failure> {
    let resource = &call.resource;
    let of = |field| object::text(new, &[field]);
    let is_same = of("kind") == resource.kind && of("apiVersion") == resource.api_version();
    if !is_same && !resource.custom {
        let why = other_kind(call, of("apiVersion"), of("kind"), object::name(new)).message;
        let why = why.rsplit_once(&format!(" as a {}: ", resource.kind));
        return Err(Failure::invalid_patch(why.map_or("the kind changes", |(_, why)| why)));
    }
    let namespace = call.namespace.as_deref().unwrap_or("");
    if !matches!(object::namespace(new), given if given.is_empty() || given == namespace) {
        return Err(other_namespace());
    }
    Ok(())
}

/// 400: the body has the kind `found` instead of the kind of the path.
fn other_kind(call: &Call, version: &str, found: &str, name: &str) -> Failure {
    let resource = &call.resource;
    let (group, only) = version.split_once('/').unwrap_or(("", version));
    let only = if only.is_empty() { resource.version.as_str() } else { only };
    if resource.custom {
        if found != resource.kind {
            let rule = format!("must be {}", resource.kind);
            let fault = Fault::invalid("kind", &found.into(), &rule);
            return Failure::invalid_kind(group, found, name, &[fault]);
        }
        let expected = resource.api_version();
        return Failure::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version \
             ({expected})"
        ));
    }
    let is_known = types::of_kind(group, only, found).is_some();
    let package = resource.group.split('.').next().filter(|it| !it.is_empty()).unwrap_or("core");
    let why = if is_known {
        format!("converting ({only}.{found}) to ({package}.{}): unknown conversion", resource.kind)
    } else {
        format!(
            "no kind \"{found}\" is registered for version \"{version}\" in scheme \
             \"pkg/runtime/scheme.go:111\""
        )
    };
    let kind = &resource.kind;
    Failure::bad_request(format!(
        "{found} in version \"{only}\" cannot be handled as a {kind}: {why}"
    ))
}

/// Checks that an applied object is of the kind of the path.
pub(super) fn check_applied(call: &Call, applied: &Value) -> Result<(), Failure> {
    let resource = &call.resource;
    let of = |field| object::text(applied, &[field]);
    let (group, version) = of("apiVersion").split_once('/').unwrap_or(("", of("apiVersion")));
    if of("kind") != resource.kind || of("apiVersion") != resource.api_version() {
        let kind = of("kind");
        let message = format!("invalid object type: {group}/{version}, Kind={kind}");
        return Err(Failure::bad_request(message));
    }
    let is_given = |value: &Value| value.as_array().is_some_and(|list| !list.is_empty());
    if object::at(applied, &["metadata", "managedFields"]).is_some_and(is_given) {
        return Err(Failure::bad_request("metadata.managedFields must be nil"));
    }
    if let Some(why) = admit::unreadable(resource, applied) {
        let place = format!("{}/{}", object::namespace(applied), object::name(applied));
        return Err(Failure::unexplained(format!(
            "failed to create typed patch object ({place}; {group}/{version}, Kind={}): {why}",
            resource.kind
        )));
    }
    let (name, named) = (object::name(applied), call.name.as_deref().unwrap_or(""));
    if !name.is_empty() && name != named {
        return Err(Failure::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({named})"
        )));
    }
    Ok(())
}

/// 400: the object has no name.
pub(super) fn undeterminable(named: &str) -> Failure {
    Failure::bad_request(format!(
        "the name of the object ({named} based on URL) was undeterminable: name must be provided"
    ))
}

/// Returns the failure of a patch whose result cannot be read.
pub(super) fn as_patch(failure: Failure, call: &Call) -> Failure {
    let Resource { kind, version, .. } = &*call.resource;
    let prefix = format!("{kind} in version \"{version}\" cannot be handled as a {kind}: ");
    match failure.message.strip_prefix(&prefix) {
        Some(why) => Failure::invalid_patch(why),
        None => failure,
    }
}

/// 400: the object is of another namespace than the path.
fn other_namespace() -> Failure {
    Failure::bad_request(
        "the namespace of the provided object does not match the namespace sent on the request",
    )
}

/// Sets the object's namespace from the path.
pub(in crate::server) fn place(call: &Call, new: &mut Value) -> Result<(), Failure> {
    let given = object::namespace(new).to_owned();
    match &call.namespace {
        Some(namespace) if given.is_empty() || given == *namespace => {
            object::set_meta(new, "namespace", namespace.clone());
            Ok(())
        }
        None if !call.resource.namespaced => {
            object::drop_meta(new, "namespace");
            Ok(())
        }
        Some(_) => Err(other_namespace()),
        None => Err(Failure::bad_request("an empty namespace may not be set during creation")),
    }
}
