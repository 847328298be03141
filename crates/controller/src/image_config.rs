//! Generates the MachineConfigs with registries, mirrors and signatures of the built-in pools.
//!
//! observe (settings of the cluster, base configs, engines of the nodes) -> a MachineConfig for each
//! built-in pool -> create, restore or delete it -> events, a metric, and conditions on ImagePolicies.

mod policy_status;

use std::{sync::Arc, time::Duration};

use kube::ResourceExt as _;
use mco_api::{MachineConfig, MachineConfigPool, annotation, label, openshift::Image};
use mco_cluster::{Queue, Shutdown, health::Work, queue::Reconciled, report::chain};
use mco_core::{
    cluster_settings::ClusterSettings,
    image_config::{
        BaseFiles, EmptyConfig, ImageConfig, ImageConfigError, POLICY_JSON, REGISTRIES_CONF,
        config_name,
    },
    takeover::Tenure,
};
use tracing::{debug, info, warn};

use crate::{
    Context, container_engine,
    error::ActError,
    generated::{self, Applied},
    lasting_events::LastingEvents,
    metrics::Action,
    render,
};

/// Time in which several changes gather.
const DELAY: Duration = Duration::from_millis(50);

/// The only key of the queue: all settings are applied together.
const SETTINGS: &str = "settings";

struct ImageController {
    context: Arc<Context>,
    events: LastingEvents,
}

/// A failure to apply the settings.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// The settings are wrong until they change.
    #[error(transparent)]
    Settings(#[from] mco_core::cluster_settings::SettingsError),
    /// The settings are wrong until they change.
    #[error(transparent)]
    Images(#[from] ImageConfigError),
    #[error(transparent)]
    Act(#[from] ActError),
}

/// Runs the controller until shutdown is requested.
pub(crate) async fn run(context: Arc<Context>, shutdown: Shutdown) {
    let queue: Arc<Queue<&'static str>> = Arc::new(Queue::new());
    subscribe(&context, &queue);
    if !context.caches.ready(&shutdown).await || !context.caches.settings.ready(&shutdown).await {
        return;
    }
    queue.add(SETTINGS);
    let events = LastingEvents::new(context.reporter("imageconfig"));
    let controller = ImageController { context: context.clone(), events };
    let controller = &controller;
    context.health.queue("image-config", &queue, Work::Short);
    queue.run(1, &shutdown, |_| async move { controller.reconcile().await }).await;
}

fn subscribe(context: &Arc<Context>, queue: &Arc<Queue<&'static str>>) {
    let enqueue = {
        let queue = queue.clone();
        move || queue.add_after(SETTINGS, DELAY)
    };
    context.caches.settings.on_change(enqueue.clone());
    let pools = enqueue.clone();
    context.caches.pools.on_change(move |change| {
        let relevant = |pool: Option<&Arc<MachineConfigPool>>| {
            pool.map(|pool| {
                let spec = &pool.spec;
                let (labels, nodes) = (pool.metadata.labels.clone(), spec.node_selector.clone());
                (labels, nodes, spec.machine_config_selector.clone())
            })
        };
        if relevant(change.before) != relevant(change.after) {
            pools();
        }
    });
    let configs = enqueue.clone();
    context.caches.configs.on_change(move |change| {
        let name = change.object().map(|config| config.name_any()).unwrap_or_default();
        if container_engine::is_base_config(&name) || name.ends_with("-generated-registries") {
            configs();
        }
    });
    let controller_configs = enqueue.clone();
    context.caches.controller_configs.on_change(move |_| controller_configs());
    context.caches.nodes.on_change(move |change| {
        if container_engine::is_affected(&change) {
            enqueue();
        }
    });
}

/// Returns true if a controller generated the MachineConfig.
fn is_generated(config: &MachineConfig) -> bool {
    annotation::GENERATED_BY_CONTROLLER_VERSION.is_present(config.annotations())
}

impl ImageController {
    async fn reconcile(&self) -> Reconciled {
        let result = self.apply().await;
        self.context.metrics.set_image_config_error(result.is_err());
        let Err(failure) = result else { return Reconciled::Done };
        let text = chain(&failure);
        // Compat: the text is that of the reference's log.
        warn!(error = text, "Error syncing image config openshift-config");
        match failure {
            Failure::Act(_) => Reconciled::Retry,
            Failure::Settings(_) | Failure::Images(_) => {
                for pool in self.built_in_pools() {
                    self.events.publish(&pool, "ImageConfigFailed", &text).await;
                }
                Reconciled::Done
            }
        }
    }

    fn built_in_pools(&self) -> Vec<Arc<MachineConfigPool>> {
        let mut pools = self.context.caches.pools.list();
        pools.retain(|pool| {
            pool.labels().contains_key(label::BUILT_IN_POOL)
                && pool.metadata.deletion_timestamp.is_none()
        });
        pools
    }

    async fn apply(&self) -> Result<(), Failure> {
        let context = &self.context;
        let settings = context.caches.settings.get()?;
        let is_openshift = context.caches.settings.serves::<Image>();
        // Compat: without its Image, an OpenShift cluster is left as it is.
        if is_openshift && settings.image.is_none() {
            return Ok(());
        }
        let Some(controller_config) = context.own_controller_config() else { return Ok(()) };
        if let Some(why) = render::unfinished(&controller_config) {
            debug!(why, "Reconciling image settings postponed");
            return Ok(());
        }
        let release = Some(controller_config.spec.release_image.clone());
        let release = release.filter(|image| !image.is_empty());
        let images = ImageConfig::read(&settings, release.as_deref())?;
        policy_status::report(context, &images, &settings).await?;
        let empty = if is_openshift { EmptyConfig::Kept } else { EmptyConfig::LeftOut };
        for pool in self.built_in_pools() {
            self.apply_pool(&pool, &images, &settings, empty).await?;
        }
        Ok(())
    }

    async fn apply_pool(
        &self,
        pool: &MachineConfigPool,
        images: &ImageConfig,
        settings: &ClusterSettings,
        empty: EmptyConfig,
    ) -> Result<(), Failure> {
        let (context, name) = (&self.context, pool.name_any());
        let is_absent = context.caches.configs.get(&config_name(&name)).is_none();
        // A MachineConfig without settings adds nothing to the configs of another operator.
        let empty = match context.tenure {
            Tenure::TakenOver if is_absent => EmptyConfig::LeftOut,
            Tenure::Owner | Tenure::TakenOver => empty,
        };
        let base = container_engine::base_config(context, &name);
        let text = |path: &str| container_engine::text_of(base.as_deref(), path);
        let (registries, policy) = (text(REGISTRIES_CONF), text(POLICY_JSON));
        let base = BaseFiles { registries: registries.as_deref(), policy: policy.as_deref() };
        // Custom pools have the MachineConfig of their role, too.
        let pools = container_engine::pools_with_role(context, &name);
        let engines = container_engine::engines(context, pools.iter().map(String::as_str));
        let image = settings.image.as_ref();
        let plan = images.plan(&name, base, engines, empty, image, &context.build)?;
        if let Some(config) = &plan.config {
            if generated::apply(context, config).await? == Applied::Written {
                info!(pool = name, "Applied registries and image policies");
                let now = context.clock.now();
                context.count_pool(&name, |metrics| {
                    metrics.record_action(Action::ImageConfig, &name, now);
                });
            }
        } else {
            let old = config_name(&name);
            // A MachineConfig that a user gave this name stays.
            let found = context.caches.configs.get(&old);
            if found.is_some_and(|config| is_generated(&config)) {
                generated::delete(context, &old).await?;
            }
        }
        let entries: Vec<String> = plan.without_effect.iter().map(ToString::to_string).collect();
        let text = if entries.is_empty() {
            String::new()
        } else {
            format!("settings without effect on nodes with containerd: {}", entries.join("; "))
        };
        self.events.publish(pool, "ImageConfigWithoutEffect", &text).await;
        let warning = images.lists().warning().unwrap_or_default();
        self.events.publish(pool, "PayloadRegistryNotBlocked", &warning).await;
        self.events.publish(pool, "ImageConfigFailed", "").await;
        Ok(())
    }
}
