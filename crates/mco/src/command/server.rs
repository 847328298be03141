//! `mco server`: serves new machines the config of their pool, with the reference's flags.

use std::{
    io::Write as _,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use mco_cluster::{
    Clock, Health, NoteCount, Shutdown,
    admin::{Admin, Registry},
    client::{self, Identity},
    shutdown::SHUTDOWN_LIMIT,
    telemetry::{self, Format},
    tls::Policy,
};
use mco_server::{
    Admission, BootstrapSource, Certificate, ClusterSource, Metrics, Settings, Source,
    admission::{AdmissionSettings, Requirement},
    settings::{PLAIN_PORT, SECURE_PORT},
    source::{self, BootstrapSettings, JoinSettings, RegistryCaFile},
};
use tokio::time::timeout;
use tracing::{Level, info};

use crate::{
    print::Screen,
    process::{self, ClientArgs, TlsArgs},
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
    /// IP address of both ports
    #[arg(long, global = true, hide = true, default_value = "::", value_name = "IP")]
    listen_ip: IpAddr,
    /// HTTP port; 0 disables plain HTTP
    #[arg(long, global = true, default_value_t = PLAIN_PORT)]
    insecure_port: u16,
    /// Certificate file (PEM); reloaded after changes
    #[arg(long, global = true, default_value = "/etc/ssl/mcs/tls.crt")]
    cert: PathBuf,
    /// Key file of the certificate (PEM)
    #[arg(long, global = true, default_value = "/etc/ssl/mcs/tls.key")]
    key: PathBuf,
    #[command(flatten)]
    tls: TlsArgs,
    /// Release version, for the log
    #[arg(long, global = true, env = "RELEASE_VERSION", default_value = "0.0.1-snapshot")]
    payload_version: String,
    /// Address of /metrics, /livez and /readyz
    #[arg(long, global = true, default_value = "127.0.0.1:8795", value_name = "ADDRESS")]
    metrics_listen_address: SocketAddr,
    /// Log level; 4 and above logs everything
    #[arg(long = "v", global = true, hide = true, default_value_t = 2)]
    verbosity: u8,
}

/// An action of the server.
#[derive(Debug, clap::Subcommand)]
enum Action {
    Start(StartArgs),
    Bootstrap(BootstrapArgs),
    /// Print the version
    Version,
}

/// Serve the configs of a cluster until stopped
#[derive(Debug, clap::Args)]
struct StartArgs {
    /// URL of the API server in the kubeconfig of new machines; `auto` takes it from the
    /// ControllerConfig, the ConfigMap kube-public/cluster-info or the Service default/kubernetes
    #[arg(long, default_value = "", value_name = "URL", hide_default_value = true)]
    apiserver_url: String,
    /// Kubeconfig of the cluster; the service account of the pod if omitted
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Directory with the token and ca.crt that new machines join with
    #[arg(long, default_value = "/etc/mcs/bootstrap-token")]
    bootstrap_token_dir: PathBuf,
    #[command(flatten)]
    client: ClientArgs,
    /// Serve no kubeconfig; new machines then cannot join by themselves
    #[arg(long)]
    without_kubeconfig: bool,
    /// Serve only machines with a join token, whatever the ControllerConfig says; plain HTTP is closed
    #[arg(long)]
    require_join_tokens: bool,
}

/// Serve the first machines of a cluster from the disk, until the cluster runs
#[derive(Debug, clap::Args)]
struct BootstrapArgs {
    /// Directory that `mco controller bootstrap` wrote
    #[arg(long, default_value = "/etc/mcs/bootstrap", value_name = "DIR")]
    server_basedir: PathBuf,
    /// Kubeconfig that machines get as it is
    #[arg(long, default_value = "/etc/kubernetes/kubeconfig", value_name = "FILE")]
    bootstrap_kubeconfig: PathBuf,
    /// CA certificates of an image registry, in a file below the directory; repeated or
    /// comma-separated
    #[arg(long, value_delimiter = ',', value_name = "HOST=FILE")]
    bootstrap_certs: Vec<RegistryCaFile>,
}

const EXAMPLES: &str = "\
Examples:
  mco server start --apiserver-url auto
  mco server start --apiserver-url https://api-int.example.com:6443
  mco server start --apiserver-url https://127.0.0.1:6443 --kubeconfig k --without-kubeconfig
  mco server bootstrap --server-basedir out --bootstrap-kubeconfig kubeconfig \\
    --bootstrap-certs registry.example.com:5000=certs/registry.crt";

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(
    args: &ServerArgs,
    verbose: bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let options = match &args.action {
        Action::Version => {
            writeln!(screen, "MachineConfigServer {}", env!("CARGO_PKG_VERSION"))?;
            return Ok(ExitCode::SUCCESS);
        }
        Action::Start(start) => {
            anyhow::ensure!(!start.apiserver_url.is_empty(), "--apiserver-url cannot be empty");
            start.client.options(IDENTITY)
        }
        Action::Bootstrap(_) => client::Options::default(),
    };
    let level = if verbose || args.verbosity >= 4 { Level::DEBUG } else { Level::INFO };
    telemetry::start(Format::Json, level)?;
    info!(version = env!("CARGO_PKG_VERSION"), release = args.payload_version, "Starting");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let shutdown = process::on_signals(SHUTDOWN_LIMIT, &options.metrics)?;
    let served = runtime.block_on(async {
        match &args.action {
            Action::Start(start) => serve_cluster(args, start, &options, shutdown).await,
            Action::Bootstrap(from) => serve_bootstrap(args, from, shutdown).await,
            Action::Version => Ok(()),
        }
    });
    runtime.shutdown_timeout(LAST_GRACE);
    served?;
    Ok(ExitCode::SUCCESS)
}

async fn serve_cluster(
    args: &ServerArgs,
    start: &StartArgs,
    options: &client::Options,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let client = client::connect_with(start.kubeconfig.as_deref(), options).await?;
    let server = start.apiserver_url.parse()?;
    let joining = (!start.without_kubeconfig)
        .then(|| JoinSettings { server, credentials: start.bootstrap_token_dir.clone() });
    let source = ClusterSource::watch(&client, joining, &shutdown).await;
    let mut settings = settings(args, args.tls.policy());
    let requirement = if start.require_join_tokens {
        Requirement::Always
    } else {
        Requirement::ByControllerConfig
    };
    let mut registry = Registry::default();
    let notes = NoteCount::register(&mut registry);
    let admission = AdmissionSettings { notes, ..AdmissionSettings::new(requirement) };
    let admission = Admission::watch(&client, admission, source.health(), &shutdown);
    options.metrics.register(&mut registry);
    admission.register(&mut registry);
    settings.admission = Some(admission);
    let admin = admin(args, registry, source.health(), &settings.metrics).await?;
    tokio::spawn(process::wait_for_apiserver(client, admin.readiness(), shutdown.clone()));
    serve(settings, source, admin, shutdown).await
}

async fn serve_bootstrap(
    args: &ServerArgs,
    from: &BootstrapArgs,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let source = BootstrapSettings {
        folder: from.server_basedir.clone(),
        kubeconfig: from.bootstrap_kubeconfig.clone(),
        registry_cas: from.bootstrap_certs.clone(),
    };
    let source = BootstrapSource::open(source, Clock::System).await?;
    let policy = if args.tls.is_given() {
        args.tls.policy()
    } else {
        source::tls_policy(&from.server_basedir).await
    };
    let settings = settings(args, policy);
    let admin = admin(args, Registry::default(), &Health::default(), &settings.metrics).await?;
    admin.readiness().set_ready();
    serve(settings, source, admin, shutdown).await
}

async fn serve(
    settings: Settings,
    source: impl Source,
    admin: Admin,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let serving = {
        let shutdown = shutdown.clone();
        tokio::spawn(async move { admin.serve(&shutdown).await })
    };
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
    args: &ServerArgs,
    mut registry: Registry,
    health: &Health,
    metrics: &Metrics,
) -> anyhow::Result<Admin> {
    health.register(&mut registry);
    metrics.register(&mut registry);
    let admin = Admin::listen(args.metrics_listen_address, Arc::new(registry)).await?;
    Ok(admin.with_health(health.clone()))
}

fn settings(args: &ServerArgs, policy: Policy) -> Settings {
    info!(?policy, "TLS settings");
    let mut settings = Settings::new(Certificate::files(&args.cert, &args.key));
    let address = |port: u16| SocketAddr::new(args.listen_ip, port);
    settings.secure = address(args.secure_port);
    settings.plain = (args.insecure_port != 0).then(|| address(args.insecure_port));
    settings.policy = policy;
    settings
}
