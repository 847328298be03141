//! `mco logs`: prints what a component of the cluster wrote to its log.

use std::{io::Write as _, process::ExitCode};

use anyhow::Context as _;
use futures::{AsyncBufReadExt as _, AsyncReadExt as _, StreamExt as _, TryStreamExt as _, stream};
use http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, ResourceExt as _, api::ListParams};
use mco_cluster::{Api, Shutdown, client::namespace};
use tokio::sync::mpsc;

use crate::{
    duration,
    error::error_with_hint,
    print::{self, Screen},
    remote::{self, Access, Connection},
};

/// Print the log of the controller, the operator, the config servers, or the daemon of a node
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LogsArgs {
    /// Component (controller, operator, server, daemon) or node
    #[arg(value_name = "COMPONENT|NODE")]
    name: String,
    /// Print new lines as they are written
    #[arg(long, short)]
    follow: bool,
    /// Only lines that are not older, such as 90s, 15m or 2h
    #[arg(long, value_name = "DURATION", value_parser = seconds)]
    since: Option<u64>,
    /// Only the last lines
    #[arg(long, value_name = "LINES")]
    tail: Option<u32>,
    /// Only the run of the container before its last restart
    #[arg(long, short, conflicts_with = "follow")]
    previous: bool,
    /// Print the time at which each line was written
    #[arg(long)]
    timestamps: bool,
    #[command(flatten)]
    connection: Connection,
}

const EXAMPLES: &str = "\
Examples:
  mco logs controller                 what the controller does
  mco logs worker-0 --tail 50         the last lines of the daemon on a node
  mco logs worker-0 -f                follow it; Ctrl-C ends
  mco logs daemon --since 10m         all daemons, each line with its node";

/// Label of the pods of a component.
const APP: &str = "k8s-app";

/// Names of the components, and the value of their label.
const COMPONENTS: [(&str, &str); 4] = [
    ("controller", "machine-config-controller"),
    ("daemon", "machine-config-daemon"),
    ("operator", "machine-config-operator"),
    ("server", "machine-config-server"),
];

/// Longest line that is printed at once. A longer one is divided.
const MAX_LINE: u64 = 1024 * 1024;

/// Number of lines that wait for the terminal.
const WAITING_LINES: usize = 1024;

/// A pod whose log is printed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Source {
    pod: String,
    container: String,
    /// Text before each line.
    prefix: String,
}

/// Prints the logs.
pub(crate) fn run(args: &LogsArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    remote::block_on(async {
        let client = args.connection.installed(Access::Read).await?;
        let sources = find(args, &client).await?;
        let shutdown = Shutdown::on_signals()?;
        let (sender, mut lines) = mpsc::channel(WAITING_LINES);
        let reading = stream::iter(&sources)
            .map(Ok)
            .try_for_each_concurrent(None, |source| read(args, &client, source, sender.clone()));
        let mut reading = std::pin::pin!(reading);
        let mut result = None;
        loop {
            tokio::select! {
                biased;
                () = shutdown.requested() => return Ok(ExitCode::SUCCESS),
                Some(line) = lines.recv() => {
                    screen.write_all(line.as_bytes())?;
                    if lines.is_empty() {
                        screen.flush()?;
                    }
                }
                done = &mut reading, if result.is_none() => result = Some(done),
                else => break,
            }
            if result.is_some() && lines.is_empty() {
                break;
            }
        }
        screen.flush()?;
        result.unwrap_or(Ok(())).map(|()| ExitCode::SUCCESS)
    })
}

/// Finds the pods that the command names.
async fn find(args: &LogsArgs, client: &Client) -> anyhow::Result<Vec<Source>> {
    let component = COMPONENTS.iter().find(|(name, app)| args.name == *name || args.name == *app);
    let app = component.map_or("machine-config-daemon", |(_, app)| app);
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace(client));
    let params = ListParams::default().labels(&format!("{APP}={app}"));
    let pods = api.list(&params).await.map_err(remote::call_error)?.items;
    let node = component.is_none().then_some(args.name.as_str());
    let sources = sources(&pods, app, node);
    if !sources.is_empty() {
        return Ok(sources);
    }
    let program = print::program();
    Err(match node {
        Some(node) => error_with_hint(
            format!("no pod of {app} runs on a node {node}"),
            format!(
                "`{program} status` lists the nodes; the components are {}",
                COMPONENTS.map(|(name, _)| name).join(", ")
            ),
        ),
        None => error_with_hint(
            format!("namespace {} has no pod of {app}", namespace(client)),
            format!("`{program} doctor` says what is missing"),
        ),
    })
}

/// Returns the pods of a component, or the one on a node. Several have their nodes as prefixes.
fn sources(pods: &[Pod], app: &str, node: Option<&str>) -> Vec<Source> {
    let of_node = |pod: &&Pod| {
        let found = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        node.is_none() || found == node
    };
    let pods: Vec<&Pod> = pods.iter().filter(of_node).collect();
    let is_only = pods.len() == 1;
    let source = |pod: &&Pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        let prefix = node.filter(|_| !is_only).map(|node| format!("{node}: "));
        Source {
            pod: pod.name_any(),
            container: app.to_owned(),
            prefix: prefix.unwrap_or_default(),
        }
    };
    pods.iter().map(source).collect()
}

/// Sends the lines of a log.
async fn read(
    args: &LogsArgs,
    client: &Client,
    source: &Source,
    lines: mpsc::Sender<String>,
) -> anyhow::Result<()> {
    let request = Request::get(path(args, namespace(client), source)).body(Vec::new())?;
    let mut log = client.request_stream(request).await.map_err(remote::call_error)?;
    loop {
        let mut line = Vec::new();
        let read = (&mut log).take(MAX_LINE).read_until(b'\n', &mut line).await;
        if read.with_context(|| format!("the log of pod {} ended", source.pod))? == 0 {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&line);
        let text = format!("{}{}\n", source.prefix, text.trim_end_matches('\n'));
        if lines.send(text).await.is_err() {
            return Ok(());
        }
    }
}

/// Returns the path of a log, with the options.
fn path(args: &LogsArgs, namespace: &str, source: &Source) -> String {
    let flag = |is_set: bool| is_set.then(|| "true".to_owned());
    let options = [
        ("follow", flag(args.follow)),
        ("previous", flag(args.previous)),
        ("timestamps", flag(args.timestamps)),
        ("sinceSeconds", args.since.map(|seconds| seconds.to_string())),
        ("tailLines", args.tail.map(|lines| lines.to_string())),
    ];
    let options =
        options.into_iter().filter_map(|(name, value)| Some(format!("&{name}={}", value?)));
    format!(
        "/api/v1/namespaces/{namespace}/pods/{}/log?container={}{}",
        source.pod,
        source.container,
        options.collect::<String>()
    )
}

/// Parses a duration and returns it in seconds.
fn seconds(text: &str) -> Result<u64, String> {
    let seconds = duration::parse(text).filter(|seconds| *seconds > 0);
    seconds.ok_or_else(|| "a duration such as 90s, 15m or 2h is expected".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, node: &str) -> Pod {
        let pod = json!({"metadata": {"name": name}, "spec": {"nodeName": node, "containers": []}});
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn several_pods_have_their_nodes_as_prefixes() {
        let pods = [pod("d-1", "worker-0"), pod("d-2", "worker-1")];
        let prefixes = |node| -> Vec<String> {
            sources(&pods, "d", node).into_iter().map(|source| source.prefix).collect()
        };
        assert_eq!(prefixes(None), ["worker-0: ", "worker-1: "]);
        assert_eq!(prefixes(Some("worker-1")), [""]);
        assert!(prefixes(Some("worker-9")).is_empty());
    }
}
