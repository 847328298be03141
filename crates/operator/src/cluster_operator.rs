//! Writes the ClusterOperator: the state that `kubectl get co machine-config` prints.

mod observed;
mod related;

use std::{sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use mco_api::{
    ClusterOperator, RawConfig,
    annotation::{self, JoinTokens},
    cluster_operator::{
        ClusterOperatorCondition, ClusterOperatorSpec, ClusterOperatorStatus, OperandVersion,
    },
    condition::OperatorCondition,
    label,
};
use mco_cluster::{
    Api, CallError, Note,
    apply::{self, Precondition},
    client::namespace,
};
use mco_core::status::{
    Finding,
    operator::{self, OperatorStatus, OperatorView, Reached},
};
use serde_json::json;

pub(crate) use self::observed::Observed;
use crate::{Context, claim, manifests::MANAGED_BY, operands::Operands, steps::StepError};

const OPERATOR: &str = "operator";
const OPERATOR_IMAGE: &str = "operator-image";

/// Returns the ClusterOperator. Creates it with its first conditions if it does not exist, so that
/// administrators see it while the first reconcile runs.
pub(crate) async fn ensure(context: &Context) -> Result<Arc<ClusterOperator>, CallError> {
    let api = Api::<ClusterOperator>::all(context.client.clone());
    let name = label::CLUSTER_OPERATOR;
    if let Some(found) = context.operators.get(name) {
        return Ok(found);
    }
    let mut new = ClusterOperator::new(name, ClusterOperatorSpec {});
    // `mco uninstall` deletes it: no process would keep its status current.
    let (key, value) = MANAGED_BY;
    new.labels_mut().insert(key.to_owned(), value.to_owned());
    claim::mark(&mut new, namespace(&context.client));
    let made = apply::ensure(&api, name, &new).await?;
    context.operators.learn_new(made.clone());
    let has_status = made.status.as_ref().is_some_and(|status| !status.conditions.is_empty());
    if has_status || claim::refusal(&made.metadata, namespace(&context.client)).is_some() {
        return Ok(made.into());
    }
    let conditions = conditions(context, &ClusterOperatorStatus::default(), &operator::initial());
    let first = ClusterOperatorStatus { conditions, ..ClusterOperatorStatus::default() };
    let made = apply::merge_status(&api, name, &first, Precondition::Any).await?;
    context.operators.learn(made.clone());
    Ok(made.into())
}

/// Creates the ClusterOperator if necessary and updates its status, unless another installation has
/// created it meanwhile. Returns the time after which the controller may be silent.
pub(crate) async fn update_status(
    context: &Context,
    failure: Option<&StepError>,
) -> Result<Option<Duration>, CallError> {
    let (controller, silent_after) = context.controller.state().await?;
    let incomplete = context.incomplete();
    let detected = context.observed.detected();
    let boot_images = context.machine_configurations.blocking_boot_images();
    let rollout = context.operands.as_ref().and_then(Operands::pending);
    let found = ensure(context).await?;
    if claim::refusal(&found.metadata, namespace(&context.client)).is_some() {
        return Ok(silent_after);
    }
    let before = found.status.clone().unwrap_or_default();
    let pools = context.pools.list();
    let pools: Vec<_> = pools.iter().map(|pool| &**pool).collect();
    let verdict = operator::operator(&OperatorView {
        version: &context.config.release,
        reached: version(&before),
        image: &context.config.image,
        failure: failure.map(StepError::named),
        pools: &pools,
        namespace: namespace(&context.client),
        controller: &controller,
        controller_workload: context.observed.controller(),
        server_workload: context.observed.server(),
        rollout: rollout.as_deref(),
        incomplete: &incomplete,
        detected: &detected,
        boot_images: boot_images.as_deref(),
        join_tokens: &join_tokens(context),
    });
    let after = status(context, &before, &verdict);
    if after == before {
        return Ok(silent_after);
    }
    let api = Api::<ClusterOperator>::all(context.client.clone());
    let name = label::CLUSTER_OPERATOR;
    let patched = apply::merge_status(&api, name, &after, Precondition::Any).await?;
    context.operators.learn(patched);
    for note in notes(&found, &before, &after, &context.config.release) {
        context.reporter.publish(&note).await;
    }
    Ok(silent_after)
}

/// Returns the version that the cluster has reached.
fn version(status: &ClusterOperatorStatus) -> Option<&str> {
    let mut versions = status.versions.iter();
    let found = versions.find(|version| version.name == OPERATOR)?;
    Some(found.version.as_str())
}

/// Returns the mode of join tokens in the ControllerConfig.
fn join_tokens(context: &Context) -> JoinTokens {
    let config = context.controller_configs.get(label::CONTROLLER_CONFIG);
    let mode = config.and_then(|config| annotation::JOIN_TOKENS.get(config.annotations()).ok()?);
    mode.unwrap_or_default()
}

fn status(
    context: &Context,
    before: &ClusterOperatorStatus,
    verdict: &OperatorStatus,
) -> ClusterOperatorStatus {
    let version = |name: &str, version: &str| OperandVersion {
        name: name.to_owned(),
        version: version.to_owned(),
    };
    let versions = match verdict.reached {
        Reached::Yes => vec![
            version(OPERATOR, &context.config.release),
            version(OPERATOR_IMAGE, &context.config.image),
        ],
        Reached::NotYet => before.versions.clone(),
    };
    ClusterOperatorStatus {
        conditions: conditions(context, before, &verdict.conditions),
        versions,
        related_objects: related::related(namespace(&context.client)),
        extension: extension(before, verdict),
    }
}

/// Returns the conditions of the status. The time of a condition is that of the last change of its
/// status.
fn conditions(
    context: &Context,
    before: &ClusterOperatorStatus,
    found: &[(OperatorCondition, Finding)],
) -> Vec<ClusterOperatorCondition> {
    let now = Time(context.config.clock.now());
    let condition = |(kind, found): &(OperatorCondition, Finding)| {
        let known = before.conditions.iter().find(|known| known.kind == kind.as_str());
        let since = known
            .filter(|known| known.status == found.status.as_str())
            .and_then(|known| known.last_transition_time.clone());
        ClusterOperatorCondition {
            kind: kind.as_str().to_owned(),
            status: found.status.as_str().to_owned(),
            last_transition_time: Some(since.unwrap_or_else(|| now.clone())),
            reason: found.reason.clone(),
            message: found.message.clone(),
        }
    };
    found.iter().map(condition).collect()
}

/// Returns the extension. A stored one with the same members stays as it is: an API server may store
/// another text for them.
fn extension(before: &ClusterOperatorStatus, verdict: &OperatorStatus) -> Option<RawConfig> {
    // Members of a merge patch that are not given stay, so those that are gone are set to null.
    let wanted = json!(verdict.extension);
    let stored = before.extension.as_ref();
    let stored_value =
        stored.and_then(|it| serde_json::from_str::<serde_json::Value>(it.get()).ok());
    if stored_value.as_ref() == Some(&wanted) {
        return stored.cloned();
    }
    let gone = stored_value.as_ref().and_then(serde_json::Value::as_object).into_iter().flatten();
    let gone = gone.filter(|(key, _)| !verdict.extension.contains_key(*key));
    let mut members: serde_json::Map<_, _> =
        gone.map(|(key, _)| (key.clone(), serde_json::Value::Null)).collect();
    members.extend(verdict.extension.iter().map(|(key, text)| (key.clone(), json!(text))));
    RawConfig::from_json(serde_json::Value::Object(members).to_string()).ok()
}

/// Returns the events for changes of the version and of the condition Degraded.
fn notes(
    object: &ClusterOperator,
    before: &ClusterOperatorStatus,
    after: &ClusterOperatorStatus,
    wanted: &str,
) -> Vec<Note> {
    let version = version_change(before, after, wanted);
    let version = version.map(|text| Note::normal(object, "OperatorVersionChanged", &text));
    let degraded = degraded_change(before, after).map(|found| {
        let mut note = Note::warning(object, "OperatorDegraded", &found.message);
        note.reason = format!("OperatorDegraded: {}", found.reason).into();
        note
    });
    version.into_iter().chain(degraded).collect()
}

/// Returns the text for a version that was reached, or that the operator has begun to work towards.
fn version_change(
    before: &ClusterOperatorStatus,
    after: &ClusterOperatorStatus,
    wanted: &str,
) -> Option<String> {
    let name = label::CLUSTER_OPERATOR;
    match (version(before), version(after)) {
        (None, Some(new)) => {
            Some(format!("clusteroperator/{name} reached its first version, {new}"))
        }
        (Some(old), Some(new)) if old != new => {
            Some(format!("clusteroperator/{name} changed from version {old} to {new}"))
        }
        (old, _) if old != Some(wanted) && !works_towards(before, wanted) => Some(match old {
            Some(old) => {
                format!("clusteroperator/{name} started to change from version {old} to {wanted}")
            }
            None => format!("clusteroperator/{name} is bootstrapping version {wanted}"),
        }),
        (_, _) => None,
    }
}

/// Returns true if the condition Progressing says that the operator works towards the version.
fn works_towards(status: &ClusterOperatorStatus, wanted: &str) -> bool {
    let texts = [format!("Working towards {wanted}"), format!("Unable to apply {wanted}")];
    condition(status, &OperatorCondition::Progressing)
        .is_some_and(|found| texts.iter().any(|text| found.message.starts_with(text)))
}

/// Returns the condition Degraded if it is True and its reason or message is new.
fn degraded_change<'s>(
    before: &ClusterOperatorStatus,
    after: &'s ClusterOperatorStatus,
) -> Option<&'s ClusterOperatorCondition> {
    let kind = OperatorCondition::Degraded;
    let found = condition(after, &kind).filter(|found| found.status == "True")?;
    let is_known = condition(before, &kind)
        .is_some_and(|known| known.reason == found.reason && known.message == found.message);
    (!is_known).then_some(found)
}

fn condition<'s>(
    status: &'s ClusterOperatorStatus,
    kind: &OperatorCondition,
) -> Option<&'s ClusterOperatorCondition> {
    status.conditions.iter().find(|found| found.kind == kind.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(reached: Option<&str>, progressing: &str, degraded: &str) -> ClusterOperatorStatus {
        let condition = |kind: OperatorCondition, status: &str, message: &str| {
            let (kind, status) = (kind.as_str().to_owned(), status.to_owned());
            let message = message.to_owned();
            ClusterOperatorCondition { kind, status, message, ..Default::default() }
        };
        let is_degraded = if degraded.is_empty() { "False" } else { "True" };
        let version =
            |version: &str| OperandVersion { name: OPERATOR.into(), version: version.into() };
        ClusterOperatorStatus {
            conditions: vec![
                condition(OperatorCondition::Progressing, "True", progressing),
                condition(OperatorCondition::Degraded, is_degraded, degraded),
            ],
            versions: reached.map(version).into_iter().collect(),
            ..ClusterOperatorStatus::default()
        }
    }

    // covers: O36
    #[test]
    fn events_tell_of_each_change_once() {
        let (none, towards) = (at(None, "", ""), "Working towards 2: pool");
        let failed = at(Some("1"), towards, "no");
        let rows = [
            (
                &none,
                at(None, towards, ""),
                vec!["clusteroperator/machine-config is bootstrapping version 2"],
            ),
            (&at(None, towards, ""), at(None, towards, ""), vec![]),
            (
                &at(None, towards, ""),
                at(Some("2"), "", ""),
                vec!["clusteroperator/machine-config reached its first version, 2"],
            ),
            (
                &at(Some("1"), "Cluster version is 1", ""),
                at(Some("1"), towards, ""),
                vec!["clusteroperator/machine-config started to change from version 1 to 2"],
            ),
            (&at(Some("1"), towards, ""), failed.clone(), vec!["no"]),
            (&failed, at(Some("1"), "Unable to apply 2", "no"), vec![]),
            (&at(Some("1"), "Unable to apply 2", "no"), at(Some("1"), towards, "why"), vec!["why"]),
            (
                &at(Some("1"), towards, ""),
                at(Some("2"), "", ""),
                vec!["clusteroperator/machine-config changed from version 1 to 2"],
            ),
            (&at(Some("2"), "", ""), at(Some("2"), "Cluster version is 2: pool", ""), vec![]),
        ];
        let object = ClusterOperator::new("machine-config", ClusterOperatorSpec {});
        for (before, after, expected) in rows {
            let found = notes(&object, before, &after, "2");
            let texts: Vec<&str> = found.iter().map(|note| &*note.text).collect();
            assert_eq!(texts, expected);
        }
    }
}
