//! Keeps the MachineConfiguration `cluster`: creates it, and publishes the policies in effect in its
//! status, from which daemons take them.
//!
//! That of another operator is never created, and its status is written only where nodes would wait for
//! it: policies of an older generation than the administrator's.

mod stamp;

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Client, ResourceExt as _,
    api::{Patch, PatchParams},
};
use mco_api::{MachineConfiguration, annotation, controller_config::PlatformType, label};
use mco_cluster::{
    Api, Cache, CallError, Health, Queue, Shutdown,
    apply::{self, Changes, Precondition},
    cache::trim,
    error::Rejection,
    telemetry,
    watch::Config as WatchConfig,
};
use mco_core::{
    machine_configuration::{self, Facts, Provisioning},
    status::operator::blocking_boot_images,
    takeover::Tenure,
};
use serde_json::json;
use tokio::task::JoinSet;
use tracing::{info, warn};

use crate::{Context, platform};

/// Field manager of the object.
const MANAGER: &str = "machine-config-operator";

/// Attempts to write the status while others write the object.
const ATTEMPTS: u32 = 5;

/// A failure of the stage.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MachineConfigurationError {
    #[error("failed to create MachineConfiguration {}", label::CLUSTER)]
    Create(#[source] CallError),
    #[error("failed to update MachineConfiguration {}", label::CLUSTER)]
    Update(#[source] CallError),
    #[error("MachineConfiguration cluster cannot be decoded: {0}")]
    Unreadable(String),
    #[error(
        "invalid entries in spec.nodeDisruptionPolicy of MachineConfiguration {}, which have no effect \
         until they are corrected: {}",
        label::CLUSTER,
        .0.join("; ")
    )]
    Invalid(Vec<String>),
    // Compat: the text of the reference (pkg/operator/sync.go).
    #[error("bootimage update failed: {0}")]
    BootImages(String),
}

/// The MachineConfiguration, and the ConfigMap with the boot images of the release.
pub(crate) struct MachineConfigurations {
    objects: Arc<Cache<MachineConfiguration>>,
    boot_images: Arc<Cache<ConfigMap>>,
}

impl MachineConfigurations {
    pub(crate) fn new() -> Self {
        Self {
            objects: Arc::new(Cache::new(trim::metadata)),
            boot_images: Arc::new(Cache::new(stamp::trim)),
        }
    }

    /// Adds to `queue` when an object changes.
    pub(crate) fn subscribe(&self, queue: &Arc<Queue<()>>) {
        let enqueue = queue.clone();
        self.objects.on_change(move |_| enqueue.add(()));
        let enqueue = queue.clone();
        self.objects.on_unreadable(move |_| enqueue.add(()));
        let enqueue = queue.clone();
        self.boot_images.on_change(move |_| enqueue.add(()));
    }

    /// Starts the watches.
    pub(crate) fn watch(
        &self,
        client: &Client,
        health: &Health,
        stop: &Shutdown,
        tasks: &mut JoinSet<()>,
    ) {
        let all = || WatchConfig::default().health(health);
        let (cache, stopped) = (self.objects.clone(), stop.clone());
        let (api, config) = (Api::all(client.clone()), all().named(label::CLUSTER));
        tasks.spawn(async move { cache.run(api, config, &stopped).await });
        let (cache, stop) = (self.boot_images.clone(), stop.clone());
        let api = Api::own(client.clone());
        let config = all().named(stamp::CONFIG_MAP);
        tasks.spawn(async move { cache.run(api, config, &stop).await });
    }

    /// Waits until all objects were listed.
    pub(crate) async fn ready(&self) {
        tokio::join!(self.objects.ready(), self.boot_images.ready());
    }

    /// Returns the reason for which boot images block upgrades.
    pub(crate) fn blocking_boot_images(&self) -> Option<String> {
        blocking_boot_images(&*self.objects.get(label::CLUSTER)?)
    }

    /// Returns the verbosity of all processes.
    pub(crate) fn verbosity(&self) -> u8 {
        machine_configuration::verbosity(self.objects.get(label::CLUSTER).as_deref())
    }
}

/// Creates the MachineConfiguration if it does not exist, and publishes its status. Fails if the
/// administrator has to correct something.
pub(crate) async fn apply(context: &Context) -> Result<(), MachineConfigurationError> {
    let cache = &context.machine_configurations.objects;
    if let Some(unreadable) = cache.unreadable().first() {
        return Err(MachineConfigurationError::Unreadable(unreadable.fault.clone()));
    }
    let found = match (cache.get(label::CLUSTER), context.tenure) {
        (Some(found), _) => found,
        (None, Tenure::Owner) => create(context).await?,
        (None, Tenure::TakenOver) => return Ok(()),
    };
    let found = match context.tenure {
        Tenure::Owner => {
            stamp::apply(context, &context.machine_configurations.boot_images).await;
            let facts = facts(context).await;
            publish(context, found, facts.as_ref()).await?
        }
        Tenure::TakenOver if machine_configuration::is_outdated(&found) => {
            publish(context, found, None).await?
        }
        Tenure::TakenOver => found,
    };
    let policy = found.spec.node_disruption_policy.clone().unwrap_or_default();
    let faults = machine_configuration::faults(&policy);
    if !faults.is_empty() {
        return Err(MachineConfigurationError::Invalid(faults));
    }
    match machine_configuration::boot_image_failure(&found) {
        Some(reason) => Err(MachineConfigurationError::BootImages(reason.to_owned())),
        None => Ok(()),
    }
}

/// Applies the log level of the MachineConfiguration to this process and to those that it deploys.
pub(crate) fn apply_log_level(context: &Context) {
    let verbosity = context.machine_configurations.verbosity();
    context.config.log_level.set(telemetry::level_of(verbosity));
    if let Some(operands) = &context.operands {
        operands.set_verbosity(verbosity);
    }
}

async fn create(context: &Context) -> Result<Arc<MachineConfiguration>, MachineConfigurationError> {
    let api = Api::<MachineConfiguration>::all(context.client.clone());
    let wanted = json!({
        "apiVersion": "operator.openshift.io/v1",
        "kind": "MachineConfiguration",
        "metadata": {"name": label::CLUSTER},
        "spec": {"managementState": "Managed"},
    });
    let params = PatchParams::apply(MANAGER);
    let made = api.patch(label::CLUSTER, &params, &Patch::Apply(wanted)).await;
    let made = made.map_err(|error| MachineConfigurationError::Create(error.into()))?;
    info!("Created MachineConfiguration");
    context.machine_configurations.objects.learn_new(made.clone());
    Ok(made.into())
}

async fn facts(context: &Context) -> Option<Facts> {
    let facts = context.platform.facts(Provisioning::Release)?;
    // Only bare metal has the object.
    if facts.platform != PlatformType::BareMetal {
        return Some(facts);
    }
    let provisioning = platform::provisioning(&context.client).await;
    Some(Facts { provisioning, ..facts })
}

/// Writes the status if it differs. Reads the object again if others wrote it meanwhile.
async fn publish(
    context: &Context,
    found: Arc<MachineConfiguration>,
    facts: Option<&Facts>,
) -> Result<Arc<MachineConfiguration>, MachineConfigurationError> {
    let api = Api::<MachineConfiguration>::all(context.client.clone());
    let mut found = found;
    for attempt in 1.. {
        let status = machine_configuration::status(&found, facts);
        let Some(patch) = machine_configuration::status_patch(&found, &status) else {
            return Ok(found);
        };
        let opts_in = machine_configuration::opts_in(&found, &status);
        match write(context, &api, &found, patch, opts_in).await {
            Ok(stored) => {
                info!(generation = found.metadata.generation, "Published the MachineConfiguration");
                context.machine_configurations.objects.learn(stored.clone());
                return Ok(stored.into());
            }
            Err(error) if error.rejection() == Some(Rejection::Conflict) && attempt < ATTEMPTS => {
                let read = api.get(label::CLUSTER).await;
                found =
                    read.map_err(|error| MachineConfigurationError::Update(error.into()))?.into();
            }
            Err(error) => return Err(MachineConfigurationError::Update(error)),
        }
    }
    Ok(found)
}

async fn write(
    context: &Context,
    api: &Api<MachineConfiguration>,
    found: &MachineConfiguration,
    patch: serde_json::Value,
    opts_in: bool,
) -> Result<MachineConfiguration, CallError> {
    let mut version = found.resource_version().unwrap_or_default();
    if opts_in {
        let key = annotation::BOOT_IMAGE_OPTED_IN_AT.name().to_owned();
        let changes: Changes = [(key, Some(context.config.clock.now().to_string()))].into();
        let members = json!({"metadata": {"annotations": changes}});
        let guard = Precondition::Unchanged(&version);
        let annotated = apply::merge(api, label::CLUSTER, members, guard).await?;
        warn!("Boot images of all MachineSets are managed by default from now on");
        version = annotated.resource_version().unwrap_or_default();
    }
    apply::merge_status(api, label::CLUSTER, patch, Precondition::Unchanged(&version)).await
}
