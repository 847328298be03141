//! Writes the ControllerConfig, which the controller generates base configs from.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kube::ResourceExt as _;
use mco_api::{
    ControllerConfig,
    annotation::{self, Profile},
    condition::ControllerConfigConditionType as Phase,
    controller_config::ControllerConfigSpec,
    label,
};
use mco_cluster::{
    Api, CallError,
    apply::{self, Changes, Precondition},
};
use mco_core::{
    controller_config::{Wanted, merge},
    generated::merge_patch,
    status::operator::ControllerState,
    takeover::Tenure,
};
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tracing::info;

use crate::Context;

/// A failure of the ControllerConfig or of the base configs that the controller derives from it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ControllerConfigError {
    #[error("failed to apply the ControllerConfig")]
    Apply(#[from] CallError),
    #[error("{0}")]
    Failing(String),
    #[error(
        "the ControllerConfig of the other operator was deleted; restore it, or restart the operator \
         to create one"
    )]
    Deleted,
    // Compat: the first part is the reference's text.
    #[error(
        "during waitForControllerConfigToBeCompleted: status for ControllerConfig {} is being reported \
         for {observed}, expecting it for {generation}; look for errors in the log of the controller",
        label::CONTROLLER_CONFIG
    )]
    Incomplete { observed: i64, generation: i64 },
}

/// Longest time that a running controller takes for a new ControllerConfig. Compat: the reference's.
const COMPLETION: Duration = Duration::from_mins(5);

/// The ControllerConfig as the operator last wrote it, and its progress.
#[derive(Default)]
pub(crate) struct Progress {
    /// Spec that was last written, and the one that the API server stored. They differ if the kind
    /// belongs to another owner and lacks members.
    written: Mutex<Option<(ControllerConfigSpec, ControllerConfigSpec)>>,
    /// Generation that the controller has not reconciled, and the time of its first observation.
    stale: Mutex<Option<(i64, Instant)>>,
}

/// Applies the ControllerConfig. Fails if the controller cannot generate base configs from it.
///
/// Without `wanted` its facts are incomplete, and the spec is left as it is. That of another operator is
/// left as it is, too: only annotations that the settings name are written.
pub(crate) async fn apply(
    context: &Context,
    wanted: Option<&Wanted>,
) -> Result<(), ControllerConfigError> {
    let api = Api::<ControllerConfig>::all(context.client.clone());
    let name = label::CONTROLLER_CONFIG;
    let found = match (context.controller_configs.get(name), wanted, context.tenure) {
        (Some(found), ..) => found,
        (None, _, Tenure::TakenOver) => return Err(ControllerConfigError::Deleted),
        // The failure to read the facts is reported.
        (None, None, Tenure::Owner) => return Ok(()),
        (None, Some(wanted), Tenure::Owner) => {
            let made = apply::ensure(&api, name, &new(context, wanted)).await?;
            info!("Created ControllerConfig");
            context.controller_configs.learn_new(made.clone());
            made.into()
        }
    };
    let found = match differences(context, &found, wanted) {
        Some(patch) => {
            let patched = apply::merge(&api, name, patch, Precondition::Any).await?;
            context.controller_configs.learn(patched.clone());
            let merged = wanted.map(|wanted| merged(context, &found, wanted));
            let mut written = lock(&context.progress.written);
            *written = merged.map(|merged| (merged, patched.spec.clone()));
            patched.into()
        }
        None => found,
    };
    let conditions = found.status.iter().flat_map(|status| &status.conditions);
    let failing = Phase::TemplateControllerFailing;
    let mut failing = conditions.filter(|it| it.kind == failing.as_str() && it.status == "True");
    match failing.next() {
        Some(condition) => Err(ControllerConfigError::Failing(condition.message.clone())),
        None => check_completion(context, &found).await,
    }
}

/// Fails if a running controller has not reconciled the ControllerConfig for too long.
async fn check_completion(
    context: &Context,
    found: &ControllerConfig,
) -> Result<(), ControllerConfigError> {
    let generation = found.metadata.generation.unwrap_or_default();
    let observed = found.status.as_ref().map_or(0, |status| status.observed_generation);
    let (controller, _) = context.controller.state().await?;
    let mut stale = lock(&context.progress.stale);
    // A controller that does not run is reported by the condition Available.
    if observed >= generation || controller != ControllerState::Running {
        *stale = None;
        return Ok(());
    }
    let now = Instant::now();
    let since = match *stale {
        Some((known, since)) if known == generation => since,
        Some(_) | None => now,
    };
    *stale = Some((generation, since));
    if now.duration_since(since) < COMPLETION {
        return Ok(());
    }
    Err(ControllerConfigError::Incomplete { observed, generation })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn annotations(context: &Context) -> Vec<(&'static str, String)> {
    let profile = context.config.profile.iter();
    let profile = profile.map(|profile| (annotation::PROFILE.name(), profile.to_string()));
    let join_tokens = context.config.join_tokens.iter();
    let join_tokens = join_tokens.map(|mode| (annotation::JOIN_TOKENS.name(), mode.to_string()));
    let approve = context.config.approve_joins.iter();
    let approve = approve.map(|approve| (annotation::APPROVE_JOINS.name(), approve.to_string()));
    let version = &context.config.build.version;
    let own = match context.tenure {
        Tenure::Owner => vec![
            (annotation::GENERATED_BY_VERSION.name(), version.clone()),
            (annotation::GENERATED_BY_MCO.name(), version.clone()),
            (annotation::RELEASE_IMAGE_VERSION.name(), context.config.release.clone()),
            (annotation::SERVICE_CA_ROTATE.name(), context.facts.rotates().to_string()),
        ],
        Tenure::TakenOver => Vec::new(),
    };
    own.into_iter().chain(profile).chain(join_tokens).chain(approve).collect()
}

fn new(context: &Context, wanted: &Wanted) -> ControllerConfig {
    let mut new = ControllerConfig::new(label::CONTROLLER_CONFIG, wanted.new_spec());
    let annotations = annotations(context).into_iter();
    let annotations = annotations.map(|(key, value)| (key.to_owned(), value));
    new.metadata.annotations = Some(annotations.collect());
    new
}

/// Returns the spec that the ControllerConfig is to have.
fn merged(context: &Context, found: &ControllerConfig, wanted: &Wanted) -> ControllerConfigSpec {
    let annotated = found.annotations().get(annotation::PROFILE.name());
    let is_full = |profile: &Profile| *profile == Profile::Full;
    let is_full = annotated.is_some_and(|word| is_full(&Profile::from(&**word)))
        || context.config.profile.as_ref().is_some_and(is_full);
    merge(&found.spec, wanted, is_full)
}

/// Returns a patch of the operator's members that differ.
fn differences(
    context: &Context,
    found: &ControllerConfig,
    wanted: Option<&Wanted>,
) -> Option<Value> {
    let changed = annotations(context)
        .into_iter()
        .filter(|(key, value)| found.annotations().get(*key) != Some(value));
    let annotations: Changes = changed.map(|(key, value)| (key.to_owned(), Some(value))).collect();
    let spec = wanted.filter(|_| context.tenure == Tenure::Owner).and_then(|wanted| {
        let merged = merged(context, found, wanted);
        let written = lock(&context.progress.written);
        let known =
            written.as_ref().is_some_and(|(to, stored)| *to == merged && *stored == found.spec);
        let patch = merge_patch(&json!(found.spec), &json!(merged)).filter(|_| !known)?;
        let members: Vec<&String> = patch.as_object().into_iter().flat_map(Map::keys).collect();
        info!(?members, "Facts of the cluster changed");
        Some(patch)
    });
    let same = annotations.is_empty() && spec.is_none();
    let spec = spec.unwrap_or_else(|| json!({}));
    (!same).then(|| json!({"metadata": {"annotations": annotations}, "spec": spec}))
}
