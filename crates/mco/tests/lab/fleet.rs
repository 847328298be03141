//! The nodes of the lab from the API server, with all their changes.

use std::collections::{BTreeMap, BTreeSet};

use mco_testkit::{
    lab::{Lab, Machine, WaitTarget},
    nodes::{NodeSummaries, NodeSummary, Nodes, max_matching},
};

/// All nodes, with their history.
pub(crate) struct Fleet<'l> {
    lab: &'l Lab,
    nodes: Nodes,
}

impl<'l> Fleet<'l> {
    /// Starts to watch the nodes of a lab.
    pub(crate) fn watch(lab: &'l Lab) -> Self {
        Self { lab, nodes: Nodes::watch(lab.client()) }
    }

    /// Returns the current state of a node.
    pub(crate) fn view(&self, machine: &Machine) -> NodeSummary {
        self.nodes.now().borrow().get(machine.name()).cloned().unwrap_or_default()
    }

    /// Waits until the node of a machine satisfies the condition.
    pub(crate) async fn wait(
        &self,
        machine: &Machine,
        what: &str,
        is: impl Fn(&NodeSummary) -> bool,
    ) -> anyhow::Result<NodeSummary> {
        let look = |views: &NodeSummaries| match views.get(machine.name()) {
            Some(view) if is(view) => Ok(view.clone()),
            Some(view) => Err(view.to_string()),
            None => Err("no node".to_owned()),
        };
        self.lab.wait_for(WaitTarget::machine(machine, what), &mut self.nodes.now(), look).await
    }

    /// Waits until one of `among` gets another desired config than `before`.
    pub(crate) async fn wait_next(
        &self,
        among: &BTreeSet<&str>,
        before: &str,
    ) -> anyhow::Result<&'l Machine> {
        let what = format!("one of {among:?} to get another desired config");
        let look = |views: &NodeSummaries| {
            let told = views.iter().find(|(name, view)| {
                among.contains(name.as_str()) && !view.desired.is_empty() && view.desired != before
            });
            let shown = || views.iter().map(|(name, view)| format!("\n  {name}: {view}"));
            told.map(|(name, _)| name.clone()).ok_or_else(|| shown().collect())
        };
        let name =
            self.lab.wait_for(WaitTarget::cluster(&what), &mut self.nodes.now(), look).await?;
        self.lab.machine(&name)
    }

    /// Returns the boot ids of each node since the last call.
    pub(crate) fn boots(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut boots = BTreeMap::<String, BTreeSet<String>>::new();
        for (name, node) in self.nodes.history().iter().flatten() {
            boots.entry(name.clone()).or_default().insert(node.boot_id.clone());
        }
        boots
    }

    /// Returns the nodes at the moment with the most updating nodes since the last call.
    pub(crate) fn busiest(&self) -> BTreeMap<String, String> {
        max_matching(&self.nodes.history(), NodeSummary::is_updating)
    }
}
