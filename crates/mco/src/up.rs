//! A whole cluster in one process, on simulated machines.
//!
//! Operator, controller, server and daemons are the real ones and communicate only through the API
//! server. Simulated are the machines (directories as disks, no kernel to boot), the kubelets, the
//! scheduler and a workload.

mod bar;
mod bootstrap_token;
mod certificate;
mod component_pods;
mod components;
mod controllers;
pub(crate) mod display;
pub(crate) mod existing;
pub(crate) mod fleet;
mod kubelet;
pub(crate) mod kubelets;
pub(crate) mod logs;
pub(crate) mod processes;
mod rights;
pub(crate) mod scenario;
pub(crate) mod state_dir;
pub(crate) mod terminal;
pub(crate) mod view;
mod workload;
mod zones;

use std::{
    io::Write as _,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use mco_apiserver::{ApiServer, Authorization, Kubelets, Listener, Settings as ApiSettings};
use mco_cluster::{Shutdown, client};
use mco_core::render::Build;
use tokio::task::JoinSet;

use self::{
    components::Components,
    display::{ClusterWatch, DisplayMode},
    fleet::Workers,
    logs::ComponentLogs,
    processes::Joining,
    rights::Identities,
    scenario::{Scenario, Stage},
    state_dir::StateDir,
};
use crate::{
    print::{self, Screen},
    remote::{self, DEFAULT_DIR},
};

/// Time that the components may take to stop.
pub(crate) const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// Settings of the cluster.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) masters: u16,
    pub(crate) workers: Workers,
    /// Address of the API server.
    pub(crate) listen: SocketAddr,
    /// Address of the config server for new machines.
    pub(crate) server_listen: SocketAddr,
    /// Directory as given by the user, for the printed commands.
    pub(crate) shown_dir: PathBuf,
    pub(crate) display: DisplayMode,
    /// Logs of the components.
    pub(crate) logs: ComponentLogs,
    /// Number of failure zones; nodes have no zone without it.
    pub(crate) zones: Option<u16>,
    /// Scenario to play, after which the cluster stops.
    pub(crate) story: Option<Scenario>,
    /// True if each component is a process of its own.
    pub(crate) processes: bool,
}

/// Runs the cluster until a signal arrives or a component fails.
pub(crate) async fn run(
    state: &StateDir,
    settings: &Settings,
    screen: &mut Screen<'_>,
) -> anyhow::Result<()> {
    client::use_ring();
    if settings.display == DisplayMode::Redraw {
        print::note("starting the API server, the operator, the controller and the config server");
    }
    let shutdown = Shutdown::on_signals()?;
    let kubelets: Arc<dyn Kubelets> = Arc::new(settings.logs.clone());
    let api = ApiSettings {
        kubelets: Some(kubelets),
        authorization: Authorization::Roles,
        on_denied: Some(rights::report_denied()),
        ..ApiSettings::default()
    };
    let api = ApiServer::open_dir(state.dir(), api).await?;
    let listener =
        Listener::bind_as(&state.context(), api.clone(), state.dir(), settings.listen).await?;
    let identities = Identities::new(&api);
    let client = identities.own();
    // The operator installs the CRDs too; installed here, no component has to wait for them.
    mco_operator::install(&client).await?;
    rights::install(&client).await?;
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
    let shown = match start(&mut components, &identities, address).await {
        Err(error) => Err(error),
        Ok(None) => Ok(()),
        Ok(Some(server)) => {
            components.simulation(&cluster);
            print_welcome(settings, address, server, screen)?;
            let (client, api, shutdown) = (components.client.clone(), api.clone(), &shutdown);
            let scene =
                Stage { client, api, identities, cluster, state, settings, server, shutdown };
            tokio::select! {
                shown = show(&scene, screen) => shown,
                failed = components::first_failure(&mut components.tasks) => Err(failed),
            }
        }
    };
    stop_all(&mut components).await;
    api.stop();
    end_of_api.request();
    drop(tokio::time::timeout(SHUTDOWN_TIMEOUT, serving).await);
    shown
}

/// Starts operator, controller, server and machines, and returns the address of the server. Returns none
/// if the cluster is stopped before.
async fn start(
    components: &mut Components<'_>,
    identities: &Identities,
    api: SocketAddr,
) -> anyhow::Result<Option<SocketAddr>> {
    if components.settings.processes {
        return processes::start(components, &format!("https://{api}"), Joining::ByToken).await;
    }
    components.operator(identities, build());
    components.controller(identities, build());
    let server = components.server(identities, api).await?;
    if let Some(server) = server {
        components.machines(identities, server).await?;
    }
    Ok(server)
}

/// Stops the components and waits until they have ended.
async fn stop_all(components: &mut Components<'_>) {
    components.shutdown.request();
    let all = async { while components.tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(SHUTDOWN_TIMEOUT, all).await.is_err() {
        print::note("some components did not stop in time and were aborted; their state is kept");
    }
}

/// Plays the scenario, or prints every change until shutdown.
async fn show(stage: &Stage<'_>, screen: &mut Screen<'_>) -> anyhow::Result<()> {
    let (settings, shutdown) = (stage.settings, stage.shutdown);
    let Some(story) = settings.story else {
        return Ok(stage.cluster.show(settings.display, screen, shutdown).await?);
    };
    tokio::select! {
        () = shutdown.requested() => Ok(()),
        played = stage.play(story, screen) => played,
    }
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
    if settings.processes {
        writeln!(screen, "Logs            {dir}/{}/PROCESS.log", state_dir::LOGS)?;
    }
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
