//! Access and identity reviews. They are answered, but not stored.

use serde_json::{Value, json};

use crate::{
    failure::{Fault, FaultKind},
    object::{self, at, text},
    types::{self, canonical},
};

/// The identity of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) user: String,
    pub(crate) groups: Vec<String>,
}

/// Attributes of a caller besides user and groups, such as the pod of a service account.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Claims {
    pub(crate) uid: String,
    /// Lists of values by key.
    pub(crate) extra: Value,
}

/// Returns a caller in the form of reviews and policies.
pub(crate) fn user_info(caller: &Identity, claims: &Claims) -> Value {
    let mut info = json!({"username": caller.user, "groups": caller.groups});
    let map = object::map_of(&mut info);
    if !claims.uid.is_empty() {
        map.insert("uid".into(), claims.uid.clone().into());
    }
    if claims.extra.as_object().is_some_and(|it| !it.is_empty()) {
        map.insert("extra".into(), claims.extra.clone());
    }
    info
}

/// A kind of review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Review {
    pub(crate) group: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) namespaced: bool,
}

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";

const fn review(group: &'static str, plural: &'static str, kind: &'static str) -> Review {
    Review { group, plural, kind, namespaced: false }
}

/// The served reviews, all of version `v1`.
pub(crate) const REVIEWS: [Review; 6] = [
    review(AUTHENTICATION, "selfsubjectreviews", "SelfSubjectReview"),
    review(AUTHENTICATION, "tokenreviews", "TokenReview"),
    Review {
        namespaced: true,
        ..review(AUTHORIZATION, "localsubjectaccessreviews", "LocalSubjectAccessReview")
    },
    review(AUTHORIZATION, "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    review(AUTHORIZATION, "selfsubjectrulesreviews", "SelfSubjectRulesReview"),
    review(AUTHORIZATION, "subjectaccessreviews", "SubjectAccessReview"),
];

/// Returns the review at these coordinates.
pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<Review> {
    let found = REVIEWS.into_iter().find(|one| one.group == group && one.plural == plural);
    found.filter(|_| version == "v1")
}

/// Brings a question into the form of its kind. Fails on values of the wrong type.
pub(crate) fn read(review: Review, question: &Value) -> Result<Value, String> {
    let mut read = question.clone();
    if let Some(found) = types::of_kind(review.group, "v1", review.kind) {
        canonical::read(found, &mut read)?;
    }
    let map = object::map_of(&mut read);
    map.insert("kind".into(), review.kind.into());
    map.insert("apiVersion".into(), format!("{}/v1", review.group).into());
    Ok(read)
}

/// Validates the question of an access review.
pub(crate) fn check(review: Review, question: &Value, namespace: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    let spec = question.get("spec").unwrap_or(&Value::Null);
    let given = |field: &str| at(spec, &[field]).filter(|it| !it.is_null());
    let (resource, path) = (given("resourceAttributes"), given("nonResourceAttributes"));
    match (resource, path) {
        (Some(_), Some(path)) => {
            let rule = "cannot be specified in combination with resourceAttributes";
            faults.push(quoted("spec.nonResourceAttributes", &path_shown(path), rule));
        }
        (None, None) => {
            let rule =
                "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            faults.push(Fault::invalid("spec.resourceAttributes", &Value::Null, rule));
        }
        (Some(_), None) | (None, Some(_)) => {}
    }
    let is_self = review.kind == "SelfSubjectAccessReview";
    let has_groups = given("groups").and_then(Value::as_array).is_some_and(|it| !it.is_empty());
    if !is_self && text(spec, &["user"]).is_empty() && !has_groups {
        let rule = "at least one of user or group must be specified";
        faults.push(Fault::invalid("spec.user", &json!(""), rule));
    }
    if review.namespaced {
        let asked = text(spec, &["resourceAttributes", "namespace"]);
        if resource.is_some() && asked != namespace {
            let place = "spec.resourceAttributes.namespace";
            faults.push(Fault::invalid(place, &json!(asked), "must match metadata.namespace"));
        }
        if let Some(path) = path {
            let rule = "disallowed on this kind of request";
            faults.push(quoted("spec.nonResourceAttributes", &path_shown(path), rule));
        }
    }
    faults
}

/// Returns a path with its verb, by the fields of the type in Go.
fn path_shown(path: &Value) -> String {
    let of = |field| json!(text(path, &[field]));
    format!("{{\"Path\":{},\"Verb\":{}}}", of("path"), of("verb"))
}

fn quoted(field: &str, value: &str, rule: &str) -> Fault {
    let message = format!("Invalid value: {value}: {rule}");
    Fault { field: field.to_owned(), kind: FaultKind::Invalid, message }
}

/// Returns the answer to a question: the question with a status.
pub(crate) fn answered(mut question: Value, status: Value) -> Value {
    object::map_of(&mut question).insert("status".into(), status);
    question
}

/// Returns the status of an access review.
pub(crate) fn decision(allowed: bool, reason: &str) -> Value {
    let mut status = json!({"allowed": allowed});
    if !reason.is_empty() {
        object::map_of(&mut status).insert("reason".into(), reason.into());
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_names_a_resource_or_a_path() {
        let find = |plural| find(AUTHORIZATION, "v1", plural).unwrap();
        let access = find("subjectaccessreviews");
        let resource = json!({"verb": "get", "namespace": "n"});
        for (review, spec, count) in [
            (access, json!({"user": "u", "resourceAttributes": resource}), 0),
            (access, json!({"resourceAttributes": resource}), 1),
            (access, json!({"user": "u"}), 1),
            (find("selfsubjectaccessreviews"), json!({"resourceAttributes": resource}), 0),
            (
                find("localsubjectaccessreviews"),
                json!({"user": "u", "resourceAttributes": resource}),
                1,
            ),
        ] {
            let faults = check(review, &json!({"spec": spec}), "other");
            assert_eq!(faults.len(), count, "{spec}: {faults:?}");
        }
        assert_eq!(super::find(AUTHORIZATION, "v1beta1", "subjectaccessreviews"), None);
    }

    #[test]
    fn a_caller_has_the_claims_of_its_token() {
        let caller = Identity { user: "me".into(), groups: vec!["us".into()] };
        let claims = Claims { uid: "u".into(), extra: json!({"k": ["v"]}) };
        let expected =
            json!({"username": "me", "groups": ["us"], "uid": "u", "extra": {"k": ["v"]}});
        assert_eq!(user_info(&caller, &claims), expected);
        let plain = json!({"username": "me", "groups": ["us"]});
        assert_eq!(user_info(&caller, &Claims::default()), plain);
    }
}
