//! The scenario of an API server that is lost during an update.

use std::{collections::BTreeMap, time::Duration};

use mco_core::progress::{NodeProgress, Phase};
use mco_host::{Root, SimulatedSystem};

use super::{file, new_word};
use crate::{
    error::error_with_hint,
    up::scenario::narrator::{Narrator, POOL},
};

/// Part of the outage after which the narrator looks at the machines.
const STEP: Duration = Duration::from_secs(15);

/// Number of parts of the outage.
const STEPS: u32 = 4;

pub(super) async fn play(told: &mut Narrator<'_, '_>) -> anyhow::Result<()> {
    let before = told.target().await;
    let first = boots(told)?;
    told.apply("99-story-file", file(&new_word())).await?;
    let is_updating =
        |node: &&NodeProgress| node.pool.as_deref() == Some(POOL) && node.is_updating();
    let view = told
        .until("the update of the first worker", |view| {
            view.progress.nodes.iter().any(|it| is_updating(&it))
        })
        .await?;
    let busy: Vec<String> =
        view.progress.nodes.iter().filter(is_updating).map(|it| it.name.clone()).collect();
    // Also ended if the scenario fails or is stopped.
    let outage = Outage::begin(told);
    told.tell(&format!("The API server is lost during the update of {}.", busy.join(", ")))?;
    told.tell(
        "Connections are closed: `mco status` says so. Kubelets, daemons and controller retry.",
    )?;
    for step in 1..=STEPS {
        tokio::time::sleep(STEP).await;
        let now = boots(told)?;
        let idle = first.iter().filter(|(node, _)| !busy.contains(node));
        let rebooted: Vec<&str> = idle
            .filter(|(node, boot)| now.get(*node) != Some(boot))
            .map(|it| it.0.as_str())
            .collect();
        if !rebooted.is_empty() {
            let message = format!("without the API server, {} rebooted", rebooted.join(", "));
            return Err(error_with_hint(message, "see `mco logs worker-0`"));
        }
        let seconds = STEP.as_secs() * u64::from(step);
        told.tell(&format!(
            "  {seconds} s without it: all machines run, and none of the others rebooted."
        ))?;
    }
    drop(outage);
    told.tell("The API server is back, with the state that it had. The update continues.")?;
    let after = told.until_updated(&before).await?;
    let view = told.until("the nodes to be ready", |view| {
        view.progress.pools.iter().all(|pool| pool.ready == pool.machines)
    });
    let degraded =
        view.await?.progress.nodes.iter().filter(|it| it.phase == Phase::Degraded).count();
    if degraded > 0 {
        return Err(error_with_hint(format!("{degraded} nodes are degraded"), "see `mco status`"));
    }
    told.tell(&format!("Every worker runs {after}; nothing was rolled back."))
}

/// An outage of the API server, which ends when it is dropped.
struct Outage(mco_apiserver::ApiServer);

impl Outage {
    fn begin(told: &Narrator<'_, '_>) -> Self {
        let api = told.stage.api.clone();
        api.set_outage(true);
        Self(api)
    }
}

impl Drop for Outage {
    fn drop(&mut self) {
        self.0.set_outage(false);
    }
}

/// Returns the boot id of each worker from its disk, which is there without the API server.
fn boots(told: &Narrator<'_, '_>) -> anyhow::Result<BTreeMap<String, String>> {
    let mut boots = BTreeMap::new();
    for worker in told.workers() {
        let root = Root::open(&told.stage.state.node(&worker))?;
        let boot = SimulatedSystem::boot_state(&root)?.map(|state| state.boot_id);
        boots.insert(worker, boot.unwrap_or_default());
    }
    Ok(boots)
}
