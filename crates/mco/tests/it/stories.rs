//! `mco up` with another terminal: the scenario of an API server that is lost, and the restart of a pool.

use mco_testkit::{
    PATIENCE,
    api::{self, Process},
};
use serde_json::Value;

use crate::Folder;

/// Starts `mco up` with one master and two workers.
fn up(folder: &Folder, flags: &[&str]) -> Process {
    let mut command = api::command(env!("CARGO_BIN_EXE_mco"));
    command.args(["up", "--masters", "1", "--nodes", "2", "--dir"]).arg(folder.path("mco"));
    command.args(flags).env_remove("KUBECONFIG");
    Process::start("mco up", &mut command, &folder.path("log")).unwrap()
}

/// Runs a command on the cluster; returns exit code, output and errors.
fn run(folder: &Folder, words: &[&str]) -> (i32, String, String) {
    let command = folder.mco(words).arg("--dir").arg(folder.path("mco")).env_remove("KUBECONFIG");
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_lost_api_server_is_told_and_reboots_nothing() {
    let folder = Folder::new(&[]);
    let mut process = up(&folder, &["--scenario", "api-lost"]);
    let told = |words: &'static str| {
        let log = || Some(process.log()).filter(|log| log.contains(words));
        api::wait(words, PATIENCE, log).unwrap()
    };
    // Another terminal, on which the cluster is followed from its start.
    told("kubectl get mc,mcp,nodes");
    let mut command = api::command(env!("CARGO_BIN_EXE_mco"));
    command.args(["status", "-w", "--dir"]).arg(folder.path("mco")).env_remove("KUBECONFIG");
    let watch = Process::start("mco status -w", &mut command, &folder.path("status")).unwrap();
    told("] The API server is lost during the update of worker-");
    let (code, _, errors) = run(&folder, &["status"]);
    assert!(code == 1 && errors.contains("hint: start a cluster with `mco up`"), "{errors}");
    for words in ["the API server does not answer since 20", "the API server answers again"] {
        let log = || Some(watch.log()).filter(|log| log.contains(words));
        api::wait(words, PATIENCE, log)
            .unwrap_or_else(|error| panic!("{error:#}\n{}", watch.log()));
    }
    told("60 s without it: all machines run, and none of the others rebooted.");
    told("] The API server is back, with the state that it had.");
    assert!(process.wait(PATIENCE).unwrap().success(), "{}", process.log());
    let log = process.log();
    assert!(
        log.contains("; nothing was rolled back.")
            && log.contains("] Scenario api-lost is complete. "),
        "{log}"
    );
}

/// Returns the boots of the workers, if all of them are Done.
fn boots(folder: &Folder) -> Option<Vec<String>> {
    let (code, text, _) =
        run(folder, &["rollout", "status", "worker", "--watch=false", "-o", "json"]);
    let status: Value = serde_json::from_str(&text).ok()?;
    if code != 0 || status["pools"][0]["ready"] != 2 {
        return None;
    }
    let path = "jsonpath={range .items[*]}{.metadata.name}={.status.nodeInfo.bootID} {end}";
    let (_, text, _) =
        run(folder, &["get", "node", "-l", "node-role.kubernetes.io/worker", "-o", path]);
    Some(text.split_whitespace().map(str::to_owned).collect())
}

#[test]
fn a_restart_reboots_every_node_of_a_pool() {
    let folder = Folder::new(&[]);
    let mut process = up(&folder, &[]);
    let before = api::wait("the workers to be Done", PATIENCE, || boots(&folder)).unwrap();
    assert_eq!(before.len(), 2, "{before:?}");
    let (code, text, errors) = run(&folder, &["rollout", "restart", "worker"]);
    assert!(code == 0 && text.ends_with(" restarts pool worker\n"), "{text}{errors}");
    let restarted = || boots(&folder).filter(|now| before.iter().all(|boot| !now.contains(boot)));
    let after = api::wait("both workers to have rebooted", PATIENCE, restarted);
    let after = after.unwrap_or_else(|error| panic!("{error:#}\n{}", process.log()));
    assert_eq!(after.len(), 2, "{after:?}");
    let (_, text, _) = run(&folder, &["rollout", "history", "worker"]);
    assert!(text.contains("99-worker-restarted-at"), "{text}");
    assert_eq!(run(&folder, &["down", "--purge"]).0, 0);
    assert!(process.wait(PATIENCE).unwrap().success(), "{}", process.log());
}
