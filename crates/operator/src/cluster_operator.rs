//! Writes the ClusterOperator: the state that `kubectl get co machine-config` prints.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use mco_api::{
    ClusterOperator, GROUP,
    annotation::{self, JoinTokens},
    cluster_operator::{
        ClusterOperatorCondition, ClusterOperatorSpec, ClusterOperatorStatus, OperandVersion,
        RelatedObject,
    },
    condition::OperatorCondition,
    label,
};
use mco_cluster::{
    Api, CallError, Note,
    apply::{self, Precondition},
};
use mco_core::status::{
    Finding,
    operator::{self, OperatorStatus, OperatorView, Reached},
};

use crate::{Context, steps::StepError};

const OPERATOR: &str = "operator";
const OPERATOR_IMAGE: &str = "operator-image";

/// Creates the ClusterOperator if necessary and updates its status. Returns the time after which the
/// controller may be silent.
pub(crate) async fn update_status(
    context: &Context,
    failure: Option<&StepError>,
) -> Result<Option<Duration>, CallError> {
    let (controller, silent_after) = context.controller.state().await?;
    let incomplete = context.definitions.incomplete();
    let api = Api::<ClusterOperator>::all(context.client.clone());
    let name = label::CLUSTER_OPERATOR;
    let found = if let Some(found) = context.operators.get(name) {
        found
    } else {
        let new = ClusterOperator::new(name, ClusterOperatorSpec {});
        let made = apply::ensure(&api, name, &new).await?;
        context.operators.learn_new(made.clone());
        made.into()
    };
    let before = found.status.clone().unwrap_or_default();
    let reached = before.versions.iter().find(|version| version.name == OPERATOR);
    let pools = context.pools.list();
    let pools: Vec<_> = pools.iter().map(|pool| &**pool).collect();
    let verdict = operator::operator(&OperatorView {
        version: &context.config.release,
        reached: reached.map(|version| version.version.as_str()),
        image: &context.config.image,
        failure: failure.map(StepError::named),
        pools: &pools,
        controller: &controller,
        incomplete: &incomplete,
        join_tokens: &join_tokens(context),
    });
    let after = status(context, &before, &verdict);
    if after == before {
        return Ok(silent_after);
    }
    let patched = apply::merge_status(&api, name, &after, Precondition::Any).await?;
    context.operators.learn(patched);
    for note in notes(&found, &before, &verdict) {
        context.reporter.publish(&note).await;
    }
    Ok(silent_after)
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
        conditions: verdict.conditions.iter().map(condition).collect(),
        versions,
        related_objects: related(),
        extension: before.extension.clone(),
    }
}

/// Returns the objects to inspect when the operator is degraded.
fn related() -> Vec<RelatedObject> {
    let object = |group: &str, resource: &str, name: &str| RelatedObject {
        group: group.to_owned(),
        resource: resource.to_owned(),
        namespace: String::new(),
        name: name.to_owned(),
    };
    let ours = ["machineconfigpools", "controllerconfigs", "machineconfigs"];
    [object("", "namespaces", label::NAMESPACE)]
        .into_iter()
        .chain(ours.map(|resource| object(GROUP, resource, "")))
        .chain([object("", "nodes", "")])
        .collect()
}

/// Returns the events for changes of the condition Degraded.
fn notes(
    object: &ClusterOperator,
    before: &ClusterOperatorStatus,
    verdict: &OperatorStatus,
) -> Vec<Note> {
    let degraded = verdict
        .conditions
        .iter()
        .find(|(kind, found)| *kind == OperatorCondition::Degraded && found.holds());
    let Some((kind, found)) = degraded else { return Vec::new() };
    let known = before.conditions.iter().any(|known| {
        known.kind == kind.as_str()
            && known.reason == found.reason
            && known.message == found.message
    });
    if known {
        return Vec::new();
    }
    let mut note = Note::warning(object, "OperatorDegraded", &found.message);
    note.reason = format!("OperatorDegraded: {}", found.reason).into();
    vec![note]
}
