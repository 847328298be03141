//! Access and identity reviews. They are answered, but not stored.

use serde_json::{Value, json};

use crate::object;

/// The identity of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) user: String,
    pub(crate) groups: Vec<String>,
}

/// A kind of review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Review {
    pub(crate) group: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) kind: &'static str,
}

/// The served reviews, all of version `v1`.
pub(crate) const REVIEWS: [Review; 2] = [
    Review {
        group: "authentication.k8s.io",
        plural: "selfsubjectreviews",
        kind: "SelfSubjectReview",
    },
    Review {
        group: "authorization.k8s.io",
        plural: "selfsubjectaccessreviews",
        kind: "SelfSubjectAccessReview",
    },
];

/// Returns the review at these coordinates.
pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<Review> {
    let found = REVIEWS.into_iter().find(|one| one.group == group && one.plural == plural);
    found.filter(|_| version == "v1")
}

/// Answers a review. Authenticated callers may do everything, so the content of the request is
/// ignored: kubectl sends it in protobuf, which the server does not decode.
pub(crate) fn answer(review: Review, question: &[u8], caller: &Identity) -> Value {
    let question: Value = serde_json::from_slice(question).unwrap_or_default();
    let mut spec = object::at(&question, &["spec"]).cloned().unwrap_or_else(|| json!({}));
    object::map_of(&mut spec);
    let status = if review.kind == "SelfSubjectReview" {
        json!({"userInfo": {"username": caller.user, "groups": caller.groups}})
    } else {
        json!({"allowed": true})
    };
    json!({"kind": review.kind, "apiVersion": format!("{}/v1", review.group), "metadata": {},
        "spec": spec, "status": status})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_learn_their_identity_and_are_allowed() {
        let caller = Identity { user: "me".into(), groups: vec!["us".into()] };
        let [self_review, access] = REVIEWS;
        assert_eq!(answer(self_review, b"", &caller)["status"]["userInfo"]["username"], "me");
        assert_eq!(answer(access, b"k8s\0not json", &caller)["status"]["allowed"], true);
        assert_eq!(find("authorization.k8s.io", "v1beta1", "selfsubjectaccessreviews"), None);
    }
}
