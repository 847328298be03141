//! The whole system in one process, on simulated machines.
//!
//! Every part is the real one, as it would run alone: they meet only in the API server. Simulated
//! are the machines (directories for disks, no kernel to boot) and what a Kubernetes cluster would
//! bring along: kubelets, a scheduler, a workload.

mod fleet;
mod identity;
mod kubelet;
pub(crate) mod live;
mod parts;
pub(crate) mod place;
pub(crate) mod surroundings;
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
    live::{Show, Sight},
    parts::Parts,
    place::Place,
};
use crate::{
    print::{self, Screen},
    remote::DIR,
};

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
    // The operator does the same; done first, nobody has to wait for the kinds.
    mco_operator::install(&client).await?;
    let address = listener.address();
    // The API outlives its users, so that they can say goodbye.
    let end_of_api = Shutdown::new();
    let ended = end_of_api.clone();
    let serving =
        tokio::spawn(async move { listener.serve(async { ended.requested().await }).await });

    let sight = Sight::start(&client, &shutdown);
    let tasks = JoinSet::new();
    let mut parts = Parts { place, settings, client, shutdown: shutdown.clone(), tasks };
    parts.operator(build()).await?;
    parts.controller(build());
    parts.machines();
    parts.workload(&sight);
    let server = parts.server().await?;
    hello(settings, address, server, screen)?;
    let shown = tokio::select! {
        shown = sight.show(settings.show, screen, &shutdown) => shown.map_err(anyhow::Error::from),
        failed = parts::first_failure(&mut parts.tasks) => Err(failed),
    };
    shutdown.request();
    let all = async { while parts.tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(GRACE, all).await.is_err() {
        print::note("some parts did not stop in time and were cut off; nothing is lost");
    }
    api.stop();
    end_of_api.request();
    drop(tokio::time::timeout(GRACE, serving).await);
    shown
}

/// Which build the parts are of.
fn build() -> Build {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    Build { hash: version.clone(), version }
}

/// Says where everything is and what to try.
fn hello(
    settings: &Settings,
    api: SocketAddr,
    server: SocketAddr,
    screen: &mut Screen<'_>,
) -> anyhow::Result<()> {
    let dir = settings.shown_dir.display();
    let flag =
        if settings.shown_dir == Path::new(DIR) { String::new() } else { format!(" --dir {dir}") };
    writeln!(screen, "Kubernetes API  https://{api}")?;
    writeln!(screen, "Config server   https://{server}/config/worker")?;
    writeln!(screen, "Kubeconfig      {dir}/kubeconfig")?;
    writeln!(screen, "Disks           {dir}/nodes/NODE")?;
    writeln!(screen, "\nTry in another terminal:")?;
    writeln!(screen, "  mco status{flag} -w")?;
    writeln!(screen, "  mco apply{flag} -f examples/99-worker-custom.yaml")?;
    writeln!(screen, "  kubectl --kubeconfig {dir}/kubeconfig get mc,mcp,nodes\n")?;
    screen.flush()?;
    Ok(())
}
