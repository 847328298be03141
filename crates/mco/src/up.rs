//! The whole system in one process, on simulated machines.
//!
//! Every part is the real one, as it would run alone: they meet only in the API server. Simulated
//! are the machines (directories for disks, no kernel to boot) and what a Kubernetes cluster would
//! bring along: kubelets, a scheduler, a workload.

pub(crate) mod fleet;
pub(crate) mod install;
pub(crate) mod kubelet;
pub(crate) mod live;
pub(crate) mod place;
pub(crate) mod view;
pub(crate) mod workload;

use std::{io::Write as _, net::SocketAddr, path::PathBuf, time::Duration};

use kube::Client;
use mco_apiserver::{ApiServer, Listener, Settings as ApiSettings};
use mco_cluster::{Clock, Shutdown, client};
use tokio::{sync::watch, task::JoinSet};

use self::{
    fleet::Power,
    kubelet::Pulse,
    live::{Show, Sight},
    place::Place,
};
use crate::print::{self, Screen};

/// How long the parts may take to stop.
const GRACE: Duration = Duration::from_secs(10);

/// What to run.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) masters: u16,
    pub(crate) workers: u16,
    /// Where the API listens.
    pub(crate) listen: SocketAddr,
    /// Where machines get their configs.
    pub(crate) server_listen: SocketAddr,
    /// The directory as it was named, for the commands to try.
    pub(crate) shown_dir: PathBuf,
    pub(crate) show: Show,
}

/// Runs everything until a signal comes.
pub(crate) async fn run(
    place: &Place,
    settings: &Settings,
    screen: &mut Screen<'_>,
) -> anyhow::Result<()> {
    client::use_ring();
    let shutdown = Shutdown::on_signals()?;
    let api = ApiServer::open_dir(place.dir(), ApiSettings::default()).await?;
    let listener = Listener::bind(api.clone(), place.dir(), settings.listen).await?;
    let client = Client::new(api.clone(), "default");
    install::all(&client).await?;
    let address = listener.address();
    // The API outlives its users, so that they can say goodbye.
    let end_of_api = Shutdown::new();
    let ended = end_of_api.clone();
    let serving =
        tokio::spawn(async move { listener.serve(async { ended.requested().await }).await });

    let mut parts = JoinSet::new();
    let sight = Sight::start(&client, &shutdown);
    start(place, settings, &client, &sight, &shutdown, &mut parts);
    hello(settings, address, screen)?;
    let shown = tokio::select! {
        shown = sight.show(settings.show, screen, &shutdown) => shown,
        failed = first_failure(&mut parts) => {
            print::failure(&failed);
            Ok(())
        }
    };
    shutdown.request();
    let all = async { while parts.join_next().await.is_some() {} };
    if tokio::time::timeout(GRACE, all).await.is_err() {
        print::note("some parts did not stop in time and were cut off; nothing is lost");
    }
    api.stop();
    end_of_api.request();
    drop(tokio::time::timeout(GRACE, serving).await);
    Ok(shown?)
}

/// Starts every part.
fn start(
    place: &Place,
    settings: &Settings,
    client: &Client,
    sight: &Sight,
    shutdown: &Shutdown,
    parts: &mut JoinSet<()>,
) {
    for machine in fleet::machines(settings.masters, settings.workers) {
        let (_sender, pulse) = watch::channel(Pulse { power: Power::Up, boot_id: String::new() });
        let _root = place.node(machine.name.as_str());
        parts.spawn(kubelet::run(client.clone(), machine, Clock::System, pulse, shutdown.clone()));
    }
    let nodes = sight.nodes.clone();
    let wanted = usize::from(settings.workers);
    parts.spawn(workload::run(client.clone(), nodes, wanted, shutdown.clone()));
}

/// Waits until a part fails; parts that end well are not missed.
async fn first_failure(parts: &mut JoinSet<()>) -> anyhow::Error {
    loop {
        match parts.join_next().await {
            Some(Ok(())) => {}
            Some(Err(error)) => {
                return anyhow::Error::new(error).context("a part of the system broke");
            }
            None => std::future::pending().await,
        }
    }
}

/// Says where everything is and what to try.
fn hello(settings: &Settings, api: SocketAddr, screen: &mut Screen<'_>) -> anyhow::Result<()> {
    let dir = settings.shown_dir.display();
    writeln!(screen, "Kubernetes API  https://{api}")?;
    writeln!(screen, "Kubeconfig      {dir}/kubeconfig")?;
    writeln!(screen, "Disks           {dir}/nodes/NODE")?;
    writeln!(screen, "\nTry in another terminal:")?;
    writeln!(screen, "  mco status --dir {dir}")?;
    writeln!(screen, "  mco apply --dir {dir} -f examples/99-worker-custom.yaml")?;
    writeln!(screen, "  kubectl --kubeconfig {dir}/kubeconfig get mc,mcp,nodes\n")?;
    screen.flush()?;
    Ok(())
}
