//! The operator process: installs the objects that the other processes need, and reports the state
//! of the cluster.
//!
//! A reconcile runs steps in a fixed order. Each step is idempotent. The first step that fails ends
//! the reconcile; the ClusterOperator names the step and the cause, and the reconcile is retried.

mod cluster_operator;
mod definitions;
mod install;
mod join_objects;
mod lease;
mod root_ca;
mod steps;

use std::{future::Future, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use mco_api::{
    ClusterOperator, ControllerConfig, MachineConfigPool,
    annotation::{JoinTokens, Profile},
    label,
};
use mco_cluster::{
    Api, Cache, Clock, Health, NoteCount, Queue, Reporter, Shutdown,
    cache::trim,
    health::Work,
    lease::{Candidate, Fence, LeadershipEnd, Timings},
    queue::Reconciled,
    report::chain,
    watch::Config as WatchConfig,
};
use mco_core::render::Build;
use tokio::task::JoinSet;
use tracing::{error, warn};

use self::{definitions::Definitions, lease::ControllerLease, steps::StepError};

pub use self::{
    install::{InstallError, install},
    root_ca::RootCa,
    steps::built_in_pools,
};

/// Name of the Lease and of the ClusterOperator.
pub const NAME: &str = label::CLUSTER_OPERATOR;

/// Longest time between two reconciles. The CA file of a kubeconfig is read again in each.
const RESYNC: Duration = Duration::from_secs(30);

/// Settings of the process.
#[derive(Clone, Debug)]
pub struct Config {
    /// Version of this build; the controller must be of the same one.
    pub build: Build,
    /// Release that the cluster is updated to.
    pub release: String,
    /// Image that this process runs from.
    pub image: String,
    /// OS image that base configs refer to.
    pub os_image: String,
    /// Extensions image that fits the OS image.
    pub os_extensions_image: String,
    /// Contents of base configs; `None` leaves the annotation of the ControllerConfig alone.
    pub profile: Option<Profile>,
    /// Authentication of new machines; `None` leaves the annotation of the ControllerConfig alone.
    pub join_tokens: Option<JoinTokens>,
    /// True if the controller approves certificate requests of new nodes; `None` leaves the annotation
    /// of the ControllerConfig alone.
    pub approve_joins: Option<bool>,
    /// Source of the CA certificates of the API server.
    pub root_ca: RootCa,
    /// Leader election; `None` if no other operator process can run.
    pub leader: Option<Leader>,
    /// Source of the current time.
    pub clock: Clock,
    /// Number of published events.
    pub notes: NoteCount,
    /// Health of the process.
    pub health: Health,
}

/// Leader election settings.
#[derive(Clone, Debug)]
pub struct Leader {
    /// Identity of this process in the Lease.
    pub identity: String,
    /// Lease duration and renewal intervals.
    pub timings: Timings,
}

impl Config {
    /// Returns the settings of a process without leader election, for a cluster without OS images.
    #[must_use]
    pub fn new(build: Build, release: &str) -> Self {
        Self {
            build,
            release: release.to_owned(),
            image: String::new(),
            os_image: String::new(),
            os_extensions_image: String::new(),
            profile: None,
            join_tokens: None,
            approve_joins: None,
            root_ca: RootCa::default(),
            leader: None,
            clock: Clock::System,
            notes: NoteCount::default(),
            health: Health::default(),
        }
    }
}

/// Runs the operator until shutdown is requested or another process takes the Lease.
pub async fn run(config: Config, client: Client, shutdown: Shutdown) -> LeadershipEnd {
    let Some(leader) = config.leader.clone() else {
        run_operator(config, client, shutdown).await;
        return LeadershipEnd::Released;
    };
    let candidate = Candidate {
        api: Api::namespaced(client.clone(), label::NAMESPACE),
        name: NAME.to_owned(),
        identity: leader.identity,
        timings: leader.timings,
        clock: config.clock,
        fence: Fence::default(),
    };
    // The Lease is in the operator's own namespace, which may not exist yet.
    if !retry_until_done(&shutdown, || install::create_namespace(&client)).await {
        return LeadershipEnd::Released;
    }
    let client = candidate.fence.guard(client);
    candidate.lead(&shutdown, |stop| run_operator(config, client, stop)).await
}

/// State of a reconcile.
struct Context {
    config: Config,
    client: Client,
    reporter: Reporter,
    pools: Arc<Cache<MachineConfigPool>>,
    controller_configs: Arc<Cache<ControllerConfig>>,
    operators: Arc<Cache<ClusterOperator>>,
    /// CA certificates of the API server.
    bundles: Arc<Cache<ConfigMap>>,
    definitions: Definitions,
    controller: Arc<ControllerLease>,
    join_objects: join_objects::JoinObjects,
}

async fn run_operator(config: Config, client: Client, shutdown: Shutdown) {
    let reporter = Reporter::with_clock(
        client.clone(),
        "machineconfigoperator",
        config.notes.clone(),
        config.clock,
    );
    let context = Arc::new(Context {
        controller: Arc::new(ControllerLease::new(&client)),
        config,
        client,
        reporter,
        pools: Arc::new(Cache::new(trim::metadata)),
        controller_configs: Arc::new(Cache::new(trim::metadata)),
        operators: Arc::new(Cache::new(trim::metadata)),
        bundles: Arc::new(Cache::new(trim::metadata)),
        definitions: Definitions::new(),
        join_objects: join_objects::JoinObjects::default(),
    });
    // The kinds must exist before they can be watched.
    let install = || async {
        install::create_namespace(&context.client).await?;
        context.definitions.install(&context.client).await
    };
    if !retry_until_done(&shutdown, install).await {
        return;
    }
    let queue: Arc<Queue<()>> = Arc::new(Queue::new());
    context.config.health.queue("operator", &queue, Work::Short);
    subscribe(&context, &queue);
    let mut tasks = JoinSet::new();
    watch(&context, &shutdown, &mut tasks);
    tasks.spawn(run_reconciles(context, queue, shutdown.clone()));
    while let Some(ended) = tasks.join_next().await {
        if let Err(failure) = ended {
            error!(%failure, "An operator task panicked or was cancelled");
            shutdown.request();
        }
    }
}

/// Retries `step` until it succeeds. Returns false if shutdown was requested before.
async fn retry_until_done<F>(shutdown: &Shutdown, step: impl Fn() -> F) -> bool
where
    F: Future<Output = Result<(), InstallError>>,
{
    let (queue, done) = (Queue::new(), Shutdown::new());
    queue.add(());
    let retries = queue.run(1, &done, |()| async {
        match step().await {
            Ok(()) => {
                done.request();
                Reconciled::Done
            }
            Err(error) => {
                warn!(error = chain(&error), "Failed to prepare the cluster");
                Reconciled::Retry
            }
        }
    });
    tokio::select! {
        () = shutdown.requested() => false,
        () = retries => true,
    }
}

fn subscribe(context: &Arc<Context>, queue: &Arc<Queue<()>>) {
    let enqueue = queue.clone();
    context.pools.on_change(move |_| enqueue.add(()));
    let enqueue = queue.clone();
    context.controller_configs.on_change(move |_| enqueue.add(()));
    let enqueue = queue.clone();
    context.operators.on_change(move |_| enqueue.add(()));
    let enqueue = queue.clone();
    context.bundles.on_change(move |_| enqueue.add(()));
    context.definitions.subscribe(queue);
    context.controller.subscribe(queue);
}

fn watch(context: &Arc<Context>, shutdown: &Shutdown, tasks: &mut JoinSet<()>) {
    let all = || WatchConfig::default().health(&context.config.health);
    macro_rules! watch {
        ($cache:expr, $config:expr) => {
            watch!($cache, Api::all(context.client.clone()), $config)
        };
        ($cache:expr, $api:expr, $config:expr) => {{
            let (cache, stop) = ($cache.clone(), shutdown.clone());
            let (api, config) = ($api, $config);
            tasks.spawn(async move { cache.run(api, config, &stop).await });
        }};
    }
    watch!(context.pools, all());
    watch!(context.controller_configs, all());
    watch!(context.operators, all().named(label::CLUSTER_OPERATOR));
    let bundles = Api::namespaced(context.client.clone(), label::NAMESPACE);
    watch!(context.bundles, bundles, all().named(root_ca::CONFIG_MAP));
    let (watched, stop, config) = (context.clone(), shutdown.clone(), all());
    tasks.spawn(async move { watched.definitions.run(&watched.client, config, &stop).await });
    let (lease, stop, config) = (context.controller.clone(), shutdown.clone(), all());
    tasks.spawn(async move { lease.run(config, &stop).await });
}

async fn run_reconciles(context: Arc<Context>, queue: Arc<Queue<()>>, shutdown: Shutdown) {
    let ready = async {
        tokio::join!(
            context.pools.ready(),
            context.controller_configs.ready(),
            context.operators.ready(),
            context.bundles.ready(),
            context.controller.ready(),
        )
    };
    tokio::select! {
        () = shutdown.requested() => return,
        _ = ready => {}
    }
    queue.add(());
    let reconcile_all = |()| {
        let (context, queue) = (context.clone(), queue.clone());
        async move { reconcile(&context, &queue).await }
    };
    queue.run(1, &shutdown, reconcile_all).await;
}

async fn reconcile(context: &Context, queue: &Queue<()>) -> Reconciled {
    let outcome = steps::apply_all(context).await;
    if let Err(error) = &outcome {
        warn!(error = chain(error), "Reconcile failed");
    }
    let failure = outcome.err();
    let updated = cluster_operator::update_status(context, failure.as_ref()).await;
    if let Err(error) = &updated {
        warn!(error = chain(error), "Failed to update ClusterOperator");
    }
    if let (None, Ok(controller)) = (&failure, updated) {
        // Files that are not watched, and a controller that falls silent, are no changes.
        queue.add_after((), controller.unwrap_or(RESYNC).min(RESYNC));
        return Reconciled::Done;
    }
    Reconciled::Retry
}

impl StepError {
    /// Returns the step and the cause, as the ClusterOperator reports them.
    fn named(&self) -> (&'static str, String) {
        (self.step, chain(&*self.source))
    }
}
