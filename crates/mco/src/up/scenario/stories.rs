//! The scenarios, step by step.

mod api_lost;

use anyhow::Context as _;
use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use mco_cluster::Clock;
use mco_core::{force::ForcePlan, progress::Phase};
use mco_host::Root;
use serde_json::{Value, json};

use super::{
    Scenario,
    narrator::{Narrator, POOL},
};
use tokio::task::JoinSet;

use crate::{
    command::{apply::MANAGER, node::force},
    error::error_with_hint,
    remote,
    up::{
        Settings,
        components::Components,
        fleet::{self, Workers},
    },
};

/// File that the scenarios manage.
const FILE: &str = "/etc/story.conf";

/// Plays a scenario.
pub(super) async fn play(told: &mut Narrator<'_, '_>, story: Scenario) -> anyhow::Result<()> {
    match story {
        Scenario::NoReboot => no_reboot(told).await,
        Scenario::KernelArgument => kernel_argument(told).await,
        Scenario::BadConfig => bad_config(told).await,
        Scenario::Drift => drift(told).await,
        Scenario::Budget => budget(told).await,
        Scenario::Join => join(told).await,
        Scenario::ApiLost => api_lost::play(told).await,
    }
}

/// Returns a word that no earlier run of a scenario used.
fn new_word() -> String {
    Clock::System.now().as_second().to_string()
}

fn ignition(rest: Value) -> Value {
    let mut config = json!({"ignition": {"version": "3.2.0"}});
    if let (Some(config), Value::Object(rest)) = (config.as_object_mut(), rest) {
        config.extend(rest);
    }
    json!({"config": config})
}

fn file(contents: &str) -> Value {
    let source = format!("data:,{contents}%0A");
    let file =
        json!({"path": FILE, "mode": 0o644, "overwrite": true, "contents": {"source": source}});
    ignition(json!({"storage": {"files": [file]}}))
}

async fn no_reboot(told: &mut Narrator<'_, '_>) -> anyhow::Result<()> {
    let (before, boots) = (told.target().await, told.boots());
    let key = format!("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIStory {}", new_word());
    let users = json!([{"name": "core", "sshAuthorizedKeys": [key]}]);
    let spec = ignition(json!({"passwd": {"users": users}}));
    told.apply("99-story-ssh", spec).await?;
    told.tell("The node disruption policy says that SSH keys need neither a drain nor a reboot.")?;
    let after = told.until_updated(&before).await?;
    if told.boots() != boots {
        return Err(error_with_hint("a worker rebooted", "see `mco why worker-0`"));
    }
    told.tell(&format!("Every worker runs {after} and has not rebooted."))?;
    told.tell("`mco rollout history worker` and `mco diff worker` show the change.")
}

async fn kernel_argument(told: &mut Narrator<'_, '_>) -> anyhow::Result<()> {
    let (before, boots) = (told.target().await, told.boots());
    let spec = json!({"kernelArguments": [format!("story={}", new_word())]});
    told.apply("99-story-kernel-argument", spec).await?;
    told.tell(
        "A kernel argument takes effect at boot: each worker is drained and rebooted in turn.",
    )?;
    let after = told.until_updated(&before).await?;
    let now = told.boots();
    let idle: Vec<&str> = boots
        .iter()
        .filter(|(node, boot)| now.get(*node) == Some(boot))
        .map(|(node, _)| node.as_str())
        .collect();
    if !idle.is_empty() {
        let message = format!("{} run {after} without a reboot", idle.join(", "));
        return Err(error_with_hint(message, "see `mco why worker`"));
    }
    told.tell(&format!("Every worker runs {after}, and all {} rebooted.", boots.len()))?;
    told.tell(
        "`mco why worker` explains it; `mco rollout undo worker --dry-run` shows the way back.",
    )
}

async fn bad_config(told: &mut Narrator<'_, '_>) -> anyhow::Result<()> {
    let name = "99-story-bad";
    let before = told.target().await;
    for worker in told.workers() {
        let root = Root::open(&told.stage.state.node(&worker))?;
        root.write("/etc/story.d/vendor", b"made by a script\n", 0o644)?;
    }
    told.tell("A script of a vendor made the directory /etc/story.d on every worker.")?;
    let file = json!({"path": "/etc/story.d", "contents": {"source": "data:,x"}});
    told.apply(name, ignition(json!({"storage": {"files": [file]}}))).await?;
    told.tell("The config puts a file at the same path, which no worker can apply.")?;
    let view = told
        .until("the first worker to refuse the config", |view| {
            view.progress.nodes.iter().any(|node| node.phase == Phase::Degraded)
        })
        .await?;
    let is_kept = |node: &&mco_core::progress::NodeProgress| {
        node.pool.as_deref() == Some(POOL) && node.current == before
    };
    let kept = view.progress.nodes.iter().filter(is_kept).count();
    let all = told.workers().len();
    if kept != all {
        let message = format!("only {kept} of {all} workers still run {before}");
        return Err(error_with_hint(message, "see `mco status`"));
    }
    told.tell(&format!("The roll-out stops there: {kept} workers still run {before}."))?;
    told.tell("`mco status` says why, and what to do. The MachineConfig is deleted.")?;
    told.delete(name).await?;
    told.until("the workers to return", |view| {
        Narrator::pool(view).is_some_and(|pool| {
            pool.target == before && pool.done == pool.machines && pool.degraded == 0
        })
    })
    .await?;
    told.tell(&format!("Every worker is Done with {before} again."))
}

async fn drift(told: &mut Narrator<'_, '_>) -> anyhow::Result<()> {
    let node = told.workers().into_iter().next().context("the cluster has no worker")?;
    let before = told.target().await;
    told.apply("99-story-file", file(&new_word())).await?;
    let target = told.until_updated(&before).await?;
    let (root, path) = (Root::open(&told.stage.state.node(&node))?, FILE);
    root.write(path, b"edited by hand\n", 0o644)?;
    let shown = told.disk(&node, path);
    told.tell(&format!("An editor changed {path} of {node}: {}", shown.display()))?;
    told.until("the daemon to notice it", |view| {
        let found = view.progress.nodes.iter().find(|it| it.name == node);
        found.is_some_and(|it| it.phase == Phase::Degraded)
    })
    .await?;
    told.tell(&format!("`mco drift {node}` shows the difference; --fix restores the config:"))?;
    let plan = ForcePlan { node: node.clone(), to: target.clone(), retargets: false };
    force::request(&told.stage.client, &plan).await?;
    told.until_done(&node).await?;
    told.tell(&format!("{node} wrote every file of {target} again, rebooted, and is Done."))
}

async fn budget(told: &mut Narrator<'_, '_>) -> anyhow::Result<()> {
    let node = told.workers().into_iter().next().context("the cluster has no worker")?;
    let before = told.target().await;
    let params = PatchParams::apply(MANAGER).force();
    let labels = json!({"app": "story"});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "story", "labels": labels},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0,
                 "containers": [{"name": "main", "image": "example.com/story"}]},
    });
    let pods = Api::<Pod>::namespaced(told.stage.client.clone(), "default");
    pods.patch("story", &params, &Patch::Apply(pod)).await.map_err(remote::call_error)?;
    let ready = json!({"status": {"phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}]}});
    let ready = Patch::Merge(ready);
    let patched = pods.patch_status("story", &PatchParams::default(), &ready).await;
    patched.map_err(remote::call_error)?;
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "story"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
    });
    let budgets = Api::<PodDisruptionBudget>::namespaced(told.stage.client.clone(), "default");
    budgets.patch("story", &params, &Patch::Apply(budget)).await.map_err(remote::call_error)?;
    told.tell(&format!(
        "Pod default/story runs on {node}; its budget requires it to be available."
    ))?;
    told.apply("99-story-file", file(&new_word())).await?;
    told.until("the budget to block the drain", |view| {
        let found = view.progress.nodes.iter().find(|it| it.name == node);
        found.is_some_and(|it| it.phase == Phase::Draining && it.stuck)
    })
    .await?;
    told.tell(&format!("The drain of {node} waits, and so do the workers after it."))?;
    told.tell("`mco status` names the pod, the budget and the fix. The budget is deleted.")?;
    let deleted = budgets.delete("story", &DeleteParams::default()).await;
    deleted.map_err(remote::call_error)?;
    let after = told.until_updated(&before).await?;
    told.tell(&format!("The drain continued by itself: every worker runs {after}."))
}

async fn join(told: &mut Narrator<'_, '_>) -> anyhow::Result<()> {
    let present = told.stage.settings;
    let workers = Workers::next(present.masters, present.workers);
    let settings = Settings { masters: 0, workers, ..present.clone() };
    let machines = fleet::machines(0, workers);
    let node = machines.first().map(|it| it.name.to_string()).context("no machine is left")?;
    let (client, shutdown) = (told.stage.client.clone(), told.stage.shutdown.clone());
    let (state, tasks) = (told.stage.state, JoinSet::new());
    let mut joining = Components { state, settings: &settings, client, shutdown, tasks };
    told.tell(&format!("Machine {node} is switched on with an empty disk."))?;
    joining.machines(&told.stage.identities, told.stage.server).await?;
    told.tell("It fetches the config of its pool, writes it, reboots, and registers its node.")?;
    told.until_done(&node).await?;
    let config = told.target().await;
    told.tell(&format!("{node} is Done with {config}: `mco up` has one more worker from now on."))
}

impl Narrator<'_, '_> {
    /// Waits until a node is Done.
    async fn until_done(&mut self, node: &str) -> anyhow::Result<()> {
        let is_done = |view: &crate::up::view::StatusView| {
            let found = view.progress.nodes.iter().find(|it| it.name == node);
            found.is_some_and(|it| it.phase == Phase::Done)
        };
        self.until(&format!("{node} to be Done"), is_done).await.map(drop)
    }
}
