//! What all long-running commands have in common: log, client, metrics, and an orderly end.

use std::{
    future::Future, net::SocketAddr, path::PathBuf, process::ExitCode, sync::Arc, time::Duration,
};

use anyhow::Context as _;
use mco_api::duration;
use mco_cluster::{
    Shutdown,
    admin::{Admin, Readiness, Registry, StatePage},
    client::{self, Client},
    lease::{Ended, Timings},
    telemetry::{self, Format},
};
use mco_core::render::Build;
use tokio::runtime::Builder;

/// Pause between two tries to reach the API server.
const REACH_AGAIN: Duration = Duration::from_secs(1);

/// Settings of every process.
#[derive(Debug, clap::Args)]
pub(crate) struct ProcessArgs {
    /// Kubeconfig of the cluster; without it, the service account of the pod this runs in
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Release that the cluster is to run
    #[arg(long, env = "RELEASE_VERSION", default_value = "0.0.1-snapshot", value_name = "VERSION")]
    pub(crate) payload_version: String,
    /// Where to serve /metrics, /healthz and /readyz, and for the daemon /state
    #[arg(
        long,
        visible_alias = "metrics-url",
        default_value = "127.0.0.1:8797",
        value_name = "ADDRESS"
    )]
    metrics_listen_address: SocketAddr,
    /// How lines of the log look
    #[arg(long, value_enum, default_value_t)]
    log_format: LogFormat,
}

/// How long the lease of the leader holds, by the names that Kubernetes gives these flags.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct LeaderArgs {
    /// How long others wait for a leader that is not heard of any more; the reference waits 137s
    #[arg(long = "leader-elect-lease-duration", default_value = "15s", value_parser = duration::parse, value_name = "TIME")]
    lease: Duration,
    /// How long a leader goes on without renewing its lease; the reference goes on for 107s
    #[arg(long = "leader-elect-renew-deadline", default_value = "10s", value_parser = duration::parse, value_name = "TIME")]
    renew: Duration,
    /// Pause between two tries to take or to renew the lease; 26s in the reference
    #[arg(long = "leader-elect-retry-period", default_value = "2s", value_parser = duration::parse, value_name = "TIME")]
    retry: Duration,
}

impl LeaderArgs {
    /// The times, if two processes cannot lead at once with them.
    pub(crate) fn timings(self) -> anyhow::Result<Timings> {
        let Self { lease, renew, retry } = self;
        Timings::new(lease, renew, retry).context("the flags --leader-elect-* do not fit together")
    }
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum LogFormat {
    /// One JSON object a line
    #[default]
    Json,
    /// Text for people
    Text,
}

/// Which build this is. All processes of a cluster must be of one build.
pub(crate) fn build() -> Build {
    let version = env!("CARGO_PKG_VERSION");
    let hash = option_env!("MCO_BUILD_HASH").unwrap_or(version);
    Build { version: version.to_owned(), hash: hash.to_owned() }
}

/// Runs a process until a signal or the loss of its lease ends it.
///
/// `register` makes what the process counts; `work` is the process.
pub(crate) fn run<S, F>(
    args: &ProcessArgs,
    verbose: bool,
    register: impl FnOnce(&mut Registry) -> S,
    work: impl FnOnce(S, Client, Shutdown) -> F,
) -> anyhow::Result<ExitCode>
where
    F: Future<Output = Ended>,
{
    run_as(args, verbose, Own::default(), register, work)
}

/// What some processes have besides.
#[derive(Default)]
pub(crate) struct Own {
    /// What it shows at `/state`.
    pub(crate) state: Option<StatePage>,
    /// Where the API server is, where that is known better than by the pod that this is.
    pub(crate) server: Option<String>,
    /// How many threads it shares its work among; as many as there are processors where it does not say.
    pub(crate) threads: Option<usize>,
}

/// The same for a process that has something of its own.
pub(crate) fn run_as<S, F>(
    args: &ProcessArgs,
    verbose: bool,
    own: Own,
    register: impl FnOnce(&mut Registry) -> S,
    work: impl FnOnce(S, Client, Shutdown) -> F,
) -> anyhow::Result<ExitCode>
where
    F: Future<Output = Ended>,
{
    let level = if verbose { tracing::Level::DEBUG } else { tracing::Level::INFO };
    let format = match args.log_format {
        LogFormat::Json => Format::Json,
        LogFormat::Text => Format::Text,
    };
    telemetry::start(format, level)?;
    let mut runtime = Builder::new_multi_thread();
    if let Some(threads) = own.threads {
        runtime.worker_threads(threads);
    }
    runtime.enable_all().build()?.block_on(async {
        let shutdown = Shutdown::on_signals().context("cannot listen for signals")?;
        let client = match (&args.kubeconfig, &own.server) {
            (None, Some(server)) => client::connect_as_pod(Some(server))?,
            (kubeconfig, _) => client::connect(kubeconfig.as_deref()).await?,
        };
        let mut registry = Registry::default();
        let metrics = register(&mut registry);
        let admin = Admin::listen(args.metrics_listen_address, Arc::new(registry)).await?;
        let admin = admin.with_state(own.state);
        tokio::spawn(reach(client.clone(), admin.readiness(), shutdown.clone()));
        let serving = {
            let shutdown = shutdown.clone();
            tokio::spawn(async move { admin.serve(&shutdown).await })
        };
        let ended = work(metrics, client, shutdown.clone()).await;
        shutdown.request();
        serving.await.context("the metrics address ended by itself")?;
        match ended {
            // Compat: who lost the lease ends well, to be started again (cmd/machine-config-controller).
            Ended::Released | Ended::Lost => Ok(ExitCode::SUCCESS),
        }
    })
}

/// Says that the process is ready once the API server has answered it.
async fn reach(client: Client, readiness: Readiness, shutdown: Shutdown) {
    while client.apiserver_version().await.is_err() {
        tokio::select! {
            () = shutdown.requested() => return,
            () = tokio::time::sleep(REACH_AGAIN) => {}
        }
    }
    readiness.reached();
}
