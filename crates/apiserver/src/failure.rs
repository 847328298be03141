//! Failed requests. Each becomes a `Status` object with the message that kube-apiserver gives.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
};

use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::resource::{Form, Resource};

/// A failed request: the parts of its `Status`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    pub(crate) code: StatusCode,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) details: Option<Value>,
    /// True if the answer is the message alone, as plain text.
    pub(crate) is_plain: bool,
}

/// A validation error of one field, reported as a cause of the `Status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) field: String,
    pub(crate) kind: FaultKind,
    pub(crate) message: String,
}

/// The kind of a validation error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    Required,
    Invalid,
    NotSupported,
    Duplicate,
    TooLong,
    TooMany,
    TypeInvalid,
    Forbidden,
    NotFound,
}

impl FaultKind {
    fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Forbidden => "FieldValueForbidden",
            Self::NotFound => "FieldValueNotFound",
        }
    }
}

/// Number of validation errors after which no further ones are looked for, and their size.
const MAX_FAULTS: usize = 100;
const MAX_FAULTS_SIZE: usize = 1 << 20;

impl Fault {
    /// Returns true if there are as many errors as an answer shows.
    pub(crate) fn are_enough(faults: &[Self]) -> bool {
        let size = |fault: &Self| fault.field.len() + fault.message.len();
        faults.len() >= MAX_FAULTS || faults.iter().map(size).sum::<usize>() > MAX_FAULTS_SIZE
    }

    /// Builds the error for a missing required field.
    pub(crate) fn required(field: impl Into<String>, message: &str) -> Self {
        let message = if message.is_empty() {
            "Required value".to_owned()
        } else {
            format!("Required value: {message}")
        };
        Self { field: field.into(), kind: FaultKind::Required, message }
    }

    /// Builds the error for a value that violates a rule.
    pub(crate) fn invalid(field: impl Into<String>, value: &Value, rule: &str) -> Self {
        let message = format!("Invalid value: {}: {rule}", shown(value));
        Self { field: field.into(), kind: FaultKind::Invalid, message }
    }

    /// Builds the error for a value of the wrong type.
    pub(crate) fn wrong_type(field: impl Into<String>, value: &Value, expected: &str) -> Self {
        let field = field.into();
        let message = format!(
            "Invalid value: \"{}\": {field} in body must be of type {expected}: \"{}\"",
            type_name(value),
            type_name(value)
        );
        Self { field, kind: FaultKind::TypeInvalid, message }
    }

    /// Builds the error for a value outside a fixed set.
    pub(crate) fn not_supported(field: impl Into<String>, value: &str, known: &[&str]) -> Self {
        let known: Vec<String> = known.iter().map(|one| format!("\"{one}\"")).collect();
        let message =
            format!("Unsupported value: \"{value}\": supported values: {}", known.join(", "));
        Self { field: field.into(), kind: FaultKind::NotSupported, message }
    }

    /// Builds the error for a value that another item already has.
    pub(crate) fn duplicate(field: impl Into<String>, value: &str) -> Self {
        let message = format!("Duplicate value: \"{value}\"");
        Self { field: field.into(), kind: FaultKind::Duplicate, message }
    }

    /// Builds the error for a name that nothing has.
    pub(crate) fn not_found(field: impl Into<String>, value: &str) -> Self {
        let message = format!("Not found: \"{value}\"");
        Self { field: field.into(), kind: FaultKind::NotFound, message }
    }

    /// Builds the error for a value that exceeds its maximum size.
    pub(crate) fn too_long(field: impl Into<String>, most: usize) -> Self {
        let message = format!("Too long: may not be more than {most} bytes");
        Self { field: field.into(), kind: FaultKind::TooLong, message }
    }

    /// Builds the error for a list with too many items.
    pub(crate) fn too_many(field: impl Into<String>, count: usize, most: usize) -> Self {
        let message = format!("Too many: {count}: must have at most {most} items");
        Self { field: field.into(), kind: FaultKind::TooMany, message }
    }

    /// Builds the error for a field that must not be set or changed.
    pub(crate) fn forbidden(field: impl Into<String>, message: &str) -> Self {
        let message = format!("Forbidden: {message}");
        Self { field: field.into(), kind: FaultKind::Forbidden, message }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", if self.field.is_empty() { "<nil>" } else { &self.field }, self.message)
    }
}

/// Returns the name of a value's JSON type, as API errors spell it.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Formats a value as field errors quote it: as JSON.
pub(crate) fn shown(value: &Value) -> String {
    value.to_string()
}

impl Failure {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, is_plain: false }
    }

    fn about(mut self, resource: &Resource, name: &str) -> Self {
        let mut details = Map::new();
        if !name.is_empty() {
            details.insert("name".into(), name.into());
        }
        if !resource.group.is_empty() {
            details.insert("group".into(), resource.group.clone().into());
        }
        details.insert("kind".into(), resource.plural.clone().into());
        self.details = Some(Value::Object(details));
        self
    }

    /// 400: the request is malformed.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// 404: the path names nothing that is served.
    pub(crate) fn unknown_path() -> Self {
        let mut failure = Self::new(
            StatusCode::NOT_FOUND,
            "NotFound",
            "the server could not find the requested resource",
        );
        failure.details = Some(json!({}));
        failure
    }

    /// 404: the path is outside the groups that are served.
    pub(crate) fn no_page() -> Self {
        let mut failure = Self::new(StatusCode::NOT_FOUND, "NotFound", "404 page not found\n");
        failure.is_plain = true;
        failure
    }

    /// 404: the object does not exist.
    pub(crate) fn not_found(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", resource.qualified());
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about(resource, name)
    }

    /// 409: an object of this name already exists.
    pub(crate) fn exists(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", resource.qualified());
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(resource, name)
    }

    /// Returns true if an object of the name already exists.
    pub(crate) fn is_exists(&self) -> bool {
        self.reason == "AlreadyExists"
    }

    /// 409: the object changed since the client read it.
    pub(crate) fn modified(resource: &Resource, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and \
             try again",
        )
    }

    /// 409: the object is not in the state that the request assumes.
    pub(crate) fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} \"{name}\": {why}", resource.qualified());
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(resource, name)
    }

    /// 409: the object is not in the state that a precondition assumes. Names the kind, not the
    /// resource.
    pub(crate) fn conflict_of_kind(resource: &Resource, name: &str, why: &str) -> Self {
        Self::conflict_about(&resource.group, &resource.kind, name, why)
    }

    /// 409: the pod cannot be bound to a node.
    pub(crate) fn unbindable(name: &str, why: &str) -> Self {
        Self::conflict_about("", "pods/binding", name, why)
    }

    fn conflict_about(group: &str, kind: &str, name: &str, why: &str) -> Self {
        let shown = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let message = format!("Operation cannot be fulfilled on {shown} \"{name}\": {why}");
        let mut failure = Self::new(StatusCode::CONFLICT, "Conflict", message);
        let mut about = details(name, group, kind, &[]);
        if let Some(map) = about.as_object_mut() {
            map.remove("causes");
        }
        failure.details = Some(about);
        failure
    }

    /// 409: other field managers own fields that the apply request changes.
    pub(crate) fn apply_conflict(conflicts: &[(String, String)]) -> Self {
        let causes: Vec<Value> = conflicts
            .iter()
            .map(|(manager, field)| {
                json!({"reason": "FieldManagerConflict", "field": field,
                       "message": format!("conflict with {manager}")})
            })
            .collect();
        let message = if let [(manager, field)] = conflicts {
            format!("Apply failed with 1 conflict: conflict with {manager}: {field}")
        } else {
            let mut listed: BTreeMap<&str, String> = BTreeMap::new();
            for (manager, field) in conflicts {
                let fields = listed.entry(manager).or_default();
                fields.push_str("\n- ");
                fields.push_str(field);
            }
            let listed: Vec<String> = listed
                .iter()
                .map(|(manager, fields)| format!("conflicts with {manager}:{fields}"))
                .collect();
            format!("Apply failed with {} conflicts: {}", conflicts.len(), listed.join("\n"))
        };
        let mut failure = Self::new(StatusCode::CONFLICT, "Conflict", message);
        failure.details = Some(json!({ "causes": causes }));
        failure
    }

    /// 422: the object violates the rules of its kind.
    pub(crate) fn invalid(resource: &Resource, name: &str, faults: &[Fault]) -> Self {
        // Compat: events of both groups are validated as core events.
        let group = if resource.form == Form::NewEvent { "" } else { &resource.group };
        Self::invalid_kind(group, &resource.kind, name, faults)
    }

    /// 422: the object of a kind violates its rules.
    pub(crate) fn invalid_kind(group: &str, short: &str, name: &str, faults: &[Fault]) -> Self {
        let faults = faults.get(..MAX_FAULTS).unwrap_or(faults);
        let mut listed: Vec<String> = faults.iter().map(Fault::to_string).collect();
        // Compat: the causes name a fault as often as it is found, the message once.
        let mut seen = HashSet::new();
        listed.retain(|text| seen.insert(text.clone()));
        let text = if let [only] = listed.as_slice() {
            only.clone()
        } else {
            format!("[{}]", listed.join(", "))
        };
        let kind = if group.is_empty() { short.to_owned() } else { format!("{short}.{group}") };
        let causes: Vec<Value> = faults
            .iter()
            .map(|fault| {
                json!({"reason": fault.kind.reason(), "message": fault.message,
                       "field": if fault.field.is_empty() { "<nil>" } else { &fault.field }})
            })
            .collect();
        let message = format!("{kind} \"{name}\" is invalid: {text}");
        let mut failure = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        failure.details = Some(details(name, group, short, &causes));
        failure
    }

    /// 422: an option of the request is invalid. `kind` is the type of the options.
    pub(crate) fn invalid_options(kind: &str, fault: &Fault) -> Self {
        Self::invalid_kind("meta.k8s.io", kind, "", std::slice::from_ref(fault))
    }

    /// 500: the request failed for a reason that is not the server's, as kube-apiserver answers it.
    pub(crate) fn unexplained(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// 422: a JSON patch cannot be applied.
    pub(crate) fn rejected_patch() -> Self {
        let message = "the server rejected our request due to an error in our request";
        let mut failure = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        failure.details = Some(json!({}));
        failure
    }

    /// 422: the patched object is not valid.
    pub(crate) fn invalid_patch(why: &str) -> Self {
        let rule = format!("Invalid value: \"the patched object\": {why}");
        let message = format!(" \"\" is invalid: patch: {rule}");
        let mut failure = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        failure.details = Some(json!({"causes": [
            {"reason": "FieldValueInvalid", "message": rule, "field": "patch"}]}));
        failure
    }

    /// 403: the rules of the cluster forbid the request.
    pub(crate) fn forbidden(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", resource.qualified());
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).about(resource, name)
    }

    /// 500: the same failure as kube-apiserver gives it where it does not expect one.
    pub(crate) fn without_reason(self) -> Self {
        let message = self.message.replacen("invalid resource version: ", "", 1);
        Self::unexplained(message)
    }

    /// Adds a cause.
    pub(crate) fn because(mut self, cause: &Value) -> Self {
        if let Some(details) = self.details.as_mut().and_then(Value::as_object_mut) {
            details.insert("causes".into(), json!([cause]));
        }
        self
    }

    /// 403: the caller has no right to the request. The resource is empty for other paths.
    pub(crate) fn no_access(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let qualified =
            if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
        let message = match (resource, name) {
            ("", _) => format!("forbidden: {why}"),
            (_, "") => format!("{qualified} is forbidden: {why}"),
            _ => format!("{qualified} \"{name}\" is forbidden: {why}"),
        };
        let mut failure = Self::new(StatusCode::FORBIDDEN, "Forbidden", message);
        let parts = [("name", name), ("group", group), ("kind", resource)];
        let parts = parts.into_iter().filter(|(_, value)| !value.is_empty());
        let parts = parts.map(|(key, value)| (key.to_owned(), Value::from(value)));
        failure.details = Some(Value::Object(parts.collect()));
        failure
    }

    /// A policy denies the request, with the code of its reason.
    pub(crate) fn denied(resource: &Resource, name: &str, reason: &'static str, why: &str) -> Self {
        let mut failure = Self::forbidden(resource, name, why);
        failure.code = match reason {
            "Forbidden" => StatusCode::FORBIDDEN,
            "Unauthorized" => StatusCode::UNAUTHORIZED,
            "RequestEntityTooLarge" => StatusCode::PAYLOAD_TOO_LARGE,
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        };
        failure.reason = reason;
        if let Some(map) = failure.details.as_mut().and_then(Value::as_object_mut) {
            map.insert("causes".into(), json!([{"message": why}]));
        }
        failure
    }

    /// 405: the resource is served, but not this verb.
    pub(crate) fn method() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
        .without_details()
    }

    fn without_details(mut self) -> Self {
        self.details = Some(json!({}));
        self
    }

    /// 415: the request does not accept a body of this media type.
    pub(crate) fn media_type(accepted: &str) -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types \
                 include: {accepted}"
            ),
        )
    }

    /// 415: the patch has a media type that no patch has.
    pub(crate) fn patch_type() -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            "415: Unsupported Media Type",
        )
        .without_details()
    }

    /// 413: the body exceeds the size limit.
    pub(crate) fn too_large(limit: usize) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {limit}"),
        )
    }

    /// 413: the JSON patch has too many operations.
    pub(crate) fn too_many_operations(count: usize, most: usize) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestEntityTooLarge",
            format!(
                "Request entity too large: The allowed maximum operations in a JSON patch is {most}, \
                 got {count}"
            ),
        )
    }

    /// 406: no answer has a form that the client accepts.
    pub(crate) fn not_acceptable(why: &str) -> Self {
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", why)
    }

    /// 406: no answer has a media type that the client accepts.
    pub(crate) fn unproduced(why: &str) -> Self {
        Self::not_acceptable(why).without_details()
    }

    /// 408: the client sends the body of its request too slowly.
    pub(crate) fn slow_body() -> Self {
        let message = "the body of the request did not arrive in time";
        Self::new(StatusCode::REQUEST_TIMEOUT, "Timeout", message)
    }

    /// 410: the requested resourceVersion is no longer in the watch history.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// 504: the requested resourceVersion is in the future.
    pub(crate) fn future_version(asked: u64, current: u64) -> Self {
        let mut failure = Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            "Timeout",
            format!("Too large resource version: {asked}, current: {current}"),
        );
        failure.details = Some(json!({"retryAfterSeconds": 1, "causes": [
            {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}));
        failure
    }

    /// 429: a PodDisruptionBudget does not allow the eviction now.
    pub(crate) fn budget(message: impl Into<String>, cause: &str) -> Self {
        let mut failure =
            Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message.into());
        failure.details =
            Some(json!({"causes": [{"reason": "DisruptionBudget", "message": cause}]}));
        failure
    }

    /// 401: the caller is not authenticated.
    pub(crate) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// 500: the server itself failed.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        let message = format!("Internal error occurred: {}", message.into());
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    /// Returns the failure as a `Status` object.
    pub(crate) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code.as_u16(),
        });
        if let (false, Some(map)) = (self.reason.is_empty(), status.as_object_mut()) {
            map.insert("reason".into(), self.reason.into());
        }
        if let (Some(details), Some(map)) = (&self.details, status.as_object_mut()) {
            map.insert("details".into(), details.clone());
        }
        status
    }
}

/// Builds the details of an invalid object.
fn details(name: &str, group: &str, kind: &str, causes: &[Value]) -> Value {
    let mut details = Map::new();
    for (field, value) in [("name", name), ("group", group), ("kind", kind)] {
        if !value.is_empty() {
            details.insert(field.into(), value.into());
        }
    }
    details.insert("causes".into(), causes.into());
    Value::Object(details)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::builtin;

    #[test]
    fn messages_match_kube_apiserver() {
        let pdb = builtin::by_plural("poddisruptionbudgets");
        let node = builtin::by_plural("nodes");
        assert_eq!(
            Failure::not_found(&pdb, "a").message,
            "poddisruptionbudgets.policy \"a\" not found"
        );
        assert_eq!(Failure::exists(&node, "a").message, "nodes \"a\" already exists");
        assert_eq!(
            Failure::modified(&node, "a").message,
            "Operation cannot be fulfilled on nodes \"a\": the object has been modified; please \
             apply your changes to the latest version and try again"
        );
    }

    #[test]
    fn all_faults_of_an_object_are_listed() {
        let pdb = builtin::by_plural("poddisruptionbudgets");
        let faults =
            [Fault::required("spec.a", ""), Fault::invalid("spec.b", &json!("x"), "must be y")];
        let failure = Failure::invalid(&pdb, "p", &faults);
        assert_eq!(
            failure.message,
            "PodDisruptionBudget.policy \"p\" is invalid: [spec.a: Required value, spec.b: \
             Invalid value: \"x\": must be y]"
        );
        assert_eq!(failure.status()["details"]["causes"][1]["field"], "spec.b");
    }
}
