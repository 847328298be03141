//! Watches a cluster and prints its status: redrawn in place on a terminal, as lines otherwise.

use std::{
    io::{self, Write as _},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::Node;
use kube::{Client, ResourceExt as _};
use mco_api::{ClusterOperator, MachineConfigPool, label};
use mco_cluster::{Api, Cache, Object, Shutdown, cache::trim, watch::Config};
use tokio::sync::{Notify, mpsc};

use super::view::{NodeLine, PoolLine, StatusView, Width, operator_line};
use crate::{print::Screen, remote::table};

/// Changes within this time are drawn together.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// The way in which progress is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DisplayMode {
    /// The status is redrawn in place.
    Redraw,
    /// A line is printed for each change.
    Lines,
}

/// The part of a cluster whose status is printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    /// Name of a pool or of a node; the whole cluster if there is none.
    pub(crate) name: Option<String>,
    pub(crate) width: Width,
}

impl Part {
    /// Returns the part of a view; nothing if the pool or node is gone.
    fn of(&self, view: StatusView) -> StatusView {
        let part = match &self.name {
            Some(name) => view.about(name).unwrap_or_default(),
            None => view,
        };
        StatusView { width: self.width, ..part }
    }
}

/// A line about an object that changed.
struct ChangedLine {
    object: String,
    line: String,
}

/// Caches of the objects whose status is printed.
#[derive(Clone, Debug)]
pub(crate) struct ClusterWatch {
    pub(crate) nodes: Arc<Cache<Node>>,
    pools: Arc<Cache<MachineConfigPool>>,
    operators: Arc<Cache<ClusterOperator>>,
    changed: Arc<Notify>,
}

impl ClusterWatch {
    /// Starts to watch the cluster.
    pub(crate) fn start(client: &Client, shutdown: &Shutdown) -> Self {
        let changed = Arc::new(Notify::new());
        Self {
            nodes: watch(client, shutdown, &changed),
            pools: watch(client, shutdown, &changed),
            operators: watch(client, shutdown, &changed),
            changed,
        }
    }

    /// Returns the current status, once the caches are filled.
    pub(crate) async fn view(&self) -> StatusView {
        self.nodes.ready().await;
        self.pools.ready().await;
        self.operators.ready().await;
        let operator = self.operators.get(label::CLUSTER_OPERATOR);
        let (pools, nodes) = (self.pools.list(), self.nodes.list());
        StatusView::of(
            operator.as_deref(),
            pools.iter().map(|p| &**p),
            nodes.iter().map(|n| &**n),
            [],
        )
    }

    /// Waits for the next change.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Prints every change until shutdown.
    pub(crate) async fn show(
        &self,
        mode: DisplayMode,
        screen: &mut Screen<'_>,
        shutdown: &Shutdown,
    ) -> io::Result<()> {
        self.show_part(&Part::default(), mode, screen, shutdown).await
    }

    /// Prints every change of a part of the cluster until shutdown.
    pub(crate) async fn show_part(
        &self,
        part: &Part,
        mode: DisplayMode,
        screen: &mut Screen<'_>,
        shutdown: &Shutdown,
    ) -> io::Result<()> {
        match mode {
            DisplayMode::Redraw => self.redraw(part, screen, shutdown).await,
            DisplayMode::Lines => self.print_lines(part, screen, shutdown).await,
        }
    }

    /// Prints a line for each change, in order. No change is skipped.
    async fn print_lines(
        &self,
        part: &Part,
        screen: &mut Screen<'_>,
        shutdown: &Shutdown,
    ) -> io::Result<()> {
        let (sender, mut lines) = mpsc::unbounded_channel();
        let ours = |operator: &ClusterOperator| operator.name_any() == label::CLUSTER_OPERATOR;
        send_changes(&self.operators, &sender, move |it| ours(it).then(|| operator_line(it)));
        send_changes(&self.nodes, &sender, |node| Some(NodeLine::of(node).to_string()));
        send_changes(&self.pools, &sender, |pool| Some(PoolLine::of(pool).to_string()));
        loop {
            let changed: ChangedLine = tokio::select! {
                () = shutdown.requested() => return Ok(()),
                line = lines.recv() => line.expect("`sender` is alive in this scope"),
            };
            if part.name.is_some() && !part.of(self.view().await).has(&changed.object) {
                continue;
            }
            writeln!(screen, "{}", crate::print::visible(&changed.line))?;
            if lines.is_empty() {
                screen.flush()?;
            }
        }
    }

    /// Redraws the status after each change.
    async fn redraw(
        &self,
        part: &Part,
        screen: &mut Screen<'_>,
        shutdown: &Shutdown,
    ) -> io::Result<()> {
        let mut before = StatusView::default();
        let mut drawn = 0;
        loop {
            let view = tokio::select! {
                () = shutdown.requested() => return Ok(()),
                view = self.view() => part.of(view),
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
            tokio::time::sleep(DEBOUNCE).await;
        }
    }
}

/// Draws over the last `drawn` lines and returns the new number of lines.
fn draw(view: &StatusView, drawn: usize, screen: &mut Screen<'_>) -> io::Result<usize> {
    let text = fitting(view, rows())?;
    let text = String::from_utf8_lossy(&text);
    if drawn > 0 {
        write!(screen, "\u{1b}[{drawn}A")?;
    }
    // Clears to the end of the screen and turns off wrapping, because a wrapped line would take two
    // rows.
    write!(screen, "\u{1b}[J\u{1b}[?7l")?;
    screen.write_all(text.as_bytes())?;
    write!(screen, "\u{1b}[?7h")?;
    Ok(text.lines().count())
}

/// Returns the number of rows of the terminal; `None` if unknown.
fn rows() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    (size.ws_row > 0).then_some(usize::from(size.ws_row))
}

/// Returns as much of the view as fits into `rows`: lines that have scrolled away cannot be
/// overwritten.
fn fitting(view: &StatusView, rows: Option<usize>) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    write(view, &mut text)?;
    let lines = String::from_utf8_lossy(&text).lines().count();
    // The cursor is on a row of its own below the last line.
    let surplus = rows.map_or(0, |rows| (lines + 1).saturating_sub(rows));
    if surplus > 0 {
        text.clear();
        // One more row is needed for the line with the number of hidden nodes.
        let shown = view.nodes.len().saturating_sub(surplus + 1);
        write(&view.busiest(shown), &mut text)?;
        let hidden = view.nodes.len() - shown;
        writeln!(text, "and {hidden} more nodes; `mco status` shows all")?;
    }
    Ok(text)
}

/// Writes the whole view.
pub(crate) fn write(view: &StatusView, out: &mut dyn io::Write) -> io::Result<()> {
    if let Some(operator) = &view.operator {
        writeln!(out, "{}\n", crate::print::visible(operator))?;
    }
    let [pools, nodes] = view.tables();
    table::write(out, &pools)?;
    writeln!(out)?;
    table::write(out, &nodes)?;
    if !view.explanations.is_empty() {
        writeln!(out)?;
    }
    for line in &view.explanations {
        writeln!(out, "{}", crate::print::visible(&crate::print::as_called(line)))?;
    }
    Ok(())
}

/// Sends the line of each object that changes, if the line changes.
fn send_changes<K: Object>(
    cache: &Cache<K>,
    sender: &mpsc::UnboundedSender<ChangedLine>,
    line: impl Fn(&K) -> Option<String> + Send + Sync + 'static,
) {
    let sender = sender.clone();
    cache.on_change(move |change| {
        let (before, after) = (change.before.and_then(|it| line(it)), change.after);
        if let Some(line) =
            after.and_then(|it| line(it)).filter(|line| before.as_ref() != Some(line))
        {
            let object = after.and_then(|it| it.meta().name.clone()).unwrap_or_default();
            // The receiver is dropped when the process ends.
            drop(sender.send(ChangedLine { object, line }));
        }
    });
}

fn watch<K: Object>(client: &Client, shutdown: &Shutdown, changed: &Arc<Notify>) -> Arc<Cache<K>> {
    let cache = Arc::new(Cache::<K>::new(trim::metadata));
    let notify = Arc::clone(changed);
    cache.on_change(move |_| notify.notify_one());
    let (running, api, shutdown) = (Arc::clone(&cache), Api::all(client.clone()), shutdown.clone());
    tokio::spawn(async move { running.run(api, Config::default(), &shutdown).await });
    cache
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_change_of_a_line_is_sent_in_order() {
        let cache = Cache::<Node>::new(|_| {});
        let (sender, mut changes) = mpsc::unbounded_channel();
        send_changes(&cache, &sender, |node| Some(NodeLine::of(node).to_string()));
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
        let sent = std::iter::from_fn(|| changes.try_recv().ok());
        let lines: Vec<String> = sent.map(|sent| sent.line).collect();
        let want = ["NotReady", "NotReady,SchedulingDisabled", "NotReady"];
        assert_eq!(lines, want.map(|readiness| format!("node a: {readiness}, Unknown")));
    }

    fn node(number: u32) -> Node {
        // All nodes are idle except the last one.
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
        let view = StatusView::of(None, [], &nodes, []);
        let text = |rows| String::from_utf8(fitting(&view, rows).unwrap()).unwrap();
        let whole = text(None);
        assert_eq!(text(Some(200)), whole, "all lines fit");
        assert!(whole.contains("worker-28"));
        let cut = text(Some(24));
        assert_eq!(cut.lines().count(), 23, "{cut}");
        assert!(cut.contains("worker-29"), "updating nodes come first: {cut}");
        assert!(!cut.contains("worker-28"), "{cut}");
        let shown = cut.lines().filter(|line| line.starts_with("worker-")).count();
        assert!(cut.ends_with(&format!("and {} more nodes; `mco status` shows all\n", 30 - shown)));
    }
}
