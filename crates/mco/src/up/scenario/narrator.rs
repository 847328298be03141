//! The narrator of a scenario: acts on the cluster, waits for it, and prints every change.

use std::{collections::BTreeMap, io::Write as _, path::PathBuf, time::Duration};

use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use mco_api::{MachineConfig, label};
use mco_core::{progress::PoolProgress, rollout::NodeView};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Stage;
use crate::{
    command::apply::MANAGER,
    error::error_with_hint,
    print::{Screen, visible},
    remote,
    up::view::StatusView,
};

/// Longest wait for one step of a scenario.
const PATIENCE: Duration = Duration::from_mins(5);

/// The pool that the scenarios change.
pub(super) const POOL: &str = "worker";

/// The narrator of a scenario.
pub(super) struct Narrator<'s, 'w> {
    pub(super) stage: &'s Stage<'s>,
    screen: &'s mut Screen<'w>,
    /// Start of the scenario.
    begun: Instant,
    /// The last line about each node.
    lines: BTreeMap<String, String>,
}

impl<'s, 'w> Narrator<'s, 'w> {
    pub(super) fn new(stage: &'s Stage<'s>, screen: &'s mut Screen<'w>) -> Self {
        Self { stage, screen, begun: Instant::now(), lines: BTreeMap::new() }
    }

    /// Starts the clock of the scenario.
    pub(super) fn begin(&mut self) {
        self.begun = Instant::now();
    }

    /// Prints a sentence of the narrator.
    pub(super) fn tell(&mut self, text: &str) -> anyhow::Result<()> {
        let seconds = self.begun.elapsed().as_secs();
        let text = crate::print::as_called(text);
        writeln!(self.screen, "[{:02}:{:02}] {}", seconds / 60, seconds % 60, visible(&text))?;
        Ok(self.screen.flush()?)
    }

    /// Waits for a state of the cluster, and tells every change of a node until then.
    pub(super) async fn until(
        &mut self,
        what: &str,
        is: impl Fn(&StatusView) -> bool,
    ) -> anyhow::Result<StatusView> {
        let seen = async {
            loop {
                let view = self.stage.cluster.view().await;
                self.tell_changes(&view)?;
                if is(&view) {
                    return Ok(view);
                }
                self.stage.cluster.changed().await;
            }
        };
        tokio::time::timeout(PATIENCE, seen).await.unwrap_or_else(|_| {
            Err(error_with_hint(
                format!("the scenario failed: it waited {} s for {what}", PATIENCE.as_secs()),
                "`mco up` continues with this cluster, and `mco status` shows what it waits for",
            ))
        })
    }

    fn tell_changes(&mut self, view: &StatusView) -> anyhow::Result<()> {
        for node in &view.progress.nodes {
            let line = match &node.waits_for {
                Some(cause) if node.stuck => format!("{}, {cause}", node.phase),
                _ => node.phase.to_string(),
            };
            let before = self.lines.insert(node.name.clone(), line.clone());
            if before.is_some_and(|before| before != line) {
                self.tell(&format!("  {}: {line}", node.name))?;
            }
        }
        Ok(())
    }

    /// Returns the progress of the workers.
    pub(super) fn pool(view: &StatusView) -> Option<&PoolProgress> {
        view.progress.pools.iter().find(|pool| pool.name == POOL)
    }

    /// Returns the config that the workers are to run.
    pub(super) async fn target(&self) -> String {
        let view = self.stage.cluster.view().await;
        Self::pool(&view).map(|pool| pool.target.clone()).unwrap_or_default()
    }

    /// Waits until all workers run another config than `before`, and returns its name.
    pub(super) async fn until_updated(&mut self, before: &str) -> anyhow::Result<String> {
        let view = self
            .until("the workers to run the new config", |view| {
                Self::pool(view)
                    .is_some_and(|pool| pool.target != before && pool.done == pool.machines)
            })
            .await?;
        Ok(Self::pool(&view).map(|pool| pool.target.clone()).unwrap_or_default())
    }

    /// Applies a MachineConfig of the workers and tells it.
    pub(super) async fn apply(&mut self, name: &str, spec: Value) -> anyhow::Result<()> {
        let object = json!({
            "apiVersion": format!("{}/v1", mco_api::GROUP), "kind": "MachineConfig",
            "metadata": {"name": name, "labels": {(label::ROLE): POOL}}, "spec": spec,
        });
        let api = Api::<MachineConfig>::all(self.stage.client.clone());
        let params = PatchParams::apply(MANAGER).force();
        api.patch(name, &params, &Patch::Apply(object)).await.map_err(remote::call_error)?;
        self.tell(&format!("MachineConfig {name} applied."))
    }

    /// Deletes a MachineConfig; returns false if there is none.
    pub(super) async fn delete(&self, name: &str) -> anyhow::Result<bool> {
        let api = Api::<MachineConfig>::all(self.stage.client.clone());
        match api.delete(name, &DeleteParams::default()).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
            Err(error) => Err(remote::call_error(error)),
        }
    }

    /// Returns the boot of each worker.
    pub(super) fn boots(&self) -> BTreeMap<String, String> {
        let nodes = self.stage.cluster.nodes.list();
        let boot = |node: &k8s_openapi::api::core::v1::Node| {
            let name = NodeView::of(node).name;
            let info = node.status.as_ref()?.node_info.as_ref()?;
            name.starts_with(POOL).then(|| (name.clone(), info.boot_id.clone()))
        };
        nodes.iter().filter_map(|node| boot(node)).collect()
    }

    /// Returns the names of the workers.
    pub(super) fn workers(&self) -> Vec<String> {
        self.boots().into_keys().collect()
    }

    /// Returns the path of a file on the disk of a node.
    pub(super) fn disk(&self, node: &str, path: &str) -> PathBuf {
        self.stage.state.node(node).join(path.trim_start_matches('/'))
    }
}
