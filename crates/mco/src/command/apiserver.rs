//! `mco apiserver`: runs the embedded Kubernetes API server.

use std::{io::Write as _, net::SocketAddr, path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use mco_apiserver::{ApiServer, Authorization, Listener, Settings};
use mco_cluster::telemetry::{self, Format};
use tokio::signal::unix::{SignalKind, signal};

use crate::print::Screen;

/// Run the embedded Kubernetes API server until stopped
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ApiserverArgs {
    /// Directory for state, keys and the kubeconfig; a later start continues with the state in it
    #[arg(long, default_value = ".mco/apiserver")]
    dir: PathBuf,
    /// Loopback address to listen on; port 0 selects a free one
    #[arg(long, default_value = "127.0.0.1:6443")]
    listen: SocketAddr,
    /// Rights of authenticated callers: everything, or what stored roles and bindings allow. The
    /// kubeconfig is the administrator's, who may do everything
    #[arg(long, value_enum, default_value_t, value_name = "RIGHTS")]
    authorization: Rights,
}

/// The rights of authenticated callers.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum Rights {
    #[default]
    Everything,
    Roles,
}

impl From<Rights> for Authorization {
    fn from(rights: Rights) -> Self {
        match rights {
            Rights::Everything => Self::Everything,
            Rights::Roles => Self::Roles,
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  mco apiserver --dir /tmp/api --listen 127.0.0.1:0
  mco apiserver --dir /tmp/api --authorization roles
  mco apiserver --dir /tmp/api --verbose
  kubectl --kubeconfig /tmp/api/kubeconfig get nodes";

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(
    args: &ApiserverArgs,
    verbose: bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let level = if verbose { tracing::Level::DEBUG } else { tracing::Level::INFO };
    telemetry::start(Format::Text, level)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let settings = Settings { authorization: args.authorization.into(), ..Settings::default() };
        let api = ApiServer::open_dir(&args.dir, settings).await?;
        let listener = Listener::bind(api, &args.dir, args.listen).await?;
        writeln!(screen, "listening on https://{}", listener.address())?;
        writeln!(screen, "kubeconfig: {}", listener.kubeconfig().display())?;
        screen.flush()?;
        let handler = "failed to install signal handlers";
        let mut terminated = signal(SignalKind::terminate()).context(handler)?;
        let mut interrupted = signal(SignalKind::interrupt()).context(handler)?;
        let stop = async move {
            tokio::select! {
                _ = terminated.recv() => {}
                _ = interrupted.recv() => {}
            }
        };
        listener.serve(stop).await;
        Ok(ExitCode::SUCCESS)
    })
}
