//! Watches a cluster and prints its status: redrawn in place on a terminal, as lines otherwise.

use std::{
    io::{self, Write as _},
    sync::Arc,
    time::Duration,
};

use http::Request;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::{Client, ResourceExt as _};
use mco_api::{ClusterOperator, MachineConfigNode, MachineConfigPool, label};
use mco_cluster::{Api, Cache, Clock, Object, Shutdown, cache::trim, watch::Config as WatchConfig};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{Notify, mpsc, watch},
};

use super::{
    bar,
    terminal::Terminal,
    view::{NodeLine, PoolLine, StatusView, Width, operator_line},
};
use crate::print::{Screen, as_called, visible};

/// Changes within this time are drawn together.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// Interval between two requests that show if the API server answers.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);

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
    /// Times of the phases; empty if the user may not list them.
    reports: Arc<Cache<MachineConfigNode>>,
    changed: Arc<Notify>,
    /// Time since which the API server does not answer.
    lost: watch::Receiver<Option<Timestamp>>,
}

impl ClusterWatch {
    /// Starts to watch the cluster.
    pub(crate) fn start(client: &Client, shutdown: &Shutdown) -> Self {
        let changed = Arc::new(Notify::new());
        let (sender, lost) = watch::channel(None);
        tokio::spawn(probe(client.clone(), sender, Arc::clone(&changed), shutdown.clone()));
        Self {
            nodes: cache(client, shutdown, &changed),
            pools: cache(client, shutdown, &changed),
            operators: cache(client, shutdown, &changed),
            reports: cache(client, shutdown, &changed),
            changed,
            lost,
        }
    }

    /// Returns a sentence if the API server does not answer.
    pub(crate) fn outage(&self) -> Option<String> {
        let since = (*self.lost.borrow())?;
        Some(format!(
            "the API server does not answer since {since:.0}, and what is shown is older; nodes keep \
             running, and the view continues when it answers; `mco doctor` says more"
        ))
    }

    /// Returns the current status, once the caches are filled.
    pub(crate) async fn view(&self) -> StatusView {
        self.nodes.ready().await;
        self.pools.ready().await;
        self.operators.ready().await;
        let operator = self.operators.get(label::CLUSTER_OPERATOR);
        let (pools, nodes) = (self.pools.list(), self.nodes.list());
        let reports = self.reports.list();
        StatusView::of(
            operator.as_deref(),
            pools.iter().map(|p| &**p),
            nodes.iter().map(|n| &**n),
            reports.iter().map(|it| &**it),
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
        let mut lost = self.lost.clone();
        loop {
            let changed: ChangedLine = tokio::select! {
                () = shutdown.requested() => return Ok(()),
                line = lines.recv() => line.expect("`sender` is alive in this scope"),
                Ok(()) = lost.changed() => {
                    lost.mark_unchanged();
                    let line = self.outage().unwrap_or_else(|| "the API server answers again".to_owned());
                    writeln!(screen, "{}", visible(&as_called(&line)))?;
                    screen.flush()?;
                    continue;
                }
            };
            if part.name.is_some() && !part.of(self.view().await).has(&changed.object) {
                continue;
            }
            writeln!(screen, "{}", visible(&changed.line))?;
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
        let mut resized = signal(SignalKind::window_change())?;
        let mut before = StatusView::default();
        let mut drawn = Drawn::Lines(0);
        loop {
            let view = tokio::select! {
                () = shutdown.requested() => return Ok(()),
                view = self.view() => part.of(view),
            };
            let view = StatusView {
                explanations: self.outage().into_iter().chain(view.explanations.clone()).collect(),
                ..view
            };
            if view != before || drawn == Drawn::Resized {
                drawn = draw(&view, drawn, screen)?;
                screen.flush()?;
                before = view;
            }
            tokio::select! {
                () = shutdown.requested() => return Ok(()),
                () = self.changed() => {}
                _ = resized.recv() => drawn = Drawn::Resized,
            }
            tokio::time::sleep(DEBOUNCE).await;
        }
    }
}

/// The picture on the terminal that the next one replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drawn {
    /// So many lines above the cursor.
    Lines(usize),
    /// The terminal has another size. It may have moved the lines, so that their place is unknown.
    Resized,
}

/// Draws over the last picture and returns the new one.
fn draw(view: &StatusView, drawn: Drawn, screen: &mut Screen<'_>) -> io::Result<Drawn> {
    let text = fitting(view, Terminal::of_stdout())?;
    let text = String::from_utf8_lossy(&text);
    match drawn {
        Drawn::Lines(0) => {}
        Drawn::Lines(count) => write!(screen, "\u{1b}[{count}A")?,
        Drawn::Resized => write!(screen, "\u{1b}[H")?,
    }
    // Clears to the end of the screen and turns off wrapping, because a wrapped line would take two
    // rows.
    write!(screen, "\u{1b}[J\u{1b}[?7l")?;
    screen.write_all(text.as_bytes())?;
    write!(screen, "\u{1b}[?7h")?;
    Ok(Drawn::Lines(text.lines().count()))
}

/// Returns as much of the view as fits into the rows: lines that have scrolled away cannot be
/// overwritten.
fn fitting(view: &StatusView, terminal: Terminal) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    write(view, terminal, &mut text)?;
    let count = |text: &[u8]| String::from_utf8_lossy(text).lines().count();
    // The cursor is on a row of its own below the last line.
    let Some(rows) = terminal.rows.map(|rows| rows.saturating_sub(1)) else { return Ok(text) };
    let surplus = count(&text).saturating_sub(rows);
    if surplus == 0 {
        return Ok(text);
    }
    text.clear();
    // One more row is needed for the line with the number of hidden nodes.
    let shown = view.nodes.len().saturating_sub(surplus + 1);
    write(&view.busiest(shown), terminal, &mut text)?;
    let hidden = view.nodes.len() - shown;
    if hidden > 0 {
        writeln!(
            text,
            "{}",
            as_called(&format!("and {hidden} more nodes; `mco status` shows all"))
        )?;
    }
    if count(&text) <= rows {
        return Ok(text);
    }
    let lines = String::from_utf8_lossy(&text).into_owned();
    let kept: Vec<&str> = lines.lines().take(rows.saturating_sub(1)).collect();
    let hidden = count(&text) - kept.len();
    let more = format!("and {hidden} more lines; `mco status` shows all");
    Ok(format!("{}\n{}\n", kept.join("\n"), as_called(&more)).into_bytes())
}

/// Columns of the pools that a narrow terminal leaves out, the first one first. Other columns and the
/// lines below the tables say the same.
const DISPENSABLE_OF_POOLS: [&str; 7] =
    ["UPDATING", "UPDATED", "READY", "DEGRADED", "CONFIG", "FAILED", "MACHINES"];

/// Columns of the nodes that a narrow terminal leaves out, the first one first.
const DISPENSABLE_OF_NODES: [&str; 6] = ["ROLES", "CONFIG", "NEXT", "SINCE", "STATUS", "WAITS FOR"];

/// Writes the whole view. If the width of the terminal is known, the progress of pools is a bar, tables
/// have the columns that fit, and sentences are broken between words.
pub(crate) fn write(
    view: &StatusView,
    terminal: Terminal,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    if let Some(operator) = &view.operator {
        writeln!(out, "{}\n", terminal.sentence(operator))?;
    }
    let [pools, nodes] = view.tables();
    terminal.write_table(pools, &DISPENSABLE_OF_POOLS, out)?;
    writeln!(out)?;
    terminal.write_table(nodes, &DISPENSABLE_OF_NODES, out)?;
    let bars = view.progress.pools.iter().filter_map(|pool| bar::line(pool, terminal.columns));
    for (place, line) in bars.enumerate() {
        if place == 0 {
            writeln!(out)?;
        }
        writeln!(out, "{}", terminal.sentence(&line))?;
    }
    if !view.explanations.is_empty() {
        writeln!(out)?;
    }
    for line in &view.explanations {
        writeln!(out, "{}", terminal.sentence(line))?;
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

/// Asks the API server again and again, and records since when it does not answer.
async fn probe(
    client: Client,
    lost: watch::Sender<Option<Timestamp>>,
    changed: Arc<Notify>,
    shutdown: Shutdown,
) {
    loop {
        tokio::select! {
            () = shutdown.requested() => return,
            () = tokio::time::sleep(PROBE_INTERVAL) => {}
        }
        let Ok(request) = Request::get("/readyz").body(Vec::new()) else { return };
        // Any answer shows that the server is there.
        let is_lost = matches!(
            client.request_text(request).await,
            Err(kube::Error::HyperError(_) | kube::Error::Service(_))
        );
        let is_news = lost.send_if_modified(|since| {
            let is_news = since.is_some() != is_lost;
            if is_news {
                *since = is_lost.then(|| Clock::System.now());
            }
            is_news
        });
        if is_news {
            changed.notify_one();
        }
    }
}

fn cache<K: Object>(client: &Client, shutdown: &Shutdown, changed: &Arc<Notify>) -> Arc<Cache<K>> {
    let cache = Arc::new(Cache::<K>::new(trim::metadata));
    let notify = Arc::clone(changed);
    cache.on_change(move |_| notify.notify_one());
    let (running, api, shutdown) = (Arc::clone(&cache), Api::all(client.clone()), shutdown.clone());
    tokio::spawn(async move { running.run(api, WatchConfig::default(), &shutdown).await });
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
        let text = |rows| {
            let terminal = Terminal { rows, ..Terminal::default() };
            String::from_utf8(fitting(&view, terminal).unwrap()).unwrap()
        };
        let whole = text(None);
        assert_eq!(text(Some(200)), whole, "all lines fit");
        assert!(whole.contains("worker-28"));
        let cut = text(Some(24));
        assert_eq!(cut.lines().count(), 23, "{cut}");
        assert!(cut.contains("worker-29"), "updating nodes come first: {cut}");
        assert!(!cut.contains("worker-28"), "{cut}");
        let shown = cut.lines().filter(|line| line.starts_with("worker-")).count();
        let tiny = text(Some(4));
        assert!(tiny.lines().count() == 3 && tiny.contains(" more lines; "), "{tiny}");
        assert!(cut.ends_with(&format!("and {} more nodes; `mco status` shows all\n", 30 - shown)));
    }
}
