//! Decides which action the operator takes on an operand.

use super::observed::{Fingerprint, Pods};
use super::store::{Force, Found};

/// The action that the operator takes on an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The object is as it was applied.
    Nothing,
    /// The object is applied.
    Apply(Force),
    /// The object belongs to another owner and is left as it is.
    Leave,
    /// The object stays as it is until the controller's pods have the new version.
    Hold,
}

/// State of the controller's Deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rollout {
    /// The pods have the wanted version and are ready.
    Complete,
    /// The reason why the pods are not ready.
    Incomplete(String),
}

/// The version of a workload: image and release.
pub(crate) type Version = (String, String);

/// Decides about an object: the version that was last applied, the object that exists, and, for a
/// workload that follows the controller, the wanted version and the state of the controller.
pub(crate) fn decide(
    applied: Option<&Fingerprint>,
    found: Option<&Found>,
    follows: Option<(&Version, &Rollout)>,
) -> Action {
    let Some(found) = found else { return Action::Apply(Force::No) };
    if !found.is_ours {
        return Action::Leave;
    }
    if applied == Some(&found.fingerprint) {
        return Action::Nothing;
    }
    match follows {
        Some((wanted, Rollout::Incomplete(_))) if found.pods.version != *wanted => Action::Hold,
        Some(_) | None => Action::Apply(Force::Yes),
    }
}

/// Returns the state of a Deployment.
pub(crate) fn rollout(name: &str, found: Option<&Found>, wanted: &Version) -> Rollout {
    let Some(found) = found else {
        return Rollout::Incomplete(format!("deployment {name} does not exist"));
    };
    let Pods { version, observed_generation, replicas, updated, ready, unavailable } = &found.pods;
    let is_observed = *observed_generation >= found.generation;
    if version == wanted
        && is_observed
        && *replicas > 0
        && updated == replicas
        && ready == replicas
        && *unavailable == 0
    {
        return Rollout::Complete;
    }
    // Compat: the text of the reference (pkg/operator/sync.go).
    Rollout::Incomplete(format!(
        "deployment {name} is not ready. status: (replicas: {replicas}, updated: {updated}, ready: \
         {ready}, unavailable: {unavailable})"
    ))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use mco_cluster::Object as _;
    use serde_json::{Value, json};

    use super::*;
    use crate::operands::observed::Observed;

    fn found(image: &str, is_ours: bool, status: &Value) -> Found {
        let labels =
            if is_ours { json!({"app.kubernetes.io/managed-by": "mco"}) } else { json!({}) };
        let text = json!({
            "metadata": {"uid": "u", "generation": 2, "resourceVersion": "7", "labels": labels},
            "spec": {"template": {"spec": {"containers": [
                {"image": image, "env": [{"name": "RELEASE_VERSION", "value": "1"}]},
            ]}}},
            "status": status,
        });
        Found::from(&Observed::<Deployment>::decode(&text.to_string()).unwrap())
    }

    fn version(image: &str) -> Version {
        (image.to_owned(), "1".to_owned())
    }

    #[test]
    fn an_object_is_applied_unless_it_is_unchanged_of_another_owner_or_early() {
        let (ours, theirs) = (found("old", true, &json!({})), found("old", false, &json!({})));
        let (new, old) = (version("new"), version("old"));
        let (complete, incomplete) = (Rollout::Complete, Rollout::Incomplete("x".to_owned()));
        let mark = ours.fingerprint.clone();
        let rows = [
            (None, None, None, Action::Apply(Force::No)),
            (Some(&mark), None, None, Action::Apply(Force::No)),
            (None, Some(&theirs), None, Action::Leave),
            (Some(&mark), Some(&ours), None, Action::Nothing),
            (None, Some(&ours), None, Action::Apply(Force::Yes)),
            (None, Some(&ours), Some((&new, &incomplete)), Action::Hold),
            (None, Some(&ours), Some((&new, &complete)), Action::Apply(Force::Yes)),
            // The version does not change: another manager edited another member.
            (None, Some(&ours), Some((&old, &incomplete)), Action::Apply(Force::Yes)),
            // The first installation does not wait.
            (None, None, Some((&new, &incomplete)), Action::Apply(Force::No)),
        ];
        for (row, (applied, found, follows, expected)) in rows.into_iter().enumerate() {
            assert_eq!(decide(applied, found, follows), expected, "row {row}");
        }
    }

    #[test]
    fn a_rollout_is_complete_when_all_pods_of_the_observed_generation_are_ready() {
        let status = |generation: i64, updated: i32, ready: i32, unavailable: i32| {
            json!({"observedGeneration": generation, "replicas": 1, "updatedReplicas": updated,
                "readyReplicas": ready, "unavailableReplicas": unavailable})
        };
        let rows = [
            ("new", status(2, 1, 1, 0), true),
            ("new", status(1, 1, 1, 0), false),
            ("new", status(2, 0, 1, 0), false),
            ("new", status(2, 1, 0, 1), false),
            ("old", status(2, 1, 1, 0), false),
            ("new", json!({}), false),
        ];
        for (image, status, expected) in rows {
            let found = found(image, true, &status);
            let is_complete = rollout("c", Some(&found), &version("new")) == Rollout::Complete;
            assert_eq!(is_complete, expected, "{image} {status}");
        }
        let text = "deployment c is not ready. status: (replicas: 1, updated: 1, ready: 0, unavailable: 1)";
        let found = found("new", true, &status(2, 1, 0, 1));
        let state = rollout("c", Some(&found), &version("new"));
        assert_eq!(state, Rollout::Incomplete(text.to_owned()));
    }
}
