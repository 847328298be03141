//! Has the daemons forget their nodes.
//!
//! An annotation asks them, and answers: it needs no further pods and rights, and works wherever a daemon
//! runs, also outside of pods.

use std::{collections::BTreeSet, io::Write as _, time::Duration};

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use mco_api::annotation::{self, DaemonState, Recovery};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::INTERVAL;
use crate::{print::Screen, remote};

/// Prefix of the annotations that controller and daemon write to nodes.
const ANNOTATIONS: &str = "machineconfiguration.openshift.io/";

/// Time without an answer of any daemon after which those that are left are not waited for.
const SILENCE_LIMIT: Duration = Duration::from_secs(30);

/// The same while a node that is left completes an update.
const UPDATE_LIMIT: Duration = Duration::from_mins(10);

/// State of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeRecords {
    /// No daemon has been there.
    Never,
    /// The daemon removed them.
    Removed,
    /// The daemon can be asked.
    Present,
    /// The node is not ready, so that its daemon does not answer.
    Unreachable,
}

fn records(node: &Node) -> NodeRecords {
    let annotations = node.annotations();
    let is_known = annotation::STATE.get(annotations).ok().flatten().is_some()
        || annotation::CURRENT_CONFIG.get(annotations).ok().flatten().is_some();
    let recovery = annotation::RECOVER.get(annotations).ok().flatten();
    if recovery == Some(Recovery::Forgotten) {
        NodeRecords::Removed
    } else if !is_known {
        NodeRecords::Never
    } else if is_ready(node) {
        NodeRecords::Present
    } else {
        NodeRecords::Unreachable
    }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn is_working(node: &Node) -> bool {
    let state = annotation::STATE.get(node.annotations());
    state.is_ok_and(|state| state == Some(DaemonState::Working))
}

/// Asks all daemons to remove their records and waits for their answers. Returns the nodes without one.
pub(super) async fn forget(
    client: &Client,
    screen: &mut Screen<'_>,
) -> anyhow::Result<BTreeSet<String>> {
    let nodes = Api::<Node>::all(client.clone());
    let mut silent = BTreeSet::new();
    let mut asked = BTreeSet::new();
    for node in nodes.list(&ListParams::default()).await.map_err(remote::call_error)? {
        let name = node.name_any();
        match records(&node) {
            NodeRecords::Never | NodeRecords::Removed => {}
            // It is asked too, in case that it comes back in time.
            NodeRecords::Unreachable => {
                ask(&nodes, &name).await?;
                silent.insert(name);
            }
            NodeRecords::Present => {
                ask(&nodes, &name).await?;
                asked.insert(name);
            }
        }
    }
    let mut heard = Instant::now();
    let mut limit = SILENCE_LIMIT;
    while !asked.is_empty() && heard.elapsed() < limit {
        sleep(INTERVAL).await;
        let found = nodes.list(&ListParams::default()).await.map_err(remote::call_error)?;
        let answered = found.iter().filter(|node| records(node) == NodeRecords::Removed);
        let answered: BTreeSet<String> = answered.map(ResourceExt::name_any).collect();
        // A node that was deleted has no records to remove.
        let exists = |name: &String| found.iter().any(|node| node.name_any() == *name);
        asked.retain(exists);
        for name in asked.iter().filter(|name| answered.contains(*name)) {
            heard = Instant::now();
            writeln!(screen, "Node {name} forgot: its daemon removed the records of mco")?;
        }
        asked.retain(|name| !answered.contains(name));
        // A node that reboots for its update is not ready.
        let is_updating = |node: &Node| asked.contains(&node.name_any()) && is_working(node);
        limit = if found.iter().any(is_updating) { UPDATE_LIMIT } else { SILENCE_LIMIT };
        silent.retain(|name| !answered.contains(name));
    }
    silent.append(&mut asked);
    Ok(silent)
}

async fn ask(nodes: &Api<Node>, name: &str) -> anyhow::Result<()> {
    let value = Recovery::Forget.as_str();
    let patch = json!({"metadata": {"annotations": {(annotation::RECOVER.name()): value}}});
    let patched = nodes.patch_metadata(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.map(drop).map_err(remote::call_error)
}

/// Names the nodes whose daemons did not answer, with the way out.
pub(super) fn report_silent(
    silent: &BTreeSet<String>,
    screen: &mut Screen<'_>,
) -> anyhow::Result<()> {
    if silent.is_empty() {
        return Ok(());
    }
    for name in silent {
        writeln!(screen, "Node {name} did not forget: its daemon did not answer")?;
    }
    writeln!(screen, "remove their records with `mco host forget --yes` on these machines")?;
    Ok(())
}

/// Removes the annotations of controller and daemon from all nodes.
pub(super) async fn remove_annotations(client: &Client) -> anyhow::Result<()> {
    let nodes = Api::<Node>::all(client.clone());
    for node in nodes.list_metadata(&ListParams::default()).await.map_err(remote::call_error)? {
        let keys = node.annotations().keys().filter(|key| key.starts_with(ANNOTATIONS));
        let gone: serde_json::Map<_, _> = keys.map(|key| (key.clone(), Value::Null)).collect();
        if !gone.is_empty() {
            let patch = Patch::Merge(json!({"metadata": {"annotations": gone}}));
            let (name, params) = (node.name_any(), PatchParams::default());
            nodes.patch_metadata(&name, &params, &patch).await.map_err(remote::call_error)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ready_nodes_with_records_are_waited_for() {
        let node = |annotations: &[(&str, &str)], ready: &str| -> Node {
            let annotations: serde_json::Map<_, _> = annotations
                .iter()
                .map(|(key, value)| (format!("{ANNOTATIONS}{key}"), json!(value)))
                .collect();
            serde_json::from_value(json!({
                "metadata": {"name": "n", "annotations": annotations},
                "status": {"conditions": [{"type": "Ready", "status": ready}]},
            }))
            .unwrap()
        };
        let known = ("state", "Done");
        for (annotations, ready, expected) in [
            (&[][..], "True", NodeRecords::Never),
            (&[known], "True", NodeRecords::Present),
            (&[known], "Unknown", NodeRecords::Unreachable),
            (&[known, ("recover", "forget")], "True", NodeRecords::Present),
            (&[known, ("recover", "forgotten")], "Unknown", NodeRecords::Removed),
        ] {
            assert_eq!(records(&node(annotations, ready)), expected, "{annotations:?} {ready}");
        }
    }
}
