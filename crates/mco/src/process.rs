//! The frame of all long-running processes: log, client, metrics, readiness and shutdown.

use std::{
    future::Future, net::SocketAddr, path::PathBuf, process::ExitCode, sync::Arc, time::Duration,
};

use anyhow::Context as _;
use mco_api::duration;
use mco_cluster::{
    Health, Shutdown,
    admin::{Admin, Readiness, Registry, StatePage},
    client::{self, Client},
    lease::{LeadershipEnd, Timings},
    telemetry::{self, Format},
};
use mco_core::render::Build;
use tokio::runtime::Builder;

/// Pause between two attempts to reach the API server.
const CONNECT_RETRY: Duration = Duration::from_secs(1);

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
    /// Format of log lines
    #[arg(long, value_enum, default_value_t)]
    log_format: LogFormat,
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
#[derive(Default)]
pub(crate) struct ProcessOptions {
    /// Page at `/state`.
    pub(crate) state: Option<StatePage>,
    /// Address of the API server, if known better than from the pod's environment.
    pub(crate) server: Option<String>,
    /// Number of worker threads; the number of processors if `None`.
    pub(crate) threads: Option<usize>,
    /// Health at `/livez` and `/readyz`.
    pub(crate) health: Health,
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
    telemetry::start(format, level)?;
    let mut runtime = Builder::new_multi_thread();
    if let Some(threads) = options.threads {
        runtime.worker_threads(threads);
    }
    runtime.enable_all().build()?.block_on(async {
        let shutdown = Shutdown::on_signals().context("failed to install signal handlers")?;
        let client = match (&args.kubeconfig, &options.server) {
            (None, Some(server)) => client::connect_as_pod(Some(server))?,
            (kubeconfig, _) => client::connect(kubeconfig.as_deref()).await?,
        };
        let mut registry = Registry::default();
        let metrics = register(&mut registry);
        options.health.register(&mut registry);
        let admin = Admin::listen(args.metrics_listen_address, Arc::new(registry)).await?;
        let admin = admin.with_state(options.state).with_health(options.health);
        tokio::spawn(wait_for_apiserver(client.clone(), admin.readiness(), shutdown.clone()));
        let serving = {
            let shutdown = shutdown.clone();
            tokio::spawn(async move { admin.serve(&shutdown).await })
        };
        let ended = work(metrics, client, shutdown.clone()).await;
        shutdown.request();
        serving.await.context("the metrics server stopped unexpectedly")?;
        match ended {
            // Compat: a process that lost its lease exits with success, to be started again
            // (cmd/machine-config-controller).
            LeadershipEnd::Released | LeadershipEnd::Lost => Ok(ExitCode::SUCCESS),
        }
    })
}

/// Marks the process as ready once the API server has answered.
async fn wait_for_apiserver(client: Client, readiness: Readiness, shutdown: Shutdown) {
    while client.apiserver_version().await.is_err() {
        tokio::select! {
            () = shutdown.requested() => return,
            () = tokio::time::sleep(CONNECT_RETRY) => {}
        }
    }
    readiness.set_ready();
}
