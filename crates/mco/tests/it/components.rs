//! Components as processes of their own: `mco up --processes`, and `mco up --kubeconfig` on a cluster that
//! is there.

#![expect(clippy::disallowed_methods, reason = "the test starts programs and reads their output")]

use std::{fs, path::Path, process::Command};

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use mco_api::ControllerConfig;
use mco_testkit::{
    PATIENCE,
    api::{self, Process},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::{Folder, config, health::Cluster};

/// Starts `mco up` in the folder.
fn up(folder: &Folder, name: &str, flags: &[&str]) -> Process {
    let mut command = api::command(env!("CARGO_BIN_EXE_mco"));
    command.args(["up", "--dir"]).arg(folder.path(name)).args(flags).env_remove("KUBECONFIG");
    Process::start("mco up", &mut command, &folder.path(&format!("{name}.log"))).unwrap()
}

/// Runs a command on the cluster of a state directory; returns exit code, output and errors.
fn run(folder: &Folder, name: &str, args: &[&str]) -> (i32, String, String) {
    let command = folder.mco(args).arg("--dir").arg(folder.path(name)).env_remove("KUBECONFIG");
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

/// Waits until so many nodes run the configs of their pools.
fn wait_done(folder: &Folder, name: &str, nodes: usize, process: &Process) {
    let is_done = || {
        let (_, text, _) = run(folder, name, &["status", "-o", "json"]);
        let status: Value = serde_json::from_str(&text).ok()?;
        let phases = status["nodes"].as_array()?.iter().map(|node| &node["phase"]);
        let pools = status["pools"].as_array()?;
        let is_current = |pool: &Value| pool["ready"] == pool["machines"] && pool["target"] != "";
        (phases.filter(|phase| *phase == "Done").count() == nodes && pools.iter().all(is_current))
            .then_some(())
    };
    let waited = api::wait(&format!("{nodes} nodes to be Done"), PATIENCE, is_done);
    waited.unwrap_or_else(|error| panic!("{error:#}\n{}", process.log()));
}

/// Returns the processes that a process has started, by the words of their command lines.
fn children(parent: u32, words: &str) -> Vec<Pid> {
    let mark = format!(" --parent {parent} {words}");
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let found = entries.filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(&mark).then(|| Pid::from_raw(pid)).flatten()
    });
    found.collect()
}

#[test]
fn every_component_is_a_process_that_is_started_again() {
    let folder = Folder::new(&[(
        "motd.yaml",
        config(
            "50-motd",
            "config:\n  ignition: {version: 3.2.0}\n  storage:\n    files:\n    - {path: /etc/motd, \
             contents: {source: 'data:,hello'}}",
        )
        .as_bytes(),
    )]);
    let mut process = up(&folder, "mco", &["--processes", "--masters", "1", "--nodes", "1"]);
    wait_done(&folder, "mco", 2, &process);
    let main: u32 = folder.read("mco/lock").trim().parse().unwrap();
    for words in ["operator start", "controller start", "server start", "daemon start"] {
        assert!(!children(main, words).is_empty(), "{words}");
    }
    for name in ["operator", "controller", "server", "master-0", "worker-0"] {
        assert!(!folder.read(&format!("mco/logs/{name}.log")).is_empty(), "{name}");
    }
    let logged = || {
        let (_, log, _) = run(&folder, "mco", &["logs", "worker-0"]);
        log.contains("Starting to manage node: worker-0").then_some(())
    };
    api::wait("the log of worker-0", PATIENCE, logged).unwrap();

    // A controller that is killed is started again, and continues.
    let [killed] = children(main, "controller start")[..] else { panic!("one controller") };
    kill_process(killed, Signal::KILL).unwrap();
    let again = || children(main, "controller start").into_iter().find(|it| *it != killed);
    api::wait("the controller to be started again", PATIENCE, again).unwrap();
    let motd = folder.path("motd.yaml").display().to_string();
    assert_eq!(run(&folder, "mco", &["apply", "-f", &motd]).0, 0);
    let written = || fs::read(folder.path("mco/nodes/worker-0/etc/motd")).ok();
    assert_eq!(api::wait("the file on worker-0", PATIENCE, written).unwrap(), b"hello");
    wait_done(&folder, "mco", 2, &process);

    // No process outlives `mco up`, however it ends.
    kill_process(Pid::from_raw(main.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
    process.wait(PATIENCE).unwrap();
    let all_ended = || children(main, "").is_empty().then_some(());
    api::wait("all processes to end with `mco up`", PATIENCE, all_ended).unwrap();
    let mut process = up(&folder, "mco", &["--processes"]);
    wait_done(&folder, "mco", 2, &process);
    let main: u32 = folder.read("mco/lock").trim().parse().unwrap();
    assert_eq!(run(&folder, "mco", &["down", "--purge"]).0, 0);
    assert!(process.wait(PATIENCE).unwrap().success(), "{}", process.log());
    assert!(children(main, "").is_empty());
    assert!(!folder.path("mco").exists());
}

#[tokio::test]
async fn the_embedded_api_server_gets_the_processes() {
    a_cluster_that_is_there_gets_the_processes(Cluster::embedded().await).await;
}

#[tokio::test]
async fn a_real_kube_apiserver_gets_the_processes() {
    if let Some(cluster) = Cluster::real().await {
        a_cluster_that_is_there_gets_the_processes(cluster).await;
    }
}

async fn a_cluster_that_is_there_gets_the_processes(cluster: Cluster) {
    let file = cluster.kubeconfig.display().to_string();
    let nodes = Api::<Node>::all(cluster.client.clone());
    // A node that is a real machine.
    let info = json!({"architecture": "amd64", "bootID": "b", "containerRuntimeVersion": "c",
        "kernelVersion": "k", "kubeProxyVersion": "", "kubeletVersion": "v1", "machineID": "m",
        "operatingSystem": "linux", "osImage": "Debian", "systemUUID": "u"});
    cluster.put(nodes.clone(), "m1", json!({"status": {"nodeInfo": info}})).await;
    let (code, text) = refused(&file, "a").await;
    assert!(code == 1 && text.contains("no simulated machines: m1\nhint: real nodes"), "{text}");
    nodes.delete("m1", &kube::api::DeleteParams::default()).await.unwrap();

    let folder = Folder::new(&[]);
    let flags = ["--kubeconfig", &file, "--masters", "1", "--nodes", "1"];
    let mut process = up(&folder, "mco", &flags);
    wait_done(&folder, "mco", 2, &process);
    let (_, _, errors) = run(&folder, "mco", &["rollout", "pause", "worker"]);
    assert!(errors.starts_with("note: writing to context "), "{errors}");
    // A second operator is refused while the first one leads.
    let (code, text) = refused(&file, "b").await;
    assert!(code == 1 && text.contains("already runs the "), "{text}");
    assert!(text.contains("hint: stop that process"), "{text}");
    let (code, _, errors) = run(&folder, "mco", &["down"]);
    assert_eq!(code, 0, "{errors}");
    assert!(process.wait(PATIENCE).unwrap().success(), "{}", process.log());
    // Without the leader, the nodes are still those of the first directory.
    let (code, text) = refused(&file, "c").await;
    assert!(code == 1 && text.contains("in another directory: master-0, worker-0"), "{text}");
    let (code, _, errors) = run(&folder, "mco", &["up"]);
    assert!(code == 1 && errors.contains("was used with the cluster of a kubeconfig"), "{errors}");

    // Another operator.
    let configs = Api::<ControllerConfig>::all(cluster.client.clone());
    let version = "machineconfiguration.openshift.io/generated-by-version";
    let found = configs.get("machine-config-controller").await.unwrap();
    let annotations = found.metadata.annotations.unwrap_or_default();
    assert!(annotations.contains_key(version), "{annotations:?}");
    let patch = json!({"metadata": {"annotations": {version: "4.99.0"}}});
    let params = kube::api::PatchParams::default();
    configs
        .patch("machine-config-controller", &params, &kube::api::Patch::Merge(patch))
        .await
        .unwrap();
    let (code, text) = refused(&file, "d").await;
    assert!(code == 1 && text.contains("another operator runs this cluster"), "{text}");
}

/// Runs `mco up` on a cluster that refuses it; returns exit code and errors.
async fn refused(kubeconfig: &str, name: &str) -> (i32, String) {
    let folder = Folder::new(&[]);
    let command = folder.mco(&["up", "--kubeconfig", kubeconfig, "--dir", name]);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn the_state_of_two_clusters_is_never_mixed() {
    let folder = Folder::new(&[("mco/state.redb", b""), ("kubeconfig", b"")]);
    let (code, _, errors) = run(&folder, "mco", &["up", "--kubeconfig", "kubeconfig"]);
    assert!(code == 1 && errors.contains("has a cluster of its own\nhint: "), "{errors}");
    assert!(!Path::new(&folder.path("mco/nodes")).exists());
    let mut listed = Command::new(env!("CARGO_BIN_EXE_mco"));
    let output = listed.args(["up", "--processes", "--scenario", "budget"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "the flags exclude each other");
}
