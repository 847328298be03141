//! Follows a cluster and shows it: redrawn in place on a terminal, as lines elsewhere.

use std::{
    fmt::Debug,
    io::{self, Write as _},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, Resource, runtime::watcher};
use mco_api::{ClusterOperator, MachineConfigPool};
use mco_cluster::{Cache, Shutdown, cache::trim};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use super::view::View;
use crate::{print::Screen, remote::table};

/// Changes within this time are shown together.
const TOGETHER: Duration = Duration::from_millis(100);

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Show {
    /// Drawn again in the same place.
    InPlace,
    /// A line for each change.
    Lines,
}

/// Local copies of what is shown.
#[derive(Clone, Debug)]
pub(crate) struct Sight {
    pub(crate) nodes: Arc<Cache<Node>>,
    pools: Arc<Cache<MachineConfigPool>>,
    operators: Arc<Cache<ClusterOperator>>,
    changed: Arc<Notify>,
}

impl Sight {
    /// Starts to follow the cluster.
    pub(crate) fn start(client: &Client, shutdown: &Shutdown) -> Self {
        let changed = Arc::new(Notify::new());
        Self {
            nodes: follow(client, shutdown, &changed),
            pools: follow(client, shutdown, &changed),
            operators: follow(client, shutdown, &changed),
            changed,
        }
    }

    /// What there is to see now.
    pub(crate) async fn view(&self) -> View {
        self.nodes.ready().await;
        self.pools.ready().await;
        self.operators.ready().await;
        let operator = self.operators.get(mco_api::label::CLUSTER_OPERATOR);
        let (pools, nodes) = (self.pools.list(), self.nodes.list());
        View::of(operator.as_deref(), pools.iter().map(|p| &**p), nodes.iter().map(|n| &**n))
    }

    /// Waits for the next change.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Shows every change until told to stop.
    pub(crate) async fn show(
        &self,
        how: Show,
        screen: &mut Screen<'_>,
        shutdown: &Shutdown,
    ) -> io::Result<()> {
        let mut before = View::default();
        let mut drawn = 0;
        loop {
            let view = tokio::select! {
                () = shutdown.requested() => return Ok(()),
                view = self.view() => view,
            };
            if view != before {
                match how {
                    Show::InPlace => drawn = draw(&view, drawn, screen)?,
                    Show::Lines => {
                        for line in view.news(&before) {
                            writeln!(screen, "{}", crate::print::visible(&line))?;
                        }
                    }
                }
                screen.flush()?;
                before = view;
            }
            tokio::select! {
                () = shutdown.requested() => return Ok(()),
                () = self.changed() => {}
            }
            if how == Show::InPlace {
                tokio::time::sleep(TOGETHER).await;
            }
        }
    }
}

/// Draws over the last `drawn` lines; says how many there are now.
fn draw(view: &View, drawn: usize, screen: &mut Screen<'_>) -> io::Result<usize> {
    let mut text = Vec::new();
    write(view, &mut text)?;
    let text = String::from_utf8_lossy(&text);
    if drawn > 0 {
        write!(screen, "\u{1b}[{drawn}A")?;
    }
    // From here to the end of the screen; long lines are cut, or they would take more than one.
    write!(screen, "\u{1b}[J\u{1b}[?7l")?;
    screen.write_all(text.as_bytes())?;
    write!(screen, "\u{1b}[?7h")?;
    Ok(text.lines().count())
}

/// Writes the whole view once.
pub(crate) fn write(view: &View, out: &mut dyn io::Write) -> io::Result<()> {
    if let Some(operator) = &view.operator {
        writeln!(out, "{}\n", crate::print::visible(operator))?;
    }
    let [pools, nodes] = view.tables();
    table::write(out, &pools)?;
    writeln!(out)?;
    table::write(out, &nodes)?;
    if !view.trouble.is_empty() {
        writeln!(out)?;
    }
    for line in &view.trouble {
        writeln!(out, "{}", crate::print::visible(line))?;
    }
    Ok(())
}

fn follow<K>(client: &Client, shutdown: &Shutdown, changed: &Arc<Notify>) -> Arc<Cache<K>>
where
    K: Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    let cache = Arc::new(Cache::<K>::new(trim::metadata));
    let told = Arc::clone(changed);
    cache.on_change(move |_| told.notify_one());
    let (kept, api, shutdown) = (Arc::clone(&cache), Api::all(client.clone()), shutdown.clone());
    tokio::spawn(async move { kept.run(api, watcher::Config::default(), &shutdown).await });
    cache
}
