//! The MachineConfiguration sets the level of a running operator's log.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
};

use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use mco_api::{MachineConfiguration, label};
use mco_cluster::client;
use mco_testkit::{
    PATIENCE,
    api::{ApiServer as _, Embedded, Process, command, wait},
    object_wait,
};
use serde_json::{Value, json};

use crate::processes::{installed, stop};

fn lines(process: &Process) -> Vec<Value> {
    let log = process.log();
    log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Sends a request that is none, which is worth a line at level Debug only.
fn disturb(process: &Process) {
    let lines = lines(process);
    let line = lines.iter().find(|line| line["message"] == "Serving metrics").unwrap();
    let mut stream = TcpStream::connect(line["address"].as_str().unwrap()).unwrap();
    stream.write_all(b"\0\r\n\r\n").unwrap();
    // Ends with the connection.
    let _ = stream.read_to_end(&mut Vec::new());
}

fn count(process: &Process, is: impl Fn(&Value) -> bool) -> usize {
    lines(process).iter().filter(|line| is(line)).count()
}

fn disturbances(process: &Process) -> usize {
    count(process, |line| line["level"] == "DEBUG" && line["message"] == "Connection failed")
}

/// Sets the level, and waits until the process has noticed.
async fn set(client: &Client, operator: &Process, level: &str, shown: &str) {
    let is_change = |line: &Value| {
        line["message"] == "Changed the level of the log" && line["log_level"] == shown
    };
    let before = count(operator, is_change);
    let api = Api::<MachineConfiguration>::all(client.clone());
    let patch = Patch::Merge(json!({"spec": {"operatorLogLevel": level}}));
    api.patch(label::CLUSTER, &PatchParams::default(), &patch).await.unwrap();
    let changed = wait(&format!("level {shown}"), PATIENCE, || {
        (count(operator, is_change) > before).then_some(())
    });
    changed.map_err(|error| format!("{error}: {}", operator.log())).unwrap();
}

fn wait_for_disturbances(operator: &Process, expected: usize) {
    let found = wait("a line of level Debug", PATIENCE, || {
        (disturbances(operator) >= expected).then_some(())
    });
    found.map_err(|error| format!("{error}: {}", operator.log())).unwrap();
}

// covers: O41
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_level_of_a_running_operator_follows_the_machine_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let api = Embedded::start(Path::new(env!("CARGO_BIN_EXE_mco")), folder.path()).unwrap();
    let client = client::connect(Some(api.kubeconfig())).await.unwrap();
    let mut start = command(env!("CARGO_BIN_EXE_mco"));
    start.args(["operator", "start", "--metrics-listen-address", "127.0.0.1:0"]);
    start.arg("--kubeconfig").arg(api.kubeconfig()).env_remove("RELEASE_VERSION");
    let log = folder.path().join("operator.log");
    let operator = Process::start("operator", &mut start, &log).unwrap();
    installed(&client, "machineconfigurations.operator.openshift.io").await;
    let objects = Api::<MachineConfiguration>::all(client.clone());
    let exists = |found: Option<&MachineConfiguration>| found.is_some();
    let made = object_wait::wait_until(objects, label::CLUSTER, "it is created", exists).await;
    assert!(made.is_ok(), "{}", operator.log());

    disturb(&operator);
    set(&client, &operator, "Debug", "DEBUG").await;
    disturb(&operator);
    wait_for_disturbances(&operator, 1);
    set(&client, &operator, "Normal", "INFO").await;
    disturb(&operator);
    set(&client, &operator, "Debug", "DEBUG").await;
    disturb(&operator);
    wait_for_disturbances(&operator, 2);
    assert_eq!(disturbances(&operator), 2, "only at level Debug: {}", operator.log());
    assert!(stop(operator).success());
}
