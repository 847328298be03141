//! Has the daemons forget their nodes.
//!
//! An annotation asks them, and answers: it needs no further pods and rights, and works wherever a daemon
//! runs, also outside of pods.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    time::Duration,
};

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
    core::{ObjectList, PartialObjectMeta},
};
use mco_api::annotation::{self, DaemonState, Recovery};
use mco_core::rollout::taint;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{ATTEMPTS, is_absent};
use crate::{
    error::error_with_hint,
    print::{self, Screen},
    remote,
};

/// Prefix of the annotations that controller and daemon write to nodes.
const ANNOTATIONS: &str = "machineconfiguration.openshift.io/";

/// Time without an answer of any daemon after which those that are left are not waited for.
const SILENCE_LIMIT: Duration = Duration::from_secs(30);

/// The same while a node that is left completes an update.
const UPDATE_LIMIT: Duration = Duration::from_mins(10);

/// Time between two looks at the nodes.
const NODES_INTERVAL: Duration = Duration::from_secs(2);

/// Number of nodes in one response.
const PAGE: u32 = 500;

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
    if is_removed(annotations) {
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

/// Returns true if the daemon answered that it removed the records.
fn is_removed(annotations: &BTreeMap<String, String>) -> bool {
    annotation::RECOVER.get(annotations).is_ok_and(|it| it == Some(Recovery::Forgotten))
}

fn is_working(annotations: &BTreeMap<String, String>) -> bool {
    annotation::STATE.get(annotations).is_ok_and(|it| it == Some(DaemonState::Working))
}

/// Asks all daemons to remove their records and waits for their answers. Returns the nodes without one.
pub(super) async fn forget(
    client: &Client,
    screen: &mut Screen<'_>,
) -> anyhow::Result<BTreeSet<String>> {
    let nodes = Api::<Node>::all(client.clone());
    let (mut asked, mut silent) = (BTreeSet::new(), BTreeSet::new());
    for node in pages(async |params| nodes.list(params).await).await? {
        let awaited = match records(&node) {
            NodeRecords::Never | NodeRecords::Removed => continue,
            // It is asked too, in case that it comes back in time.
            NodeRecords::Unreachable => &mut silent,
            NodeRecords::Present => &mut asked,
        };
        let name = node.name_any();
        if ask(&nodes, &name).await? {
            awaited.insert(name);
        }
    }
    if !asked.is_empty() {
        print::note(&format!("waiting for the daemons of {} nodes", asked.len()));
    }
    let mut heard = Instant::now();
    let mut limit = SILENCE_LIMIT;
    while !asked.is_empty() && heard.elapsed() < limit {
        sleep(NODES_INTERVAL).await;
        let found = pages(async |params| nodes.list_metadata(params).await).await?;
        let answered = found.iter().filter(|node| is_removed(node.annotations()));
        let answered: BTreeSet<String> = answered.map(ResourceExt::name_any).collect();
        // A node that was deleted has no records to remove.
        let existing: BTreeSet<String> = found.iter().map(ResourceExt::name_any).collect();
        asked.retain(|name| existing.contains(name));
        for name in asked.iter().filter(|name| answered.contains(*name)) {
            heard = Instant::now();
            writeln!(screen, "Node {name} forgot: its daemon removed the records of mco")?;
        }
        asked.retain(|name| !answered.contains(name));
        // A node that reboots for its update is not ready.
        let is_updating = |node: &PartialObjectMeta<Node>| {
            asked.contains(&node.name_any()) && is_working(node.annotations())
        };
        limit = if found.iter().any(is_updating) { UPDATE_LIMIT } else { SILENCE_LIMIT };
        silent.retain(|name| existing.contains(name) && !answered.contains(name));
    }
    silent.append(&mut asked);
    Ok(silent)
}

/// Returns the nodes that are not ready, on which no pod ends.
pub(super) async fn not_ready(client: &Client) -> anyhow::Result<BTreeSet<String>> {
    let nodes = Api::<Node>::all(client.clone());
    let found = pages(async |params| nodes.list(params).await).await?;
    Ok(found.iter().filter(|node| !is_ready(node)).map(ResourceExt::name_any).collect())
}

/// Returns all objects of a list, page by page.
async fn pages<K: Clone>(
    list: impl AsyncFn(&ListParams) -> kube::Result<ObjectList<K>>,
) -> anyhow::Result<Vec<K>> {
    let mut params = ListParams::default().limit(PAGE);
    let mut found = Vec::new();
    loop {
        let page = list(&params).await.map_err(remote::call_error)?;
        found.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

/// Asks the daemon of a node. Returns false if the node does not exist any more.
async fn ask(nodes: &Api<Node>, name: &str) -> anyhow::Result<bool> {
    let value = Recovery::Forget.as_str();
    let patch = json!({"metadata": {"annotations": {(annotation::RECOVER.name()): value}}});
    match nodes.patch_metadata(name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(_) => Ok(true),
        Err(error) if is_absent(&error) => Ok(false),
        Err(error) => Err(remote::call_error(error)),
    }
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

/// Removes what controller and daemon wrote to the nodes, and names the nodes that stay cordoned.
pub(super) async fn clean(client: &Client, screen: &mut Screen<'_>) -> anyhow::Result<()> {
    let nodes = Api::<Node>::all(client.clone());
    for node in pages(async |params| nodes.list(params).await).await? {
        let name = node.name_any();
        let is_cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
        if clean_node(&nodes, node).await? == Cleaned::Yes && is_cordoned {
            writeln!(screen, "Node {name} stays cordoned: run `kubectl uncordon {name}`")?;
        }
    }
    Ok(())
}

/// Result of the removal of our members from a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cleaned {
    Yes,
    /// The node has none, or does not exist any more.
    NotNecessary,
}

async fn clean_node(nodes: &Api<Node>, mut node: Node) -> anyhow::Result<Cleaned> {
    let name = node.name_any();
    for _ in 0..ATTEMPTS {
        let Some(patch) = cleaned(&node) else { return Ok(Cleaned::NotNecessary) };
        match nodes.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => return Ok(Cleaned::Yes),
            Err(error) if is_absent(&error) => return Ok(Cleaned::NotNecessary),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(remote::call_error(error)),
        }
        let Some(newer) = nodes.get_opt(&name).await.map_err(remote::call_error)? else {
            return Ok(Cleaned::NotNecessary);
        };
        node = newer;
    }
    Err(error_with_hint(
        format!("node {name} was changed by others at each of {ATTEMPTS} attempts"),
        "run the command again",
    ))
}

/// Returns the patch that removes our annotations and our taint; `None` if the node has neither.
fn cleaned(node: &Node) -> Option<Value> {
    let keys = node.annotations().keys().filter(|key| key.starts_with(ANNOTATIONS));
    let gone: serde_json::Map<_, _> = keys.map(|key| (key.clone(), Value::Null)).collect();
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let left: Vec<_> = taints.iter().filter(|taint| !taint::is_ours(taint)).collect();
    if gone.is_empty() && left.len() == taints.len() {
        return None;
    }
    if left.len() == taints.len() {
        return Some(json!({"metadata": {"annotations": gone}}));
    }
    // A merge patch has the whole list: a taint that another process adds now must not be lost.
    let version = &node.metadata.resource_version;
    let metadata = json!({"annotations": gone, "resourceVersion": version});
    Some(json!({"metadata": metadata, "spec": {"taints": left}}))
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

    #[test]
    fn only_our_annotations_and_our_taint_are_removed() {
        let taint = |key: &str| json!({"key": key, "effect": "PreferNoSchedule"});
        let node = |annotations: Value, taints: Value| -> Node {
            let metadata = json!({"name": "n", "resourceVersion": "7", "annotations": annotations});
            serde_json::from_value(json!({"metadata": metadata, "spec": {"taints": taints}}))
                .unwrap()
        };
        let (ours, others) = (taint(taint::KEY), taint("example.test/a"));
        let state = format!("{ANNOTATIONS}state");
        let known = json!({&state: "Done", "example.test/a": "x"});
        assert_eq!(cleaned(&node(json!({"example.test/a": "x"}), json!([others]))), None);
        let found = cleaned(&node(known.clone(), json!([others]))).unwrap();
        assert_eq!(found, json!({"metadata": {"annotations": {&state: null}}}));
        let found = cleaned(&node(known, json!([ours, others]))).unwrap();
        let metadata = json!({"annotations": {&state: null}, "resourceVersion": "7"});
        assert_eq!(found, json!({"metadata": metadata, "spec": {"taints": [others]}}));
    }
}
