//! Waits for states of the lab's cluster. A timeout error contains the logs that may explain it.

use std::{fmt::Debug, time::Duration};

use anyhow::anyhow;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Resource, runtime::watcher::watch_object};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::{Lab, Machine};
use crate::PATIENCE;

/// A state to wait for, and the machine it concerns.
#[derive(Clone, Copy, Debug)]
pub struct WaitTarget<'s> {
    machine: Option<&'s Machine>,
    what: &'s str,
    patience: Duration,
}

impl<'s> WaitTarget<'s> {
    /// A state of a machine. `what` completes "timed out waiting for".
    #[must_use]
    pub const fn machine(machine: &'s Machine, what: &'s str) -> Self {
        Self { machine: Some(machine), what, patience: PATIENCE }
    }

    /// A state of the cluster as a whole.
    #[must_use]
    pub const fn cluster(what: &'s str) -> Self {
        Self { machine: None, what, patience: PATIENCE }
    }
}

impl Lab {
    /// Watches the object `name` until `look` returns a value. On timeout, the last error of `look`
    /// is part of the error.
    pub async fn wait<K, T>(
        &self,
        step: WaitTarget<'_>,
        api: Api<K>,
        name: &str,
        mut look: impl FnMut(&K) -> Result<T, String>,
    ) -> anyhow::Result<T>
    where
        K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let mut seen = format!("{name} does not exist");
        let watching = async {
            let mut changes = std::pin::pin!(watch_object(api, name));
            while let Some(change) = changes.next().await {
                match change {
                    Ok(Some(object)) => match look(&object) {
                        Ok(found) => return Some(found),
                        Err(instead) => seen = instead,
                    },
                    Ok(None) => seen = format!("{name} does not exist"),
                    // The watcher resumes by itself.
                    Err(error) => seen = format!("failed to watch {name}: {error}"),
                }
            }
            None
        };
        match tokio::time::timeout(step.patience, watching).await {
            Ok(Some(found)) => Ok(found),
            Ok(None) | Err(_) => Err(self.late(step, &seen)),
        }
    }

    /// Waits until `look` returns a value for the state in `watch`.
    pub async fn wait_for<S, T>(
        &self,
        step: WaitTarget<'_>,
        watch: &mut watch::Receiver<S>,
        mut look: impl FnMut(&S) -> Result<T, String>,
    ) -> anyhow::Result<T> {
        let mut seen = "nothing".to_owned();
        let watching = async {
            loop {
                match look(&watch.borrow_and_update()) {
                    Ok(found) => return Some(found),
                    Err(instead) => seen = instead,
                }
                watch.changed().await.ok()?;
            }
        };
        match tokio::time::timeout(step.patience, watching).await {
            Ok(Some(found)) => Ok(found),
            Ok(None) | Err(_) => Err(self.late(step, &seen)),
        }
    }

    fn late(&self, step: WaitTarget<'_>, seen: &str) -> anyhow::Error {
        let WaitTarget { machine, what, patience } = step;
        let name = machine.map_or("cluster", Machine::name);
        let logs = self.explain(machine);
        anyhow!(
            "{name}: timed out after {patience:?} waiting for {what}\nlast seen: {seen}\n{logs}"
        )
    }

    /// Waits until a machine's node is Ready.
    pub async fn wait_ready(&self, machine: &Machine) -> anyhow::Result<Node> {
        let step = WaitTarget::machine(machine, "its node to be Ready");
        let nodes: Api<Node> = Api::all(self.client());
        self.wait(step, nodes, machine.name(), |node| {
            let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
            let ready = conditions.into_iter().flatten().find(|found| found.type_ == "Ready");
            match ready {
                Some(ready) if ready.status == "True" => Ok(node.clone()),
                Some(ready) => Err(format!("{} {:?}", ready.status, ready.message)),
                None => Err("the node has no Ready condition".to_owned()),
            }
        })
        .await
    }

    /// Collects state and logs that may explain a timeout.
    #[must_use]
    pub fn explain(&self, machine: Option<&Machine>) -> String {
        let mut text = String::new();
        let mut add = |title: &str, stdout: anyhow::Result<String>| {
            let stdout = stdout.unwrap_or_else(|error| format!("{error:#}"));
            text.extend(["--- ", title, "\n", stdout.trim_end(), "\n"]);
        };
        add("pools", self.ask(&["get", "machineconfigpools", "-o", "wide"]));
        add("nodes", self.ask(&["get", "nodes", "-o", "wide"]));
        add("pods", self.ask(&["get", "pods", "-A", "-o", "wide"]));
        let newest = ["get", "events", "-A", "--sort-by=.lastTimestamp"];
        add("events", self.ask(&newest).map(|stdout| last(&stdout, 30)));
        for machine in self.machines.iter().filter(|m| machine.is_none_or(|n| n.name() == m.name()))
        {
            let name = machine.name();
            add(&format!("terminal of {name}"), Ok(last(&machine.console(), 15)));
            add(&format!("kubelet of {name}"), machine.journal(Some("kubelet"), 25));
            add(&format!("journal of {name}"), machine.journal(None, 25));
        }
        // The cause may be a pod on another machine.
        for machine in &self.machines {
            for (pod, log) in machine.pod_logs(mco_api::label::NAMESPACE) {
                add(&format!("log of {pod} on {}", machine.name()), Ok(last(&log, 20)));
            }
        }
        text
    }
}

fn last(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(count)..).unwrap_or_default().join("\n")
}
