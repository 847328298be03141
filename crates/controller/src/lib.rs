//! The controller process: renders each pool's config, moves its nodes to it, drains them.
//!
//! One module per controller, all alike: observe (from shared caches), decide (a pure function of
//! `mco_core`), act (the smallest write that does it), report. They meet only in the API server.

mod board;
pub mod bootstrap;
mod caches;
mod certificate;
mod condition;
mod drain;
mod error;
mod image;
mod mark;
mod metrics;
mod node;
mod pinned;
mod progress;
mod prune;
pub mod remote;
mod render;
mod rollout;
mod scheduler;

use std::{sync::Arc, time::Duration};

use kube::{Api, Client};
use mco_api::label;
use mco_cluster::{
    Clock, NoteCount, Reporter, Shutdown,
    lease::{Candidate, Ended, Fence, Timings},
};
use mco_core::{drain::Pace, render::Build};
use tokio::task::JoinSet;
use tracing::error;

pub use self::metrics::Metrics;
use self::{board::Board, caches::Caches};

/// Name of the Lease, and of the process.
pub const NAME: &str = "machine-config-controller";

/// Settings of the process.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which build this is; others' base configs are not rendered.
    pub build: Build,
    /// How long each controller lets changes gather before it looks.
    pub settle: Settle,
    /// How drains go about it.
    pub pace: Pace,
    /// Who leads; `None` if no other process can be there.
    pub leader: Option<Leader>,
    /// Tells the time of day.
    pub clock: Clock,
    /// What is counted.
    pub metrics: Metrics,
    /// How often something was reported.
    pub notes: NoteCount,
}

/// How long changes gather before a controller looks at them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settle {
    /// Before rendering: MachineConfigs often come several at a time.
    pub render: Duration,
    /// Before choosing nodes and counting them.
    pub node: Duration,
    /// Before draining.
    pub drain: Duration,
    /// Without a change of a node, before it is said in its MachineConfigNode, or on itself, what is
    /// going on with it; ten times as long at most. What is over before that is not worth a write.
    pub report: Duration,
    /// Without any node of the pool being told its config, before those that wait are marked as such
    /// by a taint and by a condition; twelve times as long at most. While nodes are done in seconds,
    /// marks would only be taken back at once.
    pub mark: Duration,
    /// Between two writes of a pool's status that differ in numbers only.
    pub status: Duration,
    /// Before removing rendered configs that nobody needs.
    pub prune: Duration,
}

impl Settle {
    /// Long enough for `kubectl apply -f DIR` to come through, short enough not to be waited for.
    pub const SHORT: Self = Self {
        render: Duration::from_millis(150),
        node: Duration::from_millis(50),
        drain: Duration::ZERO,
        report: Duration::from_secs(2),
        mark: Duration::from_secs(5),
        status: Duration::from_secs(1),
        prune: Duration::from_mins(1),
    };
    /// What the reference waits.
    pub const REFERENCE: Self = Self {
        render: Duration::from_secs(5),
        node: Duration::from_secs(5),
        drain: Duration::from_secs(5),
        report: Duration::from_secs(5),
        mark: Duration::ZERO,
        status: Duration::from_secs(5),
        prune: Duration::from_mins(1),
    };
}

/// How this process stands for the lease.
#[derive(Clone, Debug)]
pub struct Leader {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Who this process is.
    pub identity: String,
    /// How long and how often.
    pub timings: Timings,
}

impl Config {
    /// Settings for a process that is alone and whose metrics nobody reads.
    #[must_use]
    pub fn new(build: Build) -> Self {
        Self {
            build,
            settle: Settle::SHORT,
            pace: Pace::REFERENCE,
            leader: None,
            clock: Clock::System,
            metrics: Metrics::default(),
            notes: NoteCount::default(),
        }
    }
}

/// Runs the controllers until told to stop, or until another process leads.
pub async fn run(config: Config, client: Client, shutdown: Shutdown) -> Ended {
    let Some(leader) = config.leader.clone() else {
        controllers(config, client, shutdown).await;
        return Ended::Released;
    };
    let candidate = Candidate {
        api: Api::namespaced(client.clone(), &leader.namespace),
        name: NAME.to_owned(),
        identity: leader.identity,
        timings: leader.timings,
        clock: config.clock,
        fence: Fence::default(),
    };
    let client = candidate.fence.guard(client);
    candidate.lead(&shutdown, |stop| controllers(config, client, stop)).await
}

/// What the controllers share.
struct Context {
    client: Client,
    caches: Caches,
    build: Build,
    settle: Settle,
    pace: Pace,
    clock: Clock,
    metrics: Metrics,
    notes: NoteCount,
    /// The nodes by pool, and who is to be looked at.
    board: Board,
    /// The rendered configs that are known to be as they were made.
    sound: render::Sound,
    /// Held while masters or arbiter are chosen for.
    control_plane: tokio::sync::Mutex<()>,
}

impl Context {
    /// Counts something about a node before anybody is told of it.
    ///
    /// A node that is gone is counted no longer, even if that happened on the way here: the cache lets
    /// go of it before its numbers are removed, so either we see that or they are removed after us.
    fn count_node(&self, node: &str, count: impl FnOnce(&Metrics)) {
        count(&self.metrics);
        if self.caches.nodes.get(node).is_none() {
            self.metrics.node_gone(node);
        }
    }

    /// The same about a pool.
    fn count_pool(&self, pool: &str, count: impl FnOnce(&Metrics)) {
        count(&self.metrics);
        if self.caches.pools.get(pool).is_none() {
            self.metrics.pool_gone(pool);
        }
    }

    fn reporter(&self, component: &str) -> Reporter {
        let component = format!("machineconfigcontroller-{component}");
        Reporter::with_clock(self.client.clone(), &component, self.notes.clone(), self.clock)
    }
}

async fn controllers(config: Config, client: Client, shutdown: Shutdown) {
    let Config { build, settle, pace, clock, metrics, notes, leader: _ } = config;
    let caches = Caches::new();
    let control_plane = tokio::sync::Mutex::default();
    let context = Arc::new(Context {
        client,
        caches,
        build,
        settle,
        pace,
        clock,
        metrics,
        notes,
        board: Board::default(),
        sound: render::Sound::default(),
        control_plane,
    });
    // Dropped with this future when the lease is lost, which ends them all at once.
    let mut tasks = JoinSet::new();
    board::listen(&context);
    context.caches.start(&context.client, &shutdown, &mut tasks);
    tasks.spawn(render::run(context.clone(), shutdown.clone()));
    tasks.spawn(node::run(context.clone(), shutdown.clone()));
    tasks.spawn(progress::run(context.clone(), shutdown.clone()));
    tasks.spawn(prune::run(context.clone(), shutdown.clone()));
    tasks.spawn(certificate::run(context.clone(), shutdown.clone()));
    tasks.spawn(pinned::run(context.clone(), shutdown.clone()));
    tasks.spawn(drain::run(context, shutdown.clone()));
    while let Some(ended) = tasks.join_next().await {
        if let Err(failure) = ended {
            error!(%failure, "A controller ended by itself");
            shutdown.request();
        }
    }
}

/// The namespace that our Lease is in unless somebody says otherwise.
pub const DEFAULT_LEASE_NAMESPACE: &str = label::NAMESPACE;
