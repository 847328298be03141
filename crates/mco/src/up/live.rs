//! Follows a cluster and shows it: redrawn in place on a terminal, as lines elsewhere.

use std::{
    fmt::Debug,
    io::{self, Write as _},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, Resource, ResourceExt as _, runtime::watcher};
use mco_api::{ClusterOperator, MachineConfigPool, label};
use mco_cluster::{Cache, Shutdown, cache::trim};
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, mpsc};

use super::view::{NodeLine, PoolLine, View, operator_line};
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
        let operator = self.operators.get(label::CLUSTER_OPERATOR);
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
        match how {
            Show::InPlace => self.redraw(screen, shutdown).await,
            Show::Lines => self.tell(screen, shutdown).await,
        }
    }

    /// Writes a line for each change, in their order: none is passed over, however fast they come.
    async fn tell(&self, screen: &mut Screen<'_>, shutdown: &Shutdown) -> io::Result<()> {
        let (sender, mut news) = mpsc::unbounded_channel();
        let ours = |operator: &ClusterOperator| operator.name_any() == label::CLUSTER_OPERATOR;
        listen(&self.operators, &sender, move |it| ours(it).then(|| operator_line(it)));
        listen(&self.nodes, &sender, |node| Some(NodeLine::of(node).to_string()));
        listen(&self.pools, &sender, |pool| Some(PoolLine::of(pool).to_string()));
        loop {
            let line = tokio::select! {
                () = shutdown.requested() => return Ok(()),
                line = news.recv() => line.expect("the sender is still here"),
            };
            writeln!(screen, "{}", crate::print::visible(&line))?;
            if news.is_empty() {
                screen.flush()?;
            }
        }
    }

    /// Draws everything again whenever something has changed.
    async fn redraw(&self, screen: &mut Screen<'_>, shutdown: &Shutdown) -> io::Result<()> {
        let mut before = View::default();
        let mut drawn = 0;
        loop {
            let view = tokio::select! {
                () = shutdown.requested() => return Ok(()),
                view = self.view() => view,
            };
            if view != before {
                drawn = draw(&view, drawn, screen)?;
                screen.flush()?;
                before = view;
            }
            tokio::select! {
                () = shutdown.requested() => return Ok(()),
                () = self.changed() => {}
            }
            tokio::time::sleep(TOGETHER).await;
        }
    }
}

/// Draws over the last `drawn` lines; says how many there are now.
fn draw(view: &View, drawn: usize, screen: &mut Screen<'_>) -> io::Result<usize> {
    let text = fitting(view, rows())?;
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

/// How many lines the terminal shows; `None` if it does not say.
fn rows() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    (size.ws_row > 0).then_some(usize::from(size.ws_row))
}

/// As much of the view as `rows` lines show: what has scrolled away cannot be drawn over.
fn fitting(view: &View, rows: Option<usize>) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    write(view, &mut text)?;
    let lines = String::from_utf8_lossy(&text).lines().count();
    // The cursor stands on a line of its own below the last one.
    let surplus = rows.map_or(0, |rows| (lines + 1).saturating_sub(rows));
    if surplus > 0 {
        text.clear();
        // One more goes for the line that says how many are not shown.
        let shown = view.nodes.len().saturating_sub(surplus + 1);
        write(&view.busiest(shown), &mut text)?;
        let hidden = view.nodes.len() - shown;
        writeln!(text, "and {hidden} more nodes; `mco status` shows all")?;
    }
    Ok(text)
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

/// Sends the line of each object that changes, where the change shows in it.
fn listen<K>(
    cache: &Cache<K>,
    news: &mpsc::UnboundedSender<String>,
    line: impl Fn(&K) -> Option<String> + Send + Sync + 'static,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let news = news.clone();
    cache.on_change(move |change| {
        let (before, after) = (change.before.and_then(|it| line(it)), change.after);
        if let Some(line) =
            after.and_then(|it| line(it)).filter(|line| before.as_ref() != Some(line))
        {
            // Nobody reads it once the process ends.
            drop(news.send(line));
        }
    });
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_change_that_shows_is_news_in_the_order_of_changes() {
        let cache = Cache::<Node>::new(|_| {});
        let (sender, mut news) = mpsc::unbounded_channel();
        listen(&cache, &sender, |node| Some(NodeLine::of(node).to_string()));
        let node = |version: u32, cordoned: bool, label: &str| -> Node {
            serde_json::from_value(json!({
                "metadata": {"name": "a", "resourceVersion": version.to_string(),
                             "labels": {"note": label}},
                "spec": {"unschedulable": cordoned},
            }))
            .unwrap()
        };
        cache.learn_new(node(1, false, "x"));
        cache.learn_new(node(2, false, "y"));
        cache.learn_new(node(3, true, "y"));
        cache.learn_new(node(4, false, "y"));
        let lines: Vec<String> = std::iter::from_fn(|| news.try_recv().ok()).collect();
        let want = ["NotReady", "NotReady,SchedulingDisabled", "NotReady"];
        assert_eq!(lines, want.map(|standing| format!("node a: {standing}, Unknown")));
    }

    fn node(number: u32) -> Node {
        // All are at rest but the last one.
        let state = if number == 29 { "Working" } else { "Done" };
        let annotations = json!({"machineconfiguration.openshift.io/state": state});
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let name = format!("worker-{number:02}");
        let metadata = json!({"name": name, "annotations": annotations});
        serde_json::from_value(json!({"metadata": metadata, "status": {"conditions": ready}}))
            .unwrap()
    }

    #[test]
    fn a_view_never_has_more_lines_than_the_terminal() {
        let nodes: Vec<Node> = (0..30).map(node).collect();
        let view = View::of(None, [], &nodes);
        let text = |rows| String::from_utf8(fitting(&view, rows).unwrap()).unwrap();
        let whole = text(None);
        assert_eq!(text(Some(200)), whole, "there is room for all");
        assert!(whole.contains("worker-28"));
        let cut = text(Some(24));
        assert_eq!(cut.lines().count(), 23, "{cut}");
        assert!(cut.contains("worker-29"), "what moves is shown first: {cut}");
        assert!(!cut.contains("worker-28"), "{cut}");
        let shown = cut.lines().filter(|line| line.starts_with("worker-")).count();
        assert!(cut.ends_with(&format!("and {} more nodes; `mco status` shows all\n", 30 - shown)));
    }
}
