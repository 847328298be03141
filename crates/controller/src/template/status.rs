//! Conditions of the template controller, and the certificates of the ControllerConfig.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use mco_api::{
    ControllerConfig,
    condition::ControllerConfigConditionType as Phase,
    controller_config::{ControllerConfigCondition, ControllerConfigStatus},
};
use mco_cluster::{
    Api, CallError,
    apply::{self, Precondition},
};
use mco_core::template::condition_message;

use super::certificates;
use crate::Context;

/// Reason of `TemplateControllerCompleted` if base configs of others were kept.
const KEPT: &str = "BaseConfigsKept";

const PHASES: [Phase; 3] = [
    Phase::TemplateControllerCompleted,
    Phase::TemplateControllerRunning,
    Phase::TemplateControllerFailing,
];

/// Reports that base configs of a new generation are being written.
pub(super) async fn begin(context: &Context, config: &ControllerConfig) -> Result<(), CallError> {
    let generation = config.metadata.generation.unwrap_or_default();
    let mut status = config.status.clone().unwrap_or_default();
    if status.observed_generation == generation {
        return Ok(());
    }
    status.observed_generation = generation;
    let running = Phase::TemplateControllerRunning;
    let message = condition_message(&running, generation, &context.build, "");
    // Compat: the reference's text (pkg/controller/template).
    let stopped = format!("{message} due to change in Generation");
    set(context, &mut status, &running, Finding { holds: true, reason: "", message: &message });
    let completed = Phase::TemplateControllerCompleted;
    if holds(&status, &completed) {
        let finding = Finding { holds: false, reason: "", message: &stopped };
        set(context, &mut status, &completed, finding);
    }
    write(context, config, &status).await
}

/// Reports the result: the names of base configs that were kept, or the cause of the failure.
pub(super) async fn report(
    context: &Context,
    config: &ControllerConfig,
    outcome: Result<&Vec<String>, String>,
) -> Result<(), CallError> {
    let generation = config.metadata.generation.unwrap_or_default();
    // The status may be newer than the object that was reconciled.
    let newest = context.caches.controller_config();
    let newest = newest.as_deref().unwrap_or(config);
    let mut status = newest.status.clone().unwrap_or_default();
    status.observed_generation = generation;
    status.controller_certificates = certificates::of(&config.spec);
    let (reached, failure) = match &outcome {
        Ok(_) => (Phase::TemplateControllerCompleted, ""),
        Err(cause) => (Phase::TemplateControllerFailing, cause.as_str()),
    };
    let mut message = condition_message(&reached, generation, &context.build, failure);
    let kept = outcome.ok().filter(|kept| !kept.is_empty());
    if let Some(kept) = kept {
        let names = kept.join(", ");
        message = format!("{message}; kept base configs that another operator made: {names}");
    }
    for phase in PHASES {
        let finding = if phase == reached {
            let reason = if kept.is_some() { KEPT } else { "" };
            Finding { holds: true, reason, message: &message }
        } else {
            Finding { holds: false, reason: "", message: "" }
        };
        set(context, &mut status, &phase, finding);
    }
    write(context, newest, &status).await
}

/// The new value of a condition.
#[derive(Clone, Copy)]
struct Finding<'f> {
    holds: bool,
    reason: &'f str,
    message: &'f str,
}

fn holds(status: &ControllerConfigStatus, kind: &Phase) -> bool {
    let found = status.conditions.iter().find(|condition| condition.kind == kind.as_str());
    found.is_some_and(|condition| condition.status == "True")
}

/// Sets a condition; its time changes only with its status.
fn set(context: &Context, status: &mut ControllerConfigStatus, kind: &Phase, finding: Finding<'_>) {
    let word = if finding.holds { "True" } else { "False" };
    let mut next = ControllerConfigCondition {
        kind: kind.as_str().to_owned(),
        status: word.to_owned(),
        last_transition_time: Some(Time(context.clock.now())),
        reason: finding.reason.to_owned(),
        message: finding.message.to_owned(),
    };
    let known = status.conditions.iter_mut().find(|condition| condition.kind == next.kind);
    match known {
        Some(known) => {
            if known.status == next.status && known.last_transition_time.is_some() {
                next.last_transition_time.clone_from(&known.last_transition_time);
            }
            *known = next;
        }
        None => status.conditions.push(next),
    }
}

async fn write(
    context: &Context,
    config: &ControllerConfig,
    status: &ControllerConfigStatus,
) -> Result<(), CallError> {
    if config.status.as_ref() == Some(status) {
        return Ok(());
    }
    let api = Api::<ControllerConfig>::all(context.client.clone());
    let name = config.name_any();
    let patched = apply::merge_status(&api, &name, status, Precondition::Any).await?;
    context.caches.controller_configs.learn(patched);
    Ok(())
}
