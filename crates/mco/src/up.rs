//! A whole cluster in one process, on simulated machines.
//!
//! Operator, controller, server and daemons are the real ones and communicate only through the API
//! server. Simulated are the machines (directories as disks, no kernel to boot), the kubelets, the
//! scheduler and a workload.

mod certificate;
mod components;
pub(crate) mod display;
pub(crate) mod fleet;
mod kubelet;
pub(crate) mod kubelets;
pub(crate) mod state_dir;
pub(crate) mod view;
mod workload;

use std::{
    io::Write as _,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use kube::Client;
use mco_apiserver::{ApiServer, Listener, Settings as ApiSettings};
use mco_cluster::{Shutdown, client};
use mco_core::render::Build;
use tokio::task::JoinSet;

use self::{
    components::Components,
    display::{ClusterWatch, DisplayMode},
    state_dir::StateDir,
};
use crate::{
    print::{self, Screen},
    remote::{self, DEFAULT_DIR},
};

/// Time that the components may take to stop.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// Settings of the cluster.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) masters: u16,
    pub(crate) workers: u16,
    /// Address of the API server.
    pub(crate) listen: SocketAddr,
    /// Address of the config server for new machines.
    pub(crate) server_listen: SocketAddr,
    /// Directory as given by the user, for the printed commands.
    pub(crate) shown_dir: PathBuf,
    pub(crate) display: DisplayMode,
}

/// Runs the cluster until a signal arrives or a component fails.
pub(crate) async fn run(
    state: &StateDir,
    settings: &Settings,
    screen: &mut Screen<'_>,
) -> anyhow::Result<()> {
    client::use_ring();
    let shutdown = Shutdown::on_signals()?;
    let api = ApiServer::open_dir(state.dir(), ApiSettings::default()).await?;
    let listener = Listener::bind(api.clone(), state.dir(), settings.listen).await?;
    let client = Client::new(api.clone(), "default");
    // The operator installs the CRDs too; installed here, no component has to wait for them.
    mco_operator::install(&client).await?;
    let address = listener.address();
    // The API server stops last, so that the components can write their final state.
    let end_of_api = Shutdown::new();
    let ended = end_of_api.clone();
    let serving =
        tokio::spawn(async move { listener.serve(async { ended.requested().await }).await });

    let cluster = ClusterWatch::start(&client, &shutdown);
    let tasks = JoinSet::new();
    let mut components = Components { state, settings, client, shutdown: shutdown.clone(), tasks };
    fleet::remove_surplus(&components.client, state, settings).await?;
    components.operator(build());
    components.controller(build());
    let shown = match components.server(address).await {
        Err(error) => Err(error),
        Ok(None) => Ok(()),
        Ok(Some(server)) => {
            components.machines(server)?;
            components.workload(&cluster);
            print_welcome(settings, address, server, screen)?;
            tokio::select! {
                shown = cluster.show(settings.display, screen, &shutdown) => shown.map_err(anyhow::Error::from),
                failed = components::first_failure(&mut components.tasks) => Err(failed),
            }
        }
    };
    shutdown.request();
    let all = async { while components.tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(SHUTDOWN_TIMEOUT, all).await.is_err() {
        print::note("some components did not stop in time and were aborted; their state is kept");
    }
    api.stop();
    end_of_api.request();
    drop(tokio::time::timeout(SHUTDOWN_TIMEOUT, serving).await);
    shown
}

/// Returns the build of the components.
fn build() -> Build {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    Build { hash: version.clone(), version }
}

/// Prints the addresses, the paths and commands to try.
fn print_welcome(
    settings: &Settings,
    api: SocketAddr,
    server: SocketAddr,
    screen: &mut Screen<'_>,
) -> anyhow::Result<()> {
    let dir = settings.shown_dir.display();
    let is_default = settings.shown_dir == Path::new(DEFAULT_DIR);
    let flag = if is_default { String::new() } else { format!(" --dir {dir}") };
    let program = print::program();
    let kubeconfig = remote::kubeconfig(&std::path::absolute(&settings.shown_dir)?);
    writeln!(screen, "Kubernetes API  https://{api}")?;
    writeln!(screen, "Config server   https://{server}/config/worker")?;
    writeln!(screen, "Disks           {dir}/nodes/NODE")?;
    writeln!(screen, "\nTry in another terminal:")?;
    writeln!(screen, "  export KUBECONFIG={}", quoted(&kubeconfig))?;
    writeln!(screen, "  {program} status{flag} -w")?;
    writeln!(screen, "  {program} apply{flag} -f examples/99-worker-custom.yaml")?;
    writeln!(screen, "  kubectl get mc,mcp,nodes\n")?;
    screen.flush()?;
    Ok(())
}

/// Returns a path as a word of a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:@%,".contains(c);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_spaces_is_one_word_of_a_shell() {
        assert_eq!(quoted(Path::new("/a/.mco/kubeconfig")), "/a/.mco/kubeconfig");
        assert_eq!(quoted(Path::new("/it's a/b")), r"'/it'\''s a/b'");
    }
}
