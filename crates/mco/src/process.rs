//! The frame of all long-running processes: log, client, metrics, readiness and shutdown.

mod tls;

use std::{
    future::Future, net::SocketAddr, path::PathBuf, process::ExitCode, sync::Arc, time::Duration,
};

use anyhow::Context as _;
use mco_api::{duration, label};
use mco_cluster::{
    Health, Shutdown,
    admin::{Admin, Readiness, Registry, StatePage},
    client::{self, Client, Deadlines, Identity, RequestMetrics},
    lease::{LeadershipEnd, Timings},
    shutdown::SHUTDOWN_LIMIT,
    telemetry::{self, Format, LogLevel},
};
use mco_core::{
    render::Build,
    takeover::{AdoptedBuild, Order},
};
use tokio::{runtime::Builder, time::timeout};

pub(crate) use self::tls::TlsArgs;

/// Pause between two attempts to reach the API server.
const CONNECT_RETRY: Duration = Duration::from_secs(1);

/// Time that open connections of the metrics server, and then threads that are blocked, have to end
/// when the work of the process has ended.
const LAST_GRACE: Duration = Duration::from_secs(2);

/// Flags of every process.
#[derive(Debug, clap::Args)]
pub(crate) struct ProcessArgs {
    /// Kubeconfig of the cluster; the service account of the pod if omitted
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Release version of the cluster
    #[arg(long, env = "RELEASE_VERSION", default_value = "0.0.1-snapshot", value_name = "VERSION")]
    pub(crate) payload_version: String,
    /// Address of /metrics, /livez and /readyz, and of /state of the daemon
    #[arg(
        long,
        visible_alias = "metrics-url",
        default_value = "127.0.0.1:8797",
        value_name = "ADDRESS"
    )]
    metrics_listen_address: SocketAddr,
    /// Further address of /metrics, /livez and /readyz, over HTTPS; /metrics needs a bearer token whose
    /// user may get the URL /metrics
    #[arg(long, value_name = "ADDRESS")]
    secure_metrics_listen_address: Option<SocketAddr>,
    #[command(flatten)]
    tls: TlsArgs,
    #[command(flatten)]
    client: ClientArgs,
    /// Format of log lines
    #[arg(long, value_enum, default_value_t)]
    log_format: LogFormat,
}

/// Flags of the client of every process.
#[derive(Debug, clap::Args)]
pub(crate) struct ClientArgs {
    /// Namespace of the installation that the process belongs to
    #[arg(long, default_value = label::NAMESPACE, value_name = "NAMESPACE")]
    namespace: String,
    /// Time limit of a request until the API server starts to answer; a complete answer may take
    /// three times as long
    #[arg(long, default_value = "20s", value_parser = duration::parse, value_name = "TIME")]
    request_timeout: Duration,
    /// Time without an event or a bookmark after which a watch is restarted
    #[arg(long, default_value = "150s", value_parser = duration::parse, value_name = "TIME")]
    watch_idle_timeout: Duration,
}

impl ClientArgs {
    /// Returns the settings of the process's clients.
    pub(crate) fn options(&self, identity: Identity) -> client::Options {
        let deadlines = Deadlines::new(self.request_timeout, self.watch_idle_timeout);
        client::Options {
            identity,
            deadlines,
            metrics: RequestMetrics::default(),
            namespace: Some(self.namespace.clone()),
        }
    }
}

impl ProcessArgs {
    /// Returns the settings of the process's clients.
    pub(crate) fn client_options(&self, identity: Identity) -> client::Options {
        self.client.options(identity)
    }
}

/// Flags of the leader lease, with the names that Kubernetes uses.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct LeaderArgs {
    /// Time after which other processes take over the lease of a silent leader; 137s in the
    /// reference
    #[arg(long = "leader-elect-lease-duration", default_value = "15s", value_parser = duration::parse, value_name = "TIME")]
    lease: Duration,
    /// Time that a leader keeps leading without renewing its lease; 107s in the reference
    #[arg(long = "leader-elect-renew-deadline", default_value = "10s", value_parser = duration::parse, value_name = "TIME")]
    renew: Duration,
    /// Pause between two attempts to acquire or renew the lease; 26s in the reference
    #[arg(long = "leader-elect-retry-period", default_value = "2s", value_parser = duration::parse, value_name = "TIME")]
    retry: Duration,
}

impl LeaderArgs {
    /// Returns the timings, or an error if they would allow two leaders at once.
    pub(crate) fn timings(self) -> anyhow::Result<Timings> {
        let Self { lease, renew, retry } = self;
        Timings::new(lease, renew, retry).context("the --leader-elect-* flags conflict")
    }
}

/// Flags about a cluster that another operator runs.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TakeoverArgs {
    /// Run the cluster of another operator in its place; without the flag, nothing is changed there
    #[arg(long)]
    take_over: bool,
    /// Build that objects generated on a cluster of another operator name: VERSION-HASH, or auto for
    /// the build of the cluster
    #[arg(
        long,
        value_name = "BUILD",
        requires = "take_over",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "auto"
    )]
    adopt_build: Option<AdoptedBuild>,
}

impl TakeoverArgs {
    /// Returns the order of the administrator.
    pub(crate) fn order(&self) -> Order {
        if self.take_over {
            Order::TakeOver(self.adopt_build.clone().unwrap_or_default())
        } else {
            Order::HandsOff
        }
    }
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum LogFormat {
    /// One JSON object per line
    #[default]
    Json,
    /// Plain text
    Text,
}

/// Returns the build of this binary. All processes of a cluster must have the same build.
pub(crate) fn build() -> Build {
    let version = env!("CARGO_PKG_VERSION");
    let hash = option_env!("MCO_BUILD_HASH").unwrap_or(version);
    Build { version: version.to_owned(), hash: hash.to_owned() }
}

/// Options that only some processes set.
pub(crate) struct ProcessOptions {
    /// Settings of the client.
    pub(crate) client: client::Options,
    /// Page at `/state`.
    pub(crate) state: Option<StatePage>,
    /// Address of the API server, if known better than from the pod's environment.
    pub(crate) server: Option<String>,
    /// Number of worker threads; the number of processors if `None`.
    pub(crate) threads: Option<usize>,
    /// Time after which the process exits when it was asked to shut down.
    pub(crate) shutdown_limit: Duration,
    /// Health at `/livez` and `/readyz`.
    pub(crate) health: Health,
    /// Level of the log, for a process that changes it.
    pub(crate) log_level: LogLevel,
}

impl ProcessOptions {
    /// Returns the options of a process that sets none.
    pub(crate) fn new(client: client::Options) -> Self {
        Self {
            client,
            state: None,
            server: None,
            threads: None,
            shutdown_limit: SHUTDOWN_LIMIT,
            health: Health::default(),
            log_level: LogLevel::default(),
        }
    }
}

/// Runs a process until a signal or the loss of its lease ends the process.
///
/// `register` creates the metrics of the process; `work` is the process itself.
pub(crate) fn run<S, F>(
    args: &ProcessArgs,
    verbose: bool,
    options: ProcessOptions,
    register: impl FnOnce(&mut Registry) -> S,
    work: impl FnOnce(S, Client, Shutdown) -> F,
) -> anyhow::Result<ExitCode>
where
    F: Future<Output = LeadershipEnd>,
{
    let level = if verbose { tracing::Level::DEBUG } else { tracing::Level::INFO };
    let format = match args.log_format {
        LogFormat::Json => Format::Json,
        LogFormat::Text => Format::Text,
    };
    telemetry::start_adjustable(format, level, &options.log_level)?;
    let mut builder = Builder::new_multi_thread();
    if let Some(threads) = options.threads {
        builder.worker_threads(threads);
    }
    let shutdown = on_signals(options.shutdown_limit, &options.client.metrics)?;
    let runtime = builder.enable_all().build()?;
    let ended = runtime.block_on(async {
        let client = match (&args.kubeconfig, &options.server) {
            (None, Some(server)) => client::connect_as_pod(Some(server), &options.client).await?,
            (kubeconfig, _) => client::connect_with(kubeconfig.as_deref(), &options.client).await?,
        };
        let mut registry = Registry::default();
        options.client.metrics.register(&mut registry);
        let metrics = register(&mut registry);
        options.health.register(&mut registry);
        let admin = Admin::listen(args.metrics_listen_address, Arc::new(registry)).await?;
        let admin = admin.with_state(options.state).with_health(options.health);
        if let Some(address) = args.secure_metrics_listen_address {
            let secure = admin.secure(client.clone(), &args.tls.policy())?;
            let stop = shutdown.clone();
            tokio::spawn(async move { secure.serve(address, &stop).await });
        }
        tokio::spawn(wait_for_apiserver(client.clone(), admin.readiness(), shutdown.clone()));
        let serving = {
            let shutdown = shutdown.clone();
            tokio::spawn(async move { admin.serve(&shutdown).await })
        };
        let ended = work(metrics, client, shutdown.clone()).await;
        shutdown.request();
        // A connection that does not end is closed with the process.
        if let Ok(served) = timeout(LAST_GRACE, serving).await {
            served.context("the metrics server stopped unexpectedly")?;
        }
        anyhow::Ok(ended)
    });
    runtime.shutdown_timeout(LAST_GRACE);
    match ended? {
        // Compat: a process that lost its lease exits with success, to be started again
        // (cmd/machine-config-controller).
        LeadershipEnd::Released | LeadershipEnd::Lost | LeadershipEnd::Unfinished => {
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Returns a shutdown request that signals make; the process exits `limit` after it at the latest.
pub(crate) fn on_signals(limit: Duration, metrics: &RequestMetrics) -> anyhow::Result<Shutdown> {
    let metrics = metrics.clone();
    let unfinished = move || match metrics.in_flight() {
        requests if requests.is_empty() => "work other than requests".to_owned(),
        requests => format!("requests: {}", requests.join(", ")),
    };
    Shutdown::on_signals_within(limit, unfinished).context("failed to install signal handlers")
}

/// Marks the process as ready once the API server has answered.
pub(crate) async fn wait_for_apiserver(client: Client, readiness: Readiness, shutdown: Shutdown) {
    while client.apiserver_version().await.is_err() {
        tokio::select! {
            () = shutdown.requested() => return,
            () = tokio::time::sleep(CONNECT_RETRY) => {}
        }
    }
    readiness.set_ready();
}
