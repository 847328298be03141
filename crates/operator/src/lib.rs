//! The operator process: installs what the others need, and says how the cluster fares.
//!
//! Steps in a fixed order, each of which makes something so and is harmless where it is so already.
//! The first that fails ends the round; the ClusterOperator says which and why, and the round is
//! taken up again.

mod base;
mod cluster_operator;
mod install;
mod steps;

use std::{future::Future, sync::Arc};

use kube::{Api, Client, ResourceExt as _, runtime::watcher};
use mco_api::{ClusterOperator, ControllerConfig, MachineConfig, MachineConfigPool, label};
use mco_cluster::{
    Cache, Clock, NoteCount, Queue, Reporter, Shutdown,
    cache::{Change, trim},
    lease::{Candidate, Ended, Fence, Timings},
    queue::Next,
    report::chain,
};
use mco_core::render::Build;
use tokio::task::JoinSet;
use tracing::{error, warn};

use self::steps::StepError;

pub use self::{
    base::base_config,
    install::{InstallError, install},
    steps::built_in_pools,
};

/// Name of the Lease and of the ClusterOperator.
pub const NAME: &str = label::CLUSTER_OPERATOR;

/// Settings of the process.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which build this is; the controller must be of the same one.
    pub build: Build,
    /// The release that the cluster is brought to.
    pub release: String,
    /// The image that this process runs from.
    pub image: String,
    /// The images that base configs refer to.
    pub os_image: String,
    /// The extensions that fit the OS image.
    pub os_extensions_image: String,
    /// Certificates, as PEM, that the API server's own certificate is checked with.
    pub root_ca: String,
    /// Who leads; `None` if no other process can be there.
    pub leader: Option<Leader>,
    /// Tells the time of day.
    pub clock: Clock,
    /// How often something was reported.
    pub notes: NoteCount,
}

/// How this process stands for the lease.
#[derive(Clone, Debug)]
pub struct Leader {
    /// Who this process is.
    pub identity: String,
    /// How long and how often.
    pub timings: Timings,
}

impl Config {
    /// Settings for a process that is alone, for a cluster without OS images.
    #[must_use]
    pub fn new(build: Build, release: &str) -> Self {
        Self {
            build,
            release: release.to_owned(),
            image: String::new(),
            os_image: String::new(),
            os_extensions_image: String::new(),
            root_ca: String::new(),
            leader: None,
            clock: Clock::System,
            notes: NoteCount::default(),
        }
    }
}

/// Runs the operator until told to stop, or until another process leads.
pub async fn run(config: Config, client: Client, shutdown: Shutdown) -> Ended {
    let Some(leader) = config.leader.clone() else {
        work(config, client, shutdown).await;
        return Ended::Released;
    };
    let candidate = Candidate {
        api: Api::namespaced(client.clone(), label::NAMESPACE),
        name: NAME.to_owned(),
        identity: leader.identity,
        timings: leader.timings,
        clock: config.clock,
        fence: Fence::default(),
    };
    // The lease lies in our own namespace, which a plain cluster does not bring along.
    if !until_done(&shutdown, || install::namespace(&client)).await {
        return Ended::Released;
    }
    let client = candidate.fence.guard(client);
    candidate.lead(&shutdown, |stop| work(config, client, stop)).await
}

/// What a round reads and writes with.
struct Context {
    config: Config,
    client: Client,
    reporter: Reporter,
    pools: Arc<Cache<MachineConfigPool>>,
    cluster: Arc<Cache<ControllerConfig>>,
    configs: Arc<Cache<MachineConfig>>,
    operators: Arc<Cache<ClusterOperator>>,
}

async fn work(config: Config, client: Client, shutdown: Shutdown) {
    let reporter = Reporter::with_clock(
        client.clone(),
        "machineconfigoperator",
        config.notes.clone(),
        config.clock,
    );
    let context = Arc::new(Context {
        config,
        client,
        reporter,
        pools: Arc::new(Cache::new(trim::metadata)),
        cluster: Arc::new(Cache::new(trim::metadata)),
        configs: Arc::new(Cache::new(trim::metadata)),
        operators: Arc::new(Cache::new(trim::metadata)),
    });
    // Without the kinds there is nothing to watch.
    if !until_done(&shutdown, || install(&context.client)).await {
        return;
    }
    let queue: Arc<Queue<()>> = Arc::new(Queue::new());
    listen(&context, &queue);
    let mut tasks = JoinSet::new();
    watch(&context, &shutdown, &mut tasks);
    tasks.spawn(rounds(context, queue, shutdown.clone()));
    while let Some(ended) = tasks.join_next().await {
        if let Err(failure) = ended {
            error!(%failure, "A task ended by itself");
            shutdown.request();
        }
    }
}

/// Tries `step` until it is done; says whether it is, or the process stops before.
async fn until_done<F>(shutdown: &Shutdown, step: impl Fn() -> F) -> bool
where
    F: Future<Output = Result<(), InstallError>>,
{
    let (queue, done) = (Queue::new(), Shutdown::new());
    queue.add(());
    let trying = queue.run(1, &done, |()| async {
        match step().await {
            Ok(()) => {
                done.request();
                Next::Wait
            }
            Err(error) => {
                warn!(error = chain(&error), "Cannot prepare the cluster");
                Next::Retry
            }
        }
    });
    tokio::select! {
        () = shutdown.requested() => false,
        () = trying => true,
    }
}

fn listen(context: &Arc<Context>, queue: &Arc<Queue<()>>) {
    let wake = queue.clone();
    context.pools.on_change(move |_| wake.add(()));
    let wake = queue.clone();
    context.cluster.on_change(move |_| wake.add(()));
    let wake = queue.clone();
    context.operators.on_change(move |_| wake.add(()));
    let wake = queue.clone();
    context.configs.on_change(move |change: Change<'_, MachineConfig>| {
        // Everybody else's configs are none of our business.
        if change.object().is_some_and(|config| base::is_ours(&config.name_any())) {
            wake.add(());
        }
    });
}

fn watch(context: &Context, shutdown: &Shutdown, tasks: &mut JoinSet<()>) {
    macro_rules! watch {
        ($cache:expr, $config:expr) => {{
            let (cache, stop) = ($cache.clone(), shutdown.clone());
            let api = Api::all(context.client.clone());
            tasks.spawn(async move { cache.run(api, $config, &stop).await });
        }};
    }
    watch!(context.pools, watcher::Config::default());
    watch!(context.cluster, watcher::Config::default());
    // Base configs bear a role; rendered ones, by far the larger part, do not.
    watch!(context.configs, watcher::Config::default().labels(label::ROLE));
    let ours = format!("metadata.name={}", label::CLUSTER_OPERATOR);
    watch!(context.operators, watcher::Config::default().fields(&ours));
}

async fn rounds(context: Arc<Context>, queue: Arc<Queue<()>>, shutdown: Shutdown) {
    let ready = async {
        tokio::join!(
            context.pools.ready(),
            context.cluster.ready(),
            context.configs.ready(),
            context.operators.ready(),
        )
    };
    tokio::select! {
        () = shutdown.requested() => return,
        _ = ready => {}
    }
    queue.add(());
    let look = |()| {
        let context = context.clone();
        async move { round(&context).await }
    };
    queue.run(1, &shutdown, look).await;
}

async fn round(context: &Context) -> Next {
    let outcome = steps::all(context).await;
    if let Err(error) = &outcome {
        warn!(error = chain(error), "A step failed");
    }
    let failure = outcome.err();
    let told = cluster_operator::tell(context, failure.as_ref()).await;
    if let Err(error) = &told {
        warn!(error = chain(error), "Cannot say how the cluster fares");
    }
    if failure.is_none() && told.is_ok() { Next::Wait } else { Next::Retry }
}

impl StepError {
    /// The step and the cause, as the ClusterOperator names them.
    fn named(&self) -> (&'static str, String) {
        (self.step, chain(&self.source))
    }
}
