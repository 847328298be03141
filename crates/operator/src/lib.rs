//! The operator process: deploys the other processes, installs the objects that they need, and reports
//! the state of the cluster.
//!
//! The steps of a reconcile are idempotent. Those that do not depend on each other run at the same time,
//! and a failure of one does not keep the others from running. The ClusterOperator names the failed step
//! that is first in a fixed order, and the cause, and the reconcile is retried.

mod claim;
mod cluster_operator;
mod controller_config;
mod definitions;
mod facts;
mod images_file;
mod install;
mod join_objects;
mod lease;
mod machine_configuration;
pub mod manifests;
mod operands;
mod permit;
mod platform;
mod root_ca;
mod steps;

use std::{
    future::Future,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use mco_api::{
    ClusterOperator, ControllerConfig, MachineConfigPool,
    annotation::{JoinTokens, Profile},
    controller_config::ProxyStatus,
    label,
};
use mco_cluster::{
    Api, Cache, Clock, Health, Note, NoteCount, Queue, Reporter, Shutdown,
    cache::trim,
    client::namespace,
    health::Work,
    lease::{Candidate, Fence, LeadershipEnd, Timings},
    queue::Reconciled,
    report::chain,
    telemetry::LogLevel,
    watch::Config as WatchConfig,
};
use mco_core::{
    render::Build,
    takeover::{Order, Tenure},
};
use tokio::task::JoinSet;
use tracing::{error, warn};

use self::{
    definitions::Definitions, facts::FactSources, lease::ControllerLease,
    machine_configuration::MachineConfigurations, manifests::Parameters, operands::Operands,
    platform::Platform, steps::StepError,
};

pub use self::{
    images_file::ImagesFile,
    install::{
        ExaminedDefinition, InstallError, check_release_definition, examine, install, is_of_release,
    },
    root_ca::RootCa,
    steps::built_in_pools,
};

/// Name of the Lease and of the ClusterOperator.
pub const NAME: &str = label::CLUSTER_OPERATOR;

/// Longest time between two reconciles. The CA file of a kubeconfig is read again in each.
const RESYNC: Duration = Duration::from_secs(30);

/// Time between two reconciles while a kind to deploy cannot be listed.
const RETRY_LIST: Duration = Duration::from_secs(2);

/// Settings of the process.
#[derive(Clone, Debug)]
pub struct Config {
    /// Version of this build; the controller must be of the same one.
    pub build: Build,
    /// Release that the cluster is updated to.
    pub release: String,
    /// Image that this process runs from, and the others too. Without it the operator deploys no other
    /// process.
    pub image: String,
    /// OS image that base configs refer to.
    pub os_image: String,
    /// Extensions image that fits the OS image.
    pub os_extensions_image: String,
    /// File with the images of the release, beside those of the other members.
    pub images_json: Option<ImagesFile>,
    /// URL of the API server for nodes of a cluster without an Infrastructure object; empty if the
    /// cluster names it in another way.
    pub api_server_url: String,
    /// Proxy of a cluster without a Proxy object.
    pub proxy: Option<ProxyStatus>,
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
    /// Order about a cluster that another operator runs.
    pub order: Order,
    /// Source of the current time.
    pub clock: Clock,
    /// Number of published events.
    pub notes: NoteCount,
    /// Health of the process.
    pub health: Health,
    /// Level of the log, which the MachineConfiguration sets.
    pub log_level: LogLevel,
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
            images_json: None,
            api_server_url: String::new(),
            proxy: None,
            profile: None,
            join_tokens: None,
            approve_joins: None,
            root_ca: RootCa::default(),
            leader: None,
            order: Order::HandsOff,
            clock: Clock::System,
            notes: NoteCount::default(),
            health: Health::default(),
            log_level: LogLevel::default(),
        }
    }
}

/// Runs the operator until shutdown is requested or another process takes the Lease.
///
/// While another operator runs the cluster, nothing is changed and no Lease is acquired, unless the
/// settings order a takeover.
pub async fn run(config: Config, client: Client, shutdown: Shutdown) -> LeadershipEnd {
    let Some(tenure) = permit::wait(&config, &client, &shutdown).await else {
        return LeadershipEnd::Released;
    };
    if !claim::wait(&client, &config.health, &shutdown).await {
        return LeadershipEnd::Released;
    }
    let Some(leader) = config.leader.clone() else {
        run_operator(config, tenure, client, shutdown).await;
        return LeadershipEnd::Released;
    };
    let candidate = Candidate {
        api: Api::own(client.clone()),
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
    let reader = client.clone();
    let client = candidate.fence.guard(client);
    let work = |stop| async move {
        // Another operator may have begun while this process waited for the Lease.
        let Some(tenure) = permit::decide(&config, &reader).await else { return };
        if claim::wait(&reader, &config.health, &stop).await {
            run_operator(config, tenure, client, stop).await;
        }
    };
    candidate.lead(&shutdown, work).await
}

/// State of a reconcile.
struct Context {
    config: Config,
    /// The way in which this operator runs the cluster.
    tenure: Tenure,
    client: Client,
    reporter: Reporter,
    /// True if this installation had the cluster when the ClusterOperator was last read.
    has_claim: AtomicBool,
    pools: Arc<Cache<MachineConfigPool>>,
    controller_configs: Arc<Cache<ControllerConfig>>,
    operators: Arc<Cache<ClusterOperator>>,
    /// CA certificates of the API server.
    bundles: Arc<Cache<ConfigMap>>,
    facts: FactSources,
    progress: controller_config::Progress,
    definitions: Definitions,
    controller: Arc<ControllerLease>,
    observed: cluster_operator::Observed,
    machine_configurations: MachineConfigurations,
    platform: Platform,
    join_objects: join_objects::JoinObjects,
    /// The other processes; `None` if the operator does not deploy them.
    operands: Option<Operands>,
}

impl Context {
    /// Returns objects of other owners with which the cluster works only in part, as text.
    fn incomplete(&self) -> Vec<String> {
        let foreign = self.operands.iter().flat_map(Operands::foreign);
        self.definitions.incomplete().into_iter().chain(foreign).collect()
    }

    /// Publishes an event about each object of another owner, once.
    async fn announce_foreign(&self) {
        let Some(operator) = self.operators.get(label::CLUSTER_OPERATOR) else { return };
        for text in self.operands.iter().flat_map(Operands::take_unannounced) {
            self.reporter.publish(&Note::warning(&*operator, "ObjectOfAnotherOwner", text)).await;
        }
    }
}

async fn run_operator(config: Config, tenure: Tenure, client: Client, shutdown: Shutdown) {
    let reporter = Reporter::with_clock(
        client.clone(),
        "machineconfigoperator",
        config.notes.clone(),
        config.clock,
    );
    let parameters = Parameters {
        namespace: namespace(&client).to_owned(),
        release: config.release.clone(),
        order: config.order.clone(),
        ..Parameters::new(&config.image)
    };
    let platform = Platform::new();
    let context = Arc::new(Context {
        operands: (!config.image.is_empty()).then(|| Operands::new(&client, &parameters)),
        controller: Arc::new(ControllerLease::new(&client)),
        config,
        tenure,
        client,
        reporter,
        has_claim: AtomicBool::new(false),
        pools: Arc::new(Cache::new(trim::metadata)),
        controller_configs: Arc::new(Cache::new(trim::metadata)),
        operators: Arc::new(Cache::new(trim::metadata)),
        bundles: Arc::new(Cache::new(trim::metadata)),
        facts: FactSources::new(&platform),
        progress: controller_config::Progress::default(),
        definitions: Definitions::new(),
        observed: cluster_operator::Observed::new(),
        machine_configurations: MachineConfigurations::new(),
        platform,
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
    let config = WatchConfig::default().health(&context.config.health);
    context.facts.watch(&context.client, config, &queue, &shutdown);
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
    context.observed.subscribe(queue);
    context.machine_configurations.subscribe(queue);
    context.platform.subscribe(queue);
    if let Some(operands) = &context.operands {
        operands.subscribe(queue);
    }
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
    let bundles = Api::own(context.client.clone());
    watch!(context.bundles, bundles, all().named(root_ca::CONFIG_MAP));
    let (watched, stop, config) = (context.clone(), shutdown.clone(), all());
    tasks.spawn(async move { watched.definitions.run(&watched.client, config, &stop).await });
    let (lease, stop, config) = (context.controller.clone(), shutdown.clone(), all());
    tasks.spawn(async move { lease.run(config, &stop).await });
    let (client, health) = (&context.client, &context.config.health);
    context.observed.watch(client, health, shutdown, tasks);
    context.machine_configurations.watch(client, health, shutdown, tasks);
    context.platform.watch(client, health, shutdown, tasks);
    if let Some(operands) = &context.operands {
        operands.watch(&all(), shutdown, tasks);
    }
}

async fn run_reconciles(context: Arc<Context>, queue: Arc<Queue<()>>, shutdown: Shutdown) {
    let ready = async {
        tokio::join!(
            context.pools.ready(),
            context.controller_configs.ready(),
            context.operators.ready(),
            context.bundles.ready(),
            context.controller.ready(),
            context.machine_configurations.ready(),
            context.platform.ready(),
            context.facts.ready(),
            async {
                if let Some(operands) = &context.operands {
                    operands.ready().await;
                }
            },
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
    if !claim::acquire(context).await {
        return Reconciled::Retry;
    }
    let failures = Box::pin(steps::apply_all(context)).await;
    for error in &failures {
        warn!(error = chain(error), "Reconcile failed");
    }
    let failure = failures.first();
    let updated = cluster_operator::update_status(context, failure).await;
    if let Err(error) = &updated {
        warn!(error = chain(error), "Failed to update ClusterOperator");
    }
    context.announce_foreign().await;
    if let (None, Ok(controller)) = (failure, updated) {
        // Files that are not watched, and a controller that falls silent, are no changes.
        let is_waiting = context.operands.as_ref().is_some_and(Operands::is_waiting);
        let resync = if is_waiting { RETRY_LIST } else { RESYNC };
        queue.add_after((), controller.unwrap_or(resync).min(resync));
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
