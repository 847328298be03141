//! The controller process: renders the config of each pool, rolls it out to the pool's nodes and
//! drains them.
//!
//! One module per controller, all with the same shape: observe (shared caches), decide (a pure
//! function of `mco_core`), act (the smallest write that does it), report. The controllers share no
//! state but the caches, the `Enqueuer` and the API server.

pub mod approval;
mod approve_joins;
pub mod bootstrap;
mod caches;
mod certificate;
mod cluster_settings;
mod condition;
mod container_engine;
mod container_runtime_config;
mod control_plane;
mod drain;
mod enqueue;
mod error;
mod generated;
mod image;
mod image_config;
mod kubelet_config;
mod lasting_events;
mod machine_config_node;
mod metrics;
mod new_node;
mod node;
mod node_patch;
mod pinned;
pub mod remote;
mod render;
mod rollout;
mod scheduler;
mod skew_enforcement;
mod template;
mod undecodable;
mod unsupported;
mod unused_configs;

use std::{sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Client, ResourceExt as _};
use mco_api::{ControllerConfig, annotation, label};
use mco_cluster::{
    Api, Clock, Health, NoteCount, Reporter, Shutdown,
    health::Work,
    lease::{Candidate, Fence, LeadershipEnd, Timings},
    permission::{self, Observed},
};
use mco_core::{
    drain::EvictionTiming,
    render::{Build, check_skew},
    takeover::{self, BASE_CONFIGS, Facts, Order, Permit, Refusal, Tenure},
    template::TemplateTree,
};
use tokio::task::JoinSet;
use tracing::{error, info};

use self::{caches::Caches, enqueue::Enqueuer};
pub use self::{certificate::inspect_certificate, metrics::Metrics};

/// Name of the Lease, and of the process.
pub const NAME: &str = "machine-config-controller";

/// Settings of the process.
#[derive(Clone, Debug)]
pub struct Config {
    /// Version of this build. The controller does not render base configs of other builds.
    pub build: Build,
    /// Templates of the base configs.
    pub templates: Arc<TemplateTree>,
    /// Debounce delays of the controllers.
    pub delays: Delays,
    /// Timing of drain attempts.
    pub pace: EvictionTiming,
    /// True to approve certificate requests of new nodes, whatever the ControllerConfig says.
    pub approve_joins: bool,
    /// Leader election; `None` if no other controller process can run.
    pub leader: Option<Leader>,
    /// Order about a cluster that another operator runs.
    pub order: Order,
    /// Source of the current time.
    pub clock: Clock,
    /// Metrics of the process.
    pub metrics: Metrics,
    /// Number of published events.
    pub notes: NoteCount,
    /// Health of the process.
    pub health: Health,
}

/// Delays that let several changes gather before a controller reconciles them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delays {
    /// Before rendering a pool: MachineConfigs often arrive several at a time.
    pub render: Duration,
    /// Before choosing the nodes of a pool and computing its status.
    pub node: Duration,
    /// Before draining a node.
    pub drain: Duration,
    /// Quiet time without a change of a node before the controller updates its MachineConfigNode
    /// and its taints; at most ten times as long in total. States that pass within the delay are
    /// not worth a write.
    pub node_status: Duration,
    /// Quiet time in which no node of the pool starts an update, before the nodes that wait get a
    /// taint and a condition; at most twelve times as long in total. While nodes update within
    /// seconds, the controller would have to remove both at once.
    pub waiting_status: Duration,
    /// Minimum time between two writes of a pool's status that differ only in their counters.
    pub status: Duration,
    /// Before deleting rendered configs that are not in use.
    pub prune: Duration,
}

impl Delays {
    /// Long enough for `kubectl apply -f DIR` to complete, short enough to go unnoticed.
    pub const SHORT: Self = Self {
        render: Duration::from_millis(150),
        node: Duration::from_millis(50),
        drain: Duration::ZERO,
        node_status: Duration::from_secs(2),
        waiting_status: Duration::from_secs(5),
        status: Duration::from_secs(1),
        prune: Duration::from_mins(1),
    };
    /// The delays of the reference.
    pub const REFERENCE: Self = Self {
        render: Duration::from_secs(5),
        node: Duration::from_secs(5),
        drain: Duration::from_secs(5),
        node_status: Duration::from_secs(5),
        waiting_status: Duration::ZERO,
        status: Duration::from_secs(5),
        prune: Duration::from_mins(1),
    };
}

/// Leader election settings.
#[derive(Clone, Debug)]
pub struct Leader {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Identity of this process in the Lease.
    pub identity: String,
    /// Lease duration and renewal intervals.
    pub timings: Timings,
}

impl Config {
    /// Returns the settings of a process without leader election whose metrics are not exposed.
    #[must_use]
    pub fn new(build: Build) -> Self {
        Self {
            build,
            templates: Arc::new(TemplateTree::built_in()),
            delays: Delays::SHORT,
            pace: EvictionTiming::REFERENCE,
            approve_joins: false,
            leader: None,
            order: Order::HandsOff,
            clock: Clock::System,
            metrics: Metrics::default(),
            notes: NoteCount::default(),
            health: Health::default(),
        }
    }
}

/// Runs the controllers until shutdown is requested or another process takes the Lease.
///
/// While another operator runs the cluster, nothing is changed and no Lease is acquired, unless the
/// settings order a takeover.
pub async fn run(config: Config, client: Client, shutdown: Shutdown) -> LeadershipEnd {
    let waiting = permission::wait(
        &client,
        &BASE_CONFIGS,
        |found| takeover::is_marked(found, &config.build),
        |observed| admit(observed, &config),
        &config.health,
        &shutdown,
    );
    let Some(permit) = waiting.await else { return LeadershipEnd::Released };
    let Some(leader) = config.leader.clone() else {
        run_controllers(config, permit, client, shutdown).await;
        return LeadershipEnd::Released;
    };
    let candidate = Candidate {
        api: Api::namespaced(client.clone(), &leader.namespace),
        name: NAME.to_owned(),
        identity: leader.identity,
        timings: leader.timings,
        clock: config.clock,
        fence: Fence::default(),
    };
    let reader = client.clone();
    let client = candidate.fence.guard(client);
    let work = |stop| async move {
        // Another operator may have begun while this process waited for the Lease.
        if let Some(permit) = observe_and_admit(&reader, &config).await {
            run_controllers(config, permit, client, stop).await;
        }
    };
    candidate.lead(&shutdown, work).await
}

/// Decides if this process may change the cluster.
fn admit(observed: &Observed, config: &Config) -> Result<Permit, Refusal> {
    let facts = Facts {
        controller_config: observed.controller_config.as_ref(),
        base_configs: &observed.base_configs,
    };
    takeover::admit(facts, &config.build, &config.order)
}

/// Observes the cluster and decides if this process may change it.
async fn observe_and_admit(client: &Client, config: &Config) -> Option<Permit> {
    let suffices = |found: Option<&ObjectMeta>| takeover::is_marked(found, &config.build);
    let admit = |observed: &Observed| admit(observed, config);
    permission::decide_again(client, &BASE_CONFIGS, suffices, admit).await
}

/// State that the controllers share.
struct Context {
    client: Client,
    caches: Caches,
    build: Build,
    /// The way in which this operator runs the cluster.
    tenure: Tenure,
    templates: Arc<TemplateTree>,
    delays: Delays,
    pace: EvictionTiming,
    clock: Clock,
    metrics: Metrics,
    notes: NoteCount,
    health: Health,
    /// The node index, and the queues of pools and nodes to reconcile.
    enqueuer: Enqueuer,
    /// Rendered configs that this process generated or verified.
    rendered: render::RenderedConfigs,
    /// The pool of `master` and `arbiter` that sets desired configs now.
    control_plane_turn: control_plane::Turn,
}

impl Context {
    /// Updates a metric of a node before the controller publishes the change.
    ///
    /// Metrics of a deleted node are removed, even if the node was deleted in the meantime: the
    /// cache drops a node before its metrics are removed, so either this function notices, or the
    /// removal comes later.
    fn count_node(&self, node: &str, count: impl FnOnce(&Metrics)) {
        count(&self.metrics);
        if self.caches.nodes.get(node).is_none() {
            self.metrics.remove_node(node);
        }
    }

    /// Updates a metric of a pool, like [`Self::count_node`].
    fn count_pool(&self, pool: &str, count: impl FnOnce(&Metrics)) {
        count(&self.metrics);
        if self.caches.pools.get(pool).is_none() {
            self.metrics.remove_pool(pool);
        }
    }

    /// Returns the ControllerConfig if it belongs to this build. Another build, or another operator,
    /// generates MachineConfigs of its own.
    fn own_controller_config(&self) -> Option<Arc<ControllerConfig>> {
        let config = self.caches.controller_config()?;
        let by = config.annotations().get(annotation::GENERATED_BY_VERSION.name());
        match check_skew(&self.build, by.map(String::as_str), &[]) {
            Ok(()) => Some(config),
            Err(skew) => {
                info!(%skew, "Left the generated MachineConfigs to another build");
                None
            }
        }
    }

    fn reporter(&self, component: &str) -> Reporter {
        let component = format!("machineconfigcontroller-{component}");
        Reporter::with_clock(self.client.clone(), &component, self.notes.clone(), self.clock)
    }
}

async fn run_controllers(config: Config, permit: Permit, client: Client, shutdown: Shutdown) {
    let Permit { build, tenure } = permit;
    if tenure == Tenure::TakenOver {
        info!(build.version, build.hash, "Took over the cluster of another operator");
    }
    let Config {
        templates,
        delays,
        pace,
        approve_joins,
        clock,
        metrics,
        notes,
        health,
        build: _,
        leader: _,
        order: _,
    } = config;
    let caches = Caches::new(&client);
    let context = Arc::new(Context {
        client,
        caches,
        build,
        tenure,
        templates,
        delays,
        pace,
        clock,
        metrics,
        notes,
        health,
        enqueuer: Enqueuer::default(),
        rendered: render::RenderedConfigs::default(),
        control_plane_turn: control_plane::Turn::default(),
    });
    // Dropping this future on loss of the Lease cancels all tasks at once.
    let mut tasks = JoinSet::new();
    enqueue::subscribe(&context);
    skew_enforcement::subscribe(&context);
    context.caches.start(&context.client, &context.health, &shutdown, &mut tasks);
    context.health.queue("pools", &context.enqueuer.pools, Work::Short);
    context.health.queue("nodes", &context.enqueuer.nodes, Work::Short);
    tasks.spawn(undecodable::run(context.clone(), shutdown.clone()));
    tasks.spawn(template::run(context.clone(), shutdown.clone()));
    tasks.spawn(render::run(context.clone(), shutdown.clone()));
    tasks.spawn(node::run(context.clone(), shutdown.clone()));
    tasks.spawn(machine_config_node::run(context.clone(), shutdown.clone()));
    tasks.spawn(unused_configs::run(context.clone(), shutdown.clone()));
    tasks.spawn(certificate::run(context.clone(), shutdown.clone()));
    tasks.spawn(pinned::run(context.clone(), shutdown.clone()));
    tasks.spawn(container_runtime_config::run(context.clone(), shutdown.clone()));
    tasks.spawn(image_config::run(context.clone(), shutdown.clone()));
    tasks.spawn(kubelet_config::run(context.clone(), shutdown.clone()));
    tasks.spawn(unsupported::run(context.clone(), shutdown.clone()));
    tasks.spawn(new_node::run(context.clone(), shutdown.clone()));
    tasks.spawn(approve_joins::run(context.clone(), approve_joins, shutdown.clone()));
    tasks.spawn(drain::run(context, shutdown.clone()));
    while let Some(ended) = tasks.join_next().await {
        if let Err(failure) = ended {
            error!(%failure, "A controller task panicked or was cancelled");
            shutdown.request();
        }
    }
}

/// Default namespace of the Lease.
pub const DEFAULT_LEASE_NAMESPACE: &str = label::NAMESPACE;
