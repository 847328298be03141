//! The logs of the components, as the logs of their pods.
//!
//! All components run in one process. A line belongs to the pod of the component whose crate wrote
//! it, or to the daemon of the node that the line's span names.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;
use mco_apiserver::{Kubelets, Log};
use mco_cluster::telemetry::{LogLine, Receiver};
use serde_json::Value;

use super::component_pods::{APP, CONTROLLER, DAEMON, OPERATOR, SERVER};

/// Directories of the disks, below the state directory.
const NODES: &str = "nodes";

/// The node whose pod of the config server has the log.
const FIRST_MASTER: &str = "master-0";

/// A component, and its node if one runs on each node.
type Origin = (&'static str, String);

/// The logs of all components. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct ComponentLogs {
    logs: Arc<Mutex<BTreeMap<Origin, Arc<Log>>>>,
    dir: PathBuf,
}

impl ComponentLogs {
    /// Creates empty logs of a cluster with the given state directory.
    pub(crate) fn new(dir: &Path) -> Self {
        Self { logs: Arc::default(), dir: dir.to_owned() }
    }

    /// Returns the receiver that appends each line to its log.
    pub(crate) fn receiver(&self) -> Receiver {
        let logs = self.clone();
        Arc::new(move |line: LogLine<'_>| {
            let Some(origin) = origin(&line) else { return };
            let now = Timestamp::now();
            let text = format!("{} {}", now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ"), line.text);
            logs.of(origin).append(now, &text);
        })
    }

    fn of(&self, origin: Origin) -> Arc<Log> {
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(logs.entry(origin).or_default())
    }
}

impl Kubelets for ComponentLogs {
    fn log(&self, pod: &Value, _container: &str) -> Option<Arc<Log>> {
        let app = pod.get("metadata")?.get("labels")?.get(APP)?.as_str()?;
        let component = [OPERATOR, CONTROLLER, SERVER, DAEMON].into_iter().find(|it| *it == app)?;
        let node = node(pod)?;
        match component {
            DAEMON => Some(self.of((component, node.to_owned()))),
            // There is one config server, and a pod for it on every master.
            SERVER if node != FIRST_MASTER => None,
            _ => Some(self.of((component, String::new()))),
        }
    }

    fn refusal(&self, pod: &Value) -> String {
        let node = node(pod).unwrap_or("NODE");
        format!(
            "the machines of this cluster are simulated and run no processes; the disk of node \
             {node} is the directory {}",
            self.dir.join(NODES).join(node).display()
        )
    }
}

fn node(pod: &Value) -> Option<&str> {
    pod.pointer("/spec/nodeName")?.as_str()
}

/// Returns the component that wrote a line.
fn origin(line: &LogLine<'_>) -> Option<Origin> {
    if let Some(node) = line.node {
        return Some((DAEMON, node.to_owned()));
    }
    let module = line.target.split("::").next()?;
    let component = match module {
        "mco_operator" => OPERATOR,
        "mco_controller" => CONTROLLER,
        "mco_server" => SERVER,
        _ => return None,
    };
    Some((component, String::new()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_belongs_to_the_component_that_wrote_it() {
        let of = |target, node| origin(&LogLine { target, node, text: "" });
        assert_eq!(of("mco_controller::node", None), Some((CONTROLLER, String::new())));
        assert_eq!(of("mco_host::root", Some("w-0")), Some((DAEMON, "w-0".to_owned())));
        assert_eq!(of("mco_host::root", None), None);
    }

    #[test]
    fn a_pod_without_a_component_has_no_log() {
        let logs = ComponentLogs::new(Path::new("/state"));
        let pod = |app: &str| json!({"metadata": {"labels": {APP: app}}, "spec": {"nodeName": "worker-0"}});
        assert!(logs.log(&pod("example"), "main").is_none());
        logs.receiver()(LogLine { target: "mco_daemon", node: Some("worker-0"), text: "hello" });
        assert!(logs.log(&pod(DAEMON), DAEMON).is_some());
        let refusal = logs.refusal(&pod(DAEMON));
        assert!(refusal.ends_with("worker-0 is the directory /state/nodes/worker-0"), "{refusal}");
    }
}
