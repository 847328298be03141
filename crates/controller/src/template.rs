//! The template controller: generates the base configs, and reverts edits of them.
//!
//! observe (ControllerConfig, pull secret, APIServer, MachineConfigs) -> `mco_core::template` (pure)
//! -> create, restore or delete MachineConfigs -> conditions of the ControllerConfig. Base configs
//! that another operator or the user made stay as they are.

mod apply;
mod certificates;
mod pull_secret;
mod ssh;
mod status;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use mco_api::{ControllerConfig, MachineConfig, annotation};
use mco_cluster::{
    Api, CallError, Queue, Shutdown,
    apply::{self as write, Precondition},
    cache::Change,
    error::Rejection,
    health::Work,
    queue::Reconciled,
    report::chain,
};
use mco_core::{
    cluster_settings::SettingsError,
    kubelet::tls_settings,
    takeover::Tenure,
    template::{self, Facts, Profile, PullSecretError, TemplateError},
};
use tracing::{info, warn};

use self::pull_secret::PullSecretWatch;
use crate::{Context, error::ActError, metrics::Action, render::unfinished};

/// The objects that are reconciled together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    BaseConfigs,
    SshKeys,
}

/// A failure to generate or write base configs.
#[derive(Debug, thiserror::Error)]
enum SyncError {
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error(transparent)]
    PullSecret(#[from] PullSecretError),
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("failed to read {kind} {name}")]
    Read { kind: &'static str, name: String, source: CallError },
    #[error(
        "{kind} {name} does not exist; create it, or change spec.pullSecret of the ControllerConfig"
    )]
    Missing { kind: &'static str, name: String },
    #[error(transparent)]
    Act(#[from] ActError),
}

impl SyncError {
    /// Returns true if the failure is over as soon as the cache is up to date.
    fn is_conflict(&self) -> bool {
        let Self::Act(
            ActError::RestoreConfig { source, .. } | ActError::CreateConfig { source, .. },
        ) = self
        else {
            return false;
        };
        let rejection = source.rejection();
        matches!(rejection, Some(Rejection::Conflict | Rejection::AlreadyExists))
    }
}

/// Runs the template controller until shutdown is requested.
pub(crate) async fn run(context: Arc<Context>, shutdown: Shutdown) {
    let queue: Arc<Queue<Item>> = Arc::new(Queue::new());
    let secrets = PullSecretWatch::new(&context, &queue);
    let keys = ssh::Keys::new(&queue);
    subscribe(&context, &queue);
    let caches = &context.caches;
    if !caches.ready(&shutdown).await || !caches.settings.ready(&shutdown).await {
        return;
    }
    queue.add(Item::BaseConfigs);
    context.health.queue("templates", &queue, Work::Short);
    let cleared = AtomicBool::new(false);
    let reconcile_item = |item: Item| {
        let (context, secrets, keys, cleared) = (&context, &secrets, &keys, &cleared);
        async move {
            match item {
                Item::BaseConfigs => reconcile(context, secrets, cleared).await,
                Item::SshKeys => keys.reconcile(context).await,
            }
        }
    };
    tokio::join!(
        queue.run(1, &shutdown, reconcile_item),
        secrets.run(&context, &shutdown),
        keys.run(&context, &shutdown),
    );
}

fn subscribe(context: &Arc<Context>, queue: &Arc<Queue<Item>>) {
    let delay = context.delays.render;
    let again = queue.clone();
    context.caches.controller_configs.on_change(move |_| {
        again.add(Item::BaseConfigs);
        again.add(Item::SshKeys);
    });
    let again = queue.clone();
    context.caches.settings.on_change(move || again.add_debounced(Item::BaseConfigs, delay));
    let again = queue.clone();
    context.caches.pools.on_change(move |change| {
        // The keys for all roles depend on the pools that exist.
        if change.before.is_none() || change.after.is_none() {
            again.add_debounced(Item::SshKeys, delay);
        }
    });
    let again = queue.clone();
    context.caches.configs.on_change(move |change| again_if_ours(&again, &change));
}

fn again_if_ours(queue: &Queue<Item>, change: &Change<'_, MachineConfig>) {
    let Some(config) = change.object() else { return };
    let name = config.metadata.name.as_deref().unwrap_or_default();
    if ssh::is_ssh_config(name) {
        queue.add(Item::SshKeys);
    } else if name.starts_with("00-") || name.starts_with("01-") || apply::is_marked(config) {
        queue.add(Item::BaseConfigs);
    }
}

async fn reconcile(
    context: &Context,
    secrets: &PullSecretWatch,
    cleared: &AtomicBool,
) -> Reconciled {
    let Some(config) = context.own_controller_config() else { return Reconciled::Done };
    // The base configs are the other operator's, and so is a status that needs no change.
    if context.tenure == Tenure::TakenOver && unfinished(&config).is_none() {
        return Reconciled::Done;
    }
    let synced = sync(context, secrets, cleared, &config).await;
    if let Err(error) = &synced {
        if error.is_conflict() {
            return Reconciled::after(error);
        }
        warn!(error = chain(error), "Failed to generate the base configs");
    }
    let outcome = synced.as_ref().map_err(|error| chain(error));
    match status::report(context, &config, outcome).await {
        Err(error) => {
            warn!(error = chain(&error), "Failed to update the status of the ControllerConfig");
            Reconciled::after(&error)
        }
        Ok(()) if synced.is_err() => Reconciled::Retry,
        Ok(()) => {
            let now = context.clock.now();
            context.metrics.record_action(Action::Template, &config.name_any(), now);
            Reconciled::Done
        }
    }
}

/// Generates and writes the base configs; returns the names of those that are kept.
async fn sync(
    context: &Context,
    secrets: &PullSecretWatch,
    cleared: &AtomicBool,
    config: &ControllerConfig,
) -> Result<Vec<String>, SyncError> {
    if context.tenure == Tenure::TakenOver {
        return Ok(apply::base_configs(context));
    }
    let wanted = generate(context, secrets, config).await?;
    if !cleared.load(Ordering::Relaxed) {
        clear_images(context).await?;
        cleared.store(true, Ordering::Relaxed);
    }
    let plan = apply::plan(context, &wanted);
    if plan.is_needed() {
        let begun = status::begin(context, config).await;
        begun.map_err(|source| ActError::ControllerConfigStatus { source })?;
    }
    apply::run(context, &plan).await?;
    Ok(plan.kept)
}

async fn generate(
    context: &Context,
    secrets: &PullSecretWatch,
    config: &ControllerConfig,
) -> Result<Vec<MachineConfig>, SyncError> {
    let profile = config.annotations().get(annotation::PROFILE.name());
    let profile = profile.map_or(Profile::Adopt, |word| Profile::from(&**word));
    let (mut pull_secret, mut tls) = (None, tls_settings(None));
    if profile != Profile::Adopt {
        pull_secret = secrets.read(context, config).await?;
        let api_server = context.caches.settings.get()?.api_server;
        let tls_profile = api_server.and_then(|it| it.spec.tls_security_profile);
        tls = tls_settings(tls_profile.as_ref());
        if let Some(platform) = template::unknown_platform(&config.spec) {
            warn!(platform, "Platform is unknown; generated base configs for platform none");
        }
    }
    let facts = Facts {
        controller_config: config,
        pull_secret: pull_secret.as_deref(),
        tls: &tls,
        build: &context.build,
    };
    Ok(template::base_configs(&context.templates, &profile, &facts)?)
}

/// Clears the images that old releases wrote into generated MachineConfigs.
async fn clear_images(context: &Context) -> Result<(), ActError> {
    let api = Api::<MachineConfig>::all(context.client.clone());
    for config in context.caches.configs.list() {
        let Some(patch) = template::without_images(&config) else { continue };
        let name = config.name_any();
        let patched = write::merge(&api, &name, patch, Precondition::Any).await;
        let patched =
            patched.map_err(|source| ActError::RestoreConfig { name: name.clone(), source })?;
        context.caches.configs.learn(patched);
        info!(config = name, "Cleared the OS images of an old release");
    }
    Ok(())
}

/// Drops the data of a ConfigMap's metadata that is not read.
fn trim_map(map: &mut ConfigMap) {
    map.metadata.managed_fields = None;
    map.binary_data = None;
}
