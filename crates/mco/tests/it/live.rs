//! Commands on a running cluster: a change is planned, applied, followed, explained and undone.
//!
//! No controller runs: the tests write what it would write, so that each answer is exact.

use std::path::Path;

use k8s_openapi::api::core::v1::Node;
use kube::{Api, api::ListParams};
use mco_api::{ClusterOperator, MachineConfig, MachineConfigPool, PoolName};
use mco_cluster::Clock;
use mco_core::render::{self, BaseImages};
use mco_testkit::{
    PATIENCE,
    api::{Process, Programs, wait},
    object_wait,
};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{Folder, config, health::Cluster, workspace};

/// Makes every function a test on each of the two API servers.
macro_rules! on_both {
    ($($claim:ident),+ $(,)?) => {
        mod embedded {
            $(#[tokio::test]
            async fn $claim() {
                super::$claim(super::Live::start(super::Cluster::embedded().await).await).await;
            })+
        }
        mod real {
            $(#[tokio::test]
            async fn $claim() {
                let Some(cluster) = super::Cluster::real().await else { return };
                super::$claim(super::Live::start(cluster).await).await;
            })+
        }
    };
}

mod drift;
mod help;
mod objects;
mod terminal;

on_both! {
    a_change_is_explained_and_undone,
    a_change_is_planned_before_it_is_applied,
    objects_are_shown_and_deleted_as_with_kubectl,
    every_line_of_the_runbook_runs,
}

fn file(path: &str, text: &str) -> String {
    format!(
        "config:\n  ignition: {{version: 3.2.0}}\n  storage:\n    files:\n    - {{path: {path}, mode: \
         0644, contents: {{source: 'data:,{text}%0A'}}}}"
    )
}

/// Waits for the next second: creation times of objects have whole seconds.
async fn next_second() {
    let now = || Clock::System.now().as_second();
    let start = now();
    let is_over = move || (now() > start).then_some(());
    let waiting = move || wait("the next second", PATIENCE, is_over).unwrap();
    tokio::task::spawn_blocking(waiting).await.unwrap();
}

/// A cluster with the pool worker, one worker, and two rendered configs: the second adds `/etc/motd`.
struct Live {
    cluster: Cluster,
    folder: Folder,
    first: String,
    second: String,
}

impl Live {
    async fn start(cluster: Cluster) -> Self {
        cluster.install_kinds().await;
        let folder = Folder::new(&[
            ("base.yaml", config("00-base", &file("/etc/base", "one")).as_bytes()),
            ("motd.yaml", config("50-motd", &file("/etc/motd", "hello")).as_bytes()),
            ("more.yaml", config("60-more", &file("/etc/more", "more")).as_bytes()),
        ]);
        let mut live = Self { cluster, folder, first: String::new(), second: String::new() };
        live.ok(&["apply", "-f", "base.yaml"]).await;
        live.first = live.render(&["00-base"]).await;
        next_second().await;
        live.ok(&["apply", "-f", "motd.yaml"]).await;
        live.second = live.render(&["00-base", "50-motd"]).await;
        live.target(&live.second).await;
        live.node(&live.first, &live.first).await;
        live
    }

    /// Runs a command in the folder; returns exit code, output and errors.
    async fn run(&self, args: &[&str]) -> (i32, String, String) {
        let command = self.folder.mco(args).env("KUBECONFIG", &self.cluster.kubeconfig);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    }

    /// Runs a command that succeeds, and returns its output.
    async fn ok(&self, args: &[&str]) -> String {
        let (code, out, errors) = self.run(args).await;
        assert_eq!(code, 0, "{args:?}: {out}{errors}");
        out
    }

    /// Renders MachineConfigs of the cluster as the controller does, and returns the name.
    async fn render(&self, names: &[&str]) -> String {
        let api = Api::<MachineConfig>::all(self.cluster.client.clone());
        let mut configs = Vec::new();
        for name in names {
            configs.push(api.get(name).await.unwrap());
        }
        let pool = PoolName::try_from("worker".to_owned()).unwrap();
        let configs: Vec<&MachineConfig> = configs.iter().collect();
        let rendered = render::pool(&pool, &configs, &BaseImages::default()).unwrap();
        let owner = json!([{"apiVersion": "machineconfiguration.openshift.io/v1", "uid": "u",
            "kind": "MachineConfigPool", "name": "worker", "controller": true}]);
        let object = json!({"metadata": {"ownerReferences": owner}, "spec": rendered.spec});
        self.cluster.put(api, rendered.name.as_str(), object).await;
        rendered.name.to_string()
    }

    /// Writes the pool with a target.
    async fn target(&self, config: &str) {
        let pools = Api::<MachineConfigPool>::all(self.cluster.client.clone());
        let pool = json!({"spec": {
            "configuration": {"name": config},
            "machineConfigSelector": {"matchLabels": {"machineconfiguration.openshift.io/role": "worker"}},
            "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}},
        }});
        self.cluster.put(pools, "worker", pool).await;
    }

    /// Writes the node with its configs.
    async fn node(&self, current: &str, desired: &str) {
        let node = json!({
            "metadata": {"labels": {"node-role.kubernetes.io/worker": ""}, "annotations": {
                "machineconfiguration.openshift.io/currentConfig": current,
                "machineconfiguration.openshift.io/desiredConfig": desired,
                "machineconfiguration.openshift.io/state": "Done"}},
            "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady",
                "message": "", "lastHeartbeatTime": "2026-01-01T00:00:00Z",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        });
        self.cluster.put(Api::<Node>::all(self.cluster.client.clone()), "worker-0", node).await;
    }
}

async fn a_change_is_explained_and_undone(live: Live) {
    let Live { first, second, .. } = &live;
    // The status names the phase, and what the node waits for.
    let (code, text, _) = live.run(&["status", "-o", "json"]).await;
    let status: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &status["nodes"][0]["phase"]), (2, &json!("Starting")), "{status}");
    assert_eq!(status["pools"][0]["done"], 0);
    let (_, _, errors) = live.run(&["status", "wroker"]).await;
    assert_eq!(errors, "error: no pool or node is named \"wroker\"\nhint: did you mean worker?\n");
    live.ok(&["rollout", "pause", "worker"]).await;
    assert!(live.ok(&["rollout", "pause", "worker"]).await.ends_with("/worker already paused\n"));
    let (_, text, _) = live.run(&["status", "worker-0"]).await;
    let want = "node worker-0 is waiting: the pool is paused; run `mco rollout resume worker` to continue\n";
    assert!(text.ends_with(want), "{text}");
    assert!(live.ok(&["rollout", "resume", "worker"]).await.ends_with("/worker resumed\n"));

    // Difference, reason and author.
    let (code, text, _) = live.run(&["diff", "worker-0"]).await;
    assert!(code == 1 && text.contains("+hello"), "{text}");
    assert_eq!(live.ok(&["cat", "worker-0:/etc/base"]).await, "one\n");
    assert_eq!(live.ok(&["cat", "worker:/etc/motd"]).await, "hello\n");
    assert_eq!(
        live.run(&["cat", "worker-0:/etc/motd"]).await.0,
        1,
        "the node does not have it yet"
    );
    let text = live.ok(&["why", "worker-0"]).await;
    assert!(text.starts_with(&format!("worker-0: {first} -> {second}\n")), "{text}");
    assert!(text.contains("file /etc/motd added   reboot"), "{text}");
    assert!(text.contains("50-motd (written by mco at 20"), "{text}");
    let text = live.ok(&["why", "/etc/motd"]).await;
    assert!(
        text.contains("wins        50-motd  sets contents, mode  [written by mco at 20"),
        "{text}"
    );
    let text = live.ok(&["rollout", "history", "worker", "-o", "json"]).await;
    let history: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(history[1]["changes"], json!(["+ /etc/motd"]), "{text}");
    assert_eq!(history[1]["causes"][0]["config"], "50-motd", "{text}");
    assert_eq!(history[1]["causes"][0]["by"], "mco", "{text}");
    assert_eq!((&history[0]["current"], &history[1]["current"]), (&json!(false), &json!(true)));

    // The end of the update.
    let args = ["rollout", "status", "worker", "--watch=false"];
    let (code, text, _) = live.run(&args).await;
    assert!(code == 2 && text.starts_with("pool worker: 0 of 1 nodes run "), "{text}");
    let args = ["rollout", "status", "worker", "--timeout", "1s"];
    assert_eq!(live.run(&args).await.0, 1);
    live.node(second, second).await;
    let text = live.ok(&["rollout", "status", "worker"]).await;
    assert_eq!(text, format!("pool worker: 1 of 1 nodes run {second}\n"));
    assert!(live.ok(&["why", "worker-0"]).await.ends_with("and needs no update\n"));

    // The way back.
    let (code, text, errors) = live.run(&["rollout", "undo", "worker"]).await;
    assert!(code == 1 && errors.contains("nothing was deleted"), "{text}{errors}");
    undone_before_the_command_ends(&live).await;
}

/// The test is the controller. A status that follows the command at once must not see the config
/// before.
async fn undone_before_the_command_ends(live: &Live) {
    let first = &live.first;
    let configs = Api::<MachineConfig>::all(live.cluster.client.clone());
    let undo = async {
        let text = live.ok(&["rollout", "undo", "worker", "--yes"]).await;
        let pools = Api::<MachineConfigPool>::all(live.cluster.client.clone());
        (text, pools.get("worker").await.unwrap().spec.configuration.rendered.name)
    };
    let render = async {
        let is_gone = |found: Option<&MachineConfig>| found.is_none();
        let deleted = object_wait::wait_until(configs.clone(), "50-motd", "its end", is_gone);
        deleted.await.unwrap();
        live.target(first).await;
    };
    let ((text, target), ()) = tokio::join!(undo, render);
    assert_eq!(target, *first, "the command waits for the controller");
    assert_eq!(
        text,
        format!(
            "pool worker renders to {first} without MachineConfig 50-motd\n\
             machineconfig.machineconfiguration.openshift.io \"50-motd\" deleted\n"
        )
    );
    assert!(configs.get_opt("50-motd").await.unwrap().is_none());
}

async fn a_change_is_planned_before_it_is_applied(live: Live) {
    live.node(&live.second, &live.second).await;
    let configs = Api::<MachineConfig>::all(live.cluster.client.clone());
    let count = async || configs.list(&ListParams::default()).await.unwrap().items.len();
    let before = count().await;
    let planned = live.ok(&["plan", "-f", "more.yaml"]).await;
    assert!(planned.starts_with(&format!("pool worker: {} -> rendered-worker-", live.second)));
    assert!(planned.contains("file /etc/more added   reboot"), "{planned}");
    assert!(planned.contains("order: 1 node in 1 wave"), "{planned}");
    assert_eq!(live.ok(&["apply", "-f", "more.yaml", "--plan"]).await, planned);
    let text = live.ok(&["plan", "--without", "50-motd"]).await;
    assert!(text.contains("file /etc/motd removed"), "{text}");
    let text = live.ok(&["apply", "-f", "more.yaml", "--dry-run"]).await;
    assert!(text.ends_with("/60-more created (server dry run)\n"), "{text}");
    let text = live.ok(&["apply", "-f", "motd.yaml", "--dry-run"]).await;
    assert!(text.ends_with("/50-motd unchanged (server dry run)\n"), "{text}");
    // The API server refuses what it would refuse without the dry run.
    let bad = "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\n\
               metadata: {name: worker}\nspec: {paused: maybe}\n";
    live.folder.write("bad.yaml", bad.as_bytes());
    let (code, _, errors) = live.run(&["plan", "-f", "bad.yaml"]).await;
    assert!(code == 1 && errors.contains("/worker"), "{errors}");
    assert_eq!(count().await, before, "nothing was stored");

    // A kustomize folder, and the end of the roll-out that follows from the plan.
    let folder = "resources: [../more.yaml]\nlabels: [{pairs: {team: web}}]\n";
    live.folder.write("overlay/kustomization.yaml", folder.as_bytes());
    let to = planned.split(" -> ").nth(1).unwrap().lines().next().unwrap().to_owned();
    let following = live.run(&["apply", "-k", "overlay", "--follow"]);
    let controller = async {
        let is_there = |found: Option<&MachineConfig>| found.is_some();
        let api = configs.clone();
        object_wait::wait_until(api, "60-more", "the applied config", is_there).await.unwrap();
        let rendered = live.render(&["00-base", "50-motd", "60-more"]).await;
        assert_eq!(rendered, to);
        live.target(&to).await;
        live.node(&to, &to).await;
    };
    let ((code, text, errors), ()) = tokio::join!(following, controller);
    assert_eq!(code, 0, "{text}{errors}");
    assert!(text.ends_with(&format!("pool worker: 1 of 1 nodes run {to}\n")), "{text}");
    let applied = configs.get("60-more").await.unwrap();
    assert_eq!(applied.metadata.labels.unwrap()["team"], "web");
}

async fn objects_are_shown_and_deleted_as_with_kubectl(live: Live) {
    let annotation = r"{.items[?(@.metadata.name=='worker-0')].metadata.annotations['machineconfiguration\.openshift\.io/currentConfig']}";
    let text = live.ok(&["get", "node", "-o", &format!("jsonpath={annotation}")]).await;
    assert_eq!(text, live.first);
    let text =
        live.ok(&["get", "mc", "-o", "name", "-l", "machineconfiguration.openshift.io/role"]).await;
    assert_eq!(
        text,
        "machineconfig.machineconfiguration.openshift.io/00-base\n\
         machineconfig.machineconfiguration.openshift.io/50-motd\n"
    );
    let columns = "custom-columns=NAME:.metadata.name,NONE:.metadata.nothing";
    let text = live.ok(&["get", "mc", "00-base", "-o", columns]).await;
    assert_eq!(text, "NAME      NONE\n00-base   <none>\n");
    let sorted = ["get", "mc", "--sort-by", ".metadata.creationTimestamp", "--no-headers"];
    let text = live.ok(&sorted).await;
    let names: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names.len(), 4, "{text}");
    assert!(
        names.iter().position(|it| *it == "00-base") < names.iter().position(|it| *it == "50-motd")
    );
    let (code, _, errors) = live.run(&["get", "mc", "-o", "jsonpath={.a"]).await;
    assert!(code == 2 && errors.contains("a closing brace is missing"), "{errors}");

    let text = live.ok(&["delete", "-f", "motd.yaml", "--dry-run"]).await;
    assert!(text.ends_with("\"50-motd\" deleted (server dry run)\n"), "{text}");
    let text = live.ok(&["delete", "-f", "motd.yaml"]).await;
    assert!(text.ends_with("\"50-motd\" deleted\n"), "{text}");
    assert_eq!(live.run(&["delete", "-f", "motd.yaml"]).await.0, 1);
    live.ok(&["delete", "-f", "motd.yaml", "--ignore-not-found"]).await;
    let role = "machineconfiguration.openshift.io/role=worker";
    let text = live.ok(&["delete", "mc", "-l", role]).await;
    assert!(text.ends_with("\"00-base\" deleted\n"), "{text}");
    assert_eq!(live.run(&["delete", "mc"]).await.0, 1, "a kind alone deletes nothing");
}

/// Returns the lines of the shell blocks of the runbook, each with its exit status.
#[expect(clippy::disallowed_methods, reason = "the test reads the runbook")]
fn runbook() -> Vec<(String, i32)> {
    let text = std::fs::read_to_string(workspace().join("docs/runbook.md")).unwrap();
    let blocks = text.split("```sh\n").skip(1).filter_map(|block| block.split("```").next());
    let line = |line: &str| match line.split_once("# exit status ") {
        Some((line, status)) => {
            let digits: String = status.chars().take_while(char::is_ascii_digit).collect();
            (line.trim_end().to_owned(), digits.parse().unwrap())
        }
        None => (line.to_owned(), 0),
    };
    blocks.flat_map(str::lines).map(line).collect()
}

/// Writes the files and the object that the runbook names.
async fn prepare_runbook(live: &Live) {
    let group = "apiVersion: machineconfiguration.openshift.io/v1\n";
    let kubelet = "kind: KubeletConfig\nmetadata: {name: custom-kubelet}\nspec:\n  \
                   machineConfigPoolSelector: {matchLabels: {custom-kubelet: sysctl}}\n  \
                   kubeletConfig: {allowedUnsafeSysctls: [net.sctp.sack_timeout]}\n";
    let infra = "kind: MachineConfigPool\nmetadata: {name: infra}\nspec:\n  \
                 machineConfigSelector: {matchExpressions: [{key: \
                 machineconfiguration.openshift.io/role, operator: In, values: [worker, infra]}]}\n  \
                 nodeSelector: {matchLabels: {node-role.kubernetes.io/infra: ''}}\n";
    for (name, text) in [("kubelet.yaml", kubelet), ("infra.yaml", infra)] {
        live.folder.write(name, format!("{group}{text}").as_bytes());
    }
    let operators = Api::<ClusterOperator>::all(live.cluster.client.clone());
    live.cluster.put(operators, "machine-config", json!({"spec": {}})).await;
}

/// Runs a line that prints changes until it is stopped: waits for its first line, and sends SIGINT.
fn watched(folder: &Path, kubeconfig: &Path, line: &str) -> (i32, String) {
    let mut command = mco_testkit::api::command("bash");
    command.args(["-c", &format!("PATH=\"$PWD:$PATH\"; exec {line}")]);
    command.current_dir(folder).env("KUBECONFIG", kubeconfig);
    let mut process = Process::start(line, &mut command, &folder.join("watched.log")).unwrap();
    let shown = || Some(process.log()).filter(|log| log.contains("worker"));
    wait(&format!("`{line}` to show the worker"), PATIENCE, shown)
        .unwrap_or_else(|error| panic!("{error:#}\n{}", process.log()));
    process.signal(Signal::INT).unwrap();
    let status = process.wait(PATIENCE).unwrap();
    // kubectl is ended by the signal, as a failure.
    let code = status.code().filter(|_| line.starts_with("mco "));
    (code.unwrap_or_default(), process.log())
}

async fn every_line_of_the_runbook_runs(live: Live) {
    let lines = runbook();
    assert!(lines.iter().filter(|(line, _)| line.starts_with("mco ")).count() > 40, "{lines:?}");
    prepare_runbook(&live).await;
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_mco"), live.folder.path("mco")).unwrap();
    let kubectl = Programs::find().ok().map(|programs| programs.kubernetes("kubectl"));
    let kubectl = kubectl.filter(|program| program.exists());
    if let Some(program) = &kubectl {
        std::os::unix::fs::symlink(program, live.folder.path("kubectl")).unwrap();
    }
    for (line, code) in lines {
        // The embedded API server serves what `mco` needs, and kubectl needs more.
        if line.starts_with("kubectl ") && kubectl.is_none() {
            continue;
        }
        if line.ends_with(" -w") {
            let (folder, kubeconfig) = (live.folder.path("."), live.cluster.kubeconfig.clone());
            let watching = move || (watched(&folder, &kubeconfig, &line), line);
            let ((found, text), watch) = tokio::task::spawn_blocking(watching).await.unwrap();
            assert_eq!(found, code, "{watch}\n{text}");
            continue;
        }
        let script = format!("PATH=\"$PWD:$PATH\"; {line}");
        let command = snapbox::cmd::Command::new("bash").args(["-ec", &script]);
        let command = command.current_dir(live.folder.path(".")).env("NO_COLOR", "1");
        let command = command.env("KUBECONFIG", &live.cluster.kubeconfig);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert_eq!(output.status.code(), Some(code), "{line}\n{text}");
    }
}
