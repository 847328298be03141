//! `mco server`: serves new machines the config of their pool, with the reference's flags.

use std::{
    io::Write as _, net::SocketAddr, path::PathBuf, process::ExitCode, sync::Arc, time::Duration,
};

use anyhow::Context as _;
use mco_cluster::{
    Health, NoteCount, Shutdown,
    admin::{Admin, Registry},
    client::{self, Identity},
    report,
    shutdown::SHUTDOWN_LIMIT,
    telemetry::{self, Format},
};
use mco_server::{
    Admission, Certificate, ClusterSource, Settings,
    admission::{AdmissionSettings, Requirement},
    settings::{PLAIN_PORT, SECURE_PORT, all_interfaces},
    source::JoinSettings,
    tls::Policy,
};
use tokio::time::timeout;
use tracing::{Level, error, info};

use crate::{
    print::Screen,
    process::{self, ClientArgs},
};

const IDENTITY: Identity = Identity::new("machine-config-server");

/// Time that threads which are blocked have to end when the server has ended.
const LAST_GRACE: Duration = Duration::from_secs(2);

/// Serve new machines the config of their pool
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServerArgs {
    #[command(subcommand)]
    action: Action,
    /// HTTPS port
    #[arg(long, global = true, default_value_t = SECURE_PORT)]
    secure_port: u16,
    /// HTTP port; 0 disables plain HTTP
    #[arg(long, global = true, default_value_t = PLAIN_PORT)]
    insecure_port: u16,
    /// Certificate file (PEM); reloaded after changes
    #[arg(long, global = true, default_value = "/etc/ssl/mcs/tls.crt")]
    cert: PathBuf,
    /// Key file of the certificate (PEM)
    #[arg(long, global = true, default_value = "/etc/ssl/mcs/tls.key")]
    key: PathBuf,
    /// Minimum TLS version with the names of Kubernetes; `VersionTLS12` is the lowest
    #[arg(long, global = true, default_value = "VersionTLS12")]
    tls_min_version: String,
    /// Cipher suites for TLS 1.2 by IANA name, comma-separated; all secure ones if omitted
    #[arg(long, global = true, value_delimiter = ',')]
    tls_cipher_suites: Vec<String>,
    /// Release version, for the log
    #[arg(long, global = true, env = "RELEASE_VERSION", default_value = "0.0.1-snapshot")]
    payload_version: String,
    /// Log level; 4 and above logs everything
    #[arg(long = "v", global = true, hide = true, default_value_t = 2)]
    verbosity: u8,
}

/// An action of the server.
#[derive(Debug, clap::Subcommand)]
enum Action {
    Start(StartArgs),
    /// Print the version
    Version,
}

/// Serve the configs of a cluster until stopped
#[derive(Debug, clap::Args)]
struct StartArgs {
    /// Address of the API server in the kubeconfig of new machines
    #[arg(long, default_value = "")]
    apiserver_url: String,
    /// Kubeconfig of the cluster; the service account of the pod if omitted
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Directory with the token and ca.crt that new machines join with
    #[arg(long, default_value = "/etc/mcs/bootstrap-token")]
    bootstrap_token_dir: PathBuf,
    /// Address of /metrics, /livez and /readyz
    #[arg(long, default_value = "127.0.0.1:8795", value_name = "ADDRESS")]
    metrics_listen_address: SocketAddr,
    #[command(flatten)]
    client: ClientArgs,
    /// Serve no kubeconfig; new machines then cannot join by themselves
    #[arg(long)]
    without_kubeconfig: bool,
    /// Serve only machines with a join token, whatever the ControllerConfig says; plain HTTP is closed
    #[arg(long)]
    require_join_tokens: bool,
}

const EXAMPLES: &str = "\
Examples:
  mco server start --apiserver-url https://api-int.example.com:6443
  mco server start --apiserver-url https://127.0.0.1:6443 --kubeconfig k --without-kubeconfig";

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(
    args: &ServerArgs,
    verbose: bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let start = match &args.action {
        Action::Version => {
            writeln!(screen, "MachineConfigServer {}", env!("CARGO_PKG_VERSION"))?;
            return Ok(ExitCode::SUCCESS);
        }
        Action::Start(start) => start,
    };
    anyhow::ensure!(!start.apiserver_url.is_empty(), "--apiserver-url cannot be empty");
    let level = if verbose || args.verbosity >= 4 { Level::DEBUG } else { Level::INFO };
    telemetry::start(Format::Json, level)?;
    info!(version = env!("CARGO_PKG_VERSION"), release = args.payload_version, "Starting");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let options = start.client.options(IDENTITY);
    let shutdown = process::on_signals(SHUTDOWN_LIMIT, &options.metrics)?;
    let served = runtime.block_on(serve(args, start, &options, shutdown));
    runtime.shutdown_timeout(LAST_GRACE);
    served?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(
    args: &ServerArgs,
    start: &StartArgs,
    options: &client::Options,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let client = client::connect_with(start.kubeconfig.as_deref(), options).await?;
    let joining = (!start.without_kubeconfig).then(|| JoinSettings {
        server: start.apiserver_url.clone(),
        credentials: start.bootstrap_token_dir.clone(),
    });
    let source = ClusterSource::watch(&client, joining, &shutdown).await;
    let requirement = if start.require_join_tokens {
        Requirement::Always
    } else {
        Requirement::ByControllerConfig
    };
    let mut registry = Registry::default();
    let notes = NoteCount::register(&mut registry);
    let admission = AdmissionSettings { notes, ..AdmissionSettings::new(requirement) };
    let admission = Admission::watch(&client, admission, source.health(), &shutdown);
    admission.register(&mut registry);
    let admin = admin(start, options, source.health(), registry).await?;
    tokio::spawn(process::wait_for_apiserver(client, admin.readiness(), shutdown.clone()));
    let serving = {
        let shutdown = shutdown.clone();
        tokio::spawn(async move { admin.serve(&shutdown).await })
    };
    let mut settings = settings(args);
    settings.admission = Some(admission);
    let served = mco_server::run(settings, source, &shutdown).await;
    shutdown.request();
    // A connection that does not end is closed with the process.
    if let Ok(served) = timeout(LAST_GRACE, serving).await {
        served.context("the metrics server stopped unexpectedly")?;
    }
    Ok(served?)
}

/// Opens the address of the metrics and the health.
async fn admin(
    start: &StartArgs,
    options: &client::Options,
    health: &Health,
    mut registry: Registry,
) -> anyhow::Result<Admin> {
    options.metrics.register(&mut registry);
    health.register(&mut registry);
    let admin = Admin::listen(start.metrics_listen_address, Arc::new(registry)).await?;
    Ok(admin.with_health(health.clone()))
}

fn settings(args: &ServerArgs) -> Settings {
    let (floor, suites) = (&args.tls_min_version, &args.tls_cipher_suites);
    info!(floor, ?suites, "TLS settings");
    let policy = Policy::parse(floor, suites).unwrap_or_else(|error| {
        // Compat: invalid TLS settings do not stop the server (pkg/controller/common/helpers.go).
        let error = report::chain(&error);
        error!(error, "Error using provided tls arguments; using the defaults");
        Policy::default()
    });
    let mut settings = Settings::new(Certificate::files(&args.cert, &args.key));
    settings.secure = all_interfaces(args.secure_port);
    settings.plain = (args.insecure_port != 0).then(|| all_interfaces(args.insecure_port));
    settings.policy = policy;
    settings
}
