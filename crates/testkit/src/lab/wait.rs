//! Waiting for something to be so, and saying what may explain that it is not.

use std::{fmt::Debug, time::Duration};

use anyhow::bail;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Resource, runtime::watcher::watch_object};
use serde::de::DeserializeOwned;

use super::{Lab, Machine};

/// Long enough for a busy host; nothing waits this long unless it is broken.
pub const PATIENCE: Duration = Duration::from_mins(2);

/// What is waited for, and where it is to happen.
#[derive(Clone, Copy, Debug)]
pub struct Step<'s> {
    /// The machine that it is about; none for the cluster as a whole.
    pub machine: Option<&'s Machine>,
    /// What is to happen, as the end of a sentence that begins with "waited for".
    pub what: &'s str,
}

impl Lab {
    /// Watches the object `name` until `look` is content with it; what `look` says against it is
    /// told if it never is.
    pub async fn wait<K, T>(
        &self,
        step: Step<'_>,
        api: Api<K>,
        name: &str,
        mut look: impl FnMut(&K) -> Result<T, String>,
    ) -> anyhow::Result<T>
    where
        K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        let mut seen = format!("{name} is not there");
        let watching = async {
            let mut changes = std::pin::pin!(watch_object(api, name));
            while let Some(change) = changes.next().await {
                match change {
                    Ok(Some(object)) => match look(&object) {
                        Ok(found) => return Some(found),
                        Err(instead) => seen = instead,
                    },
                    Ok(None) => seen = format!("{name} is not there"),
                    // The watch begins again by itself.
                    Err(error) => seen = format!("{name} cannot be watched: {error}"),
                }
            }
            None
        };
        if let Ok(Some(found)) = tokio::time::timeout(PATIENCE, watching).await {
            return Ok(found);
        }
        let machine = step.machine.map_or("cluster", Machine::name);
        let Step { what, .. } = step;
        bail!(
            "{machine}: waited {PATIENCE:?} in vain for {what}\nseen instead: {seen}\n{}",
            self.explain(step.machine)
        )
    }

    /// Waits until a machine's node is Ready.
    pub async fn wait_ready(&self, machine: &Machine) -> anyhow::Result<Node> {
        let step = Step { machine: Some(machine), what: "its node to be Ready" };
        let nodes: Api<Node> = Api::all(self.client());
        self.wait(step, nodes, machine.name(), |node| {
            let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
            let ready = conditions.into_iter().flatten().find(|found| found.type_ == "Ready");
            match ready {
                Some(ready) if ready.status == "True" => Ok(node.clone()),
                Some(ready) => Err(format!("{} {:?}", ready.status, ready.message)),
                None => Err("it says nothing of being Ready".to_owned()),
            }
        })
        .await
    }

    /// What may explain why something did not happen.
    #[must_use]
    pub fn explain(&self, machine: Option<&Machine>) -> String {
        let mut text = String::new();
        let mut add = |title: &str, said: anyhow::Result<String>| {
            let said = said.unwrap_or_else(|error| format!("{error:#}"));
            text.extend(["--- ", title, "\n", said.trim_end(), "\n"]);
        };
        add("pools", self.ask(&["get", "machineconfigpools", "-o", "wide"]));
        add("nodes", self.ask(&["get", "nodes", "-o", "wide"]));
        add("pods", self.ask(&["get", "pods", "-A", "-o", "wide"]));
        let newest = ["get", "events", "-A", "--sort-by=.lastTimestamp"];
        add("events", self.ask(&newest).map(|said| last(&said, 30)));
        for machine in self.machines.iter().filter(|m| machine.is_none_or(|n| n.name() == m.name()))
        {
            let name = machine.name();
            add(&format!("terminal of {name}"), Ok(last(&machine.console(), 15)));
            add(&format!("kubelet of {name}"), machine.journal(Some("kubelet"), 25));
            add(&format!("journal of {name}"), machine.journal(None, 25));
        }
        text
    }
}

fn last(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(count)..).unwrap_or_default().join("\n")
}
