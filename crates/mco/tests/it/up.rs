//! The whole system, driven by `kubectl` if available and by `mco` otherwise: the same claims on
//! `mco up`, and on a real kube-apiserver with separate processes.

mod alone;
mod apart;
mod cluster;
mod rights;
mod screen;
mod workloads;

use std::io::Write as _;

use kube::{
    Api,
    api::{Patch, PatchParams},
};
use mco_api::{ControllerConfig, label};
use mco_testkit::{
    PATIENCE,
    api::{self, Process, Programs},
    nodes::{NodeSummaries, NodeSummary, max_matching},
};
use serde_json::{Value, json};

use self::{
    alone::Up,
    apart::Apart,
    cluster::{Cluster, Nodes, Runs},
};

const FILE: &str = "etc/custom-config";
const CONTENTS: &str = "greeting = hello\ninterval = 30\n";
const UNIT: &str = "etc/systemd/system/multi-user.target.wants/custom.service";
const EXAMPLE: &str = "examples/99-worker-custom.yaml";

#[test]
fn mco_up_runs_a_cluster() {
    let mut cluster = Cluster::new(Up::start());
    a_second_mco_up_is_refused(&cluster.processes);
    verbose_prints_the_log(&cluster);
    components_are_pods_with_logs(&cluster);
    the_cluster_works(&mut cluster);
    drift_is_restored_and_adopted(&cluster);
    down_purge_removes_the_state(cluster);
}

#[test]
fn separate_processes_run_a_cluster_on_a_real_kube_apiserver() {
    let programs = match Programs::find() {
        Ok(programs) => programs,
        Err(absent) => {
            let _ = writeln!(std::io::stderr(), "skipped: {absent}");
            return;
        }
    };
    let mut cluster = Cluster::new(Apart::start(&programs));
    the_cluster_works(&mut cluster);
    cluster.processes.stop();
}

#[test]
fn a_second_start_continues_with_the_state_of_the_first() {
    let mut cluster = Cluster::new(Up::start());
    let before = cluster.wait_updated("worker", "");
    let boots = Nodes::Workers.names().map(|node| cluster.boot_id(&node));
    cluster.processes.interrupt();
    let output = cluster::text(&cluster.processes.mco(&["down"]));
    assert!(output.contains("is not running"), "{output}");
    cluster.processes.start_again();
    assert_eq!(cluster.wait_updated("worker", ""), before);
    assert_eq!(Nodes::Workers.names().map(|node| cluster.boot_id(&node)), boots);
    down_purge_removes_the_state(cluster);
}

#[test]
fn workers_are_added_and_removed_by_later_starts() {
    let mut cluster = Cluster::new(Up::start());
    let config = cluster.wait_updated("worker", "");
    // The new machine needs a token then, which only its start can make.
    cluster.with_client(async |client| {
        let annotations = json!({"machineconfiguration.openshift.io/join-tokens": "required"});
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        let configs = Api::<ControllerConfig>::all(client);
        let params = PatchParams::default();
        configs.patch(label::CONTROLLER_CONFIG, &params, &patch).await.unwrap();
    });
    cluster.processes.interrupt();
    cluster.processes.start_again_with(&["--nodes", "+1", "--zones", "2"]);
    cluster
        .wait("worker-3 to be Done", || (cluster.node("worker-3").state == "Done").then_some(()));
    for (node, zone) in [("worker-1", "zone-1"), ("worker-3", "zone-1"), ("master-0", "zone-0")] {
        cluster.wait(&format!("{node} to be in {zone}"), || {
            let labels = cluster.get("node", node)["metadata"]["labels"].clone();
            (labels["topology.kubernetes.io/zone"] == zone).then_some(())
        });
    }
    let count =
        |cluster: &Cluster<Up>| cluster.get("mcp", "worker")["status"]["machineCount"].clone();
    cluster.wait("the pool to have four machines", || (count(&cluster) == 4).then_some(()));
    cluster.processes.interrupt();
    cluster.processes.start_again_with(&["--nodes", "1"]);
    cluster.wait("the pool to have one machine", || (count(&cluster) == 1).then_some(()));
    let pool = cluster.get("mcp", "worker");
    assert_eq!(pool["status"]["configuration"]["name"], config.as_str(), "{pool}");
    for kind in ["nodes", "machineconfignodes"] {
        cluster.wait(&format!("{kind} of one worker"), || {
            let table = cluster.table(kind);
            (table.contains("worker-0") && !table.contains("worker-1")).then_some(())
        });
    }
    assert!(cluster.processes.nodes().join("worker-0").exists());
    assert!(!cluster.processes.nodes().join("worker-1").exists());
    down_purge_removes_the_state(cluster);
}

#[test]
fn every_scenario_ends_by_itself_with_its_outcome() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("mco").display().to_string();
    let run = |words: &[&str]| {
        let mut command = api::command(env!("CARGO_BIN_EXE_mco"));
        let log = folder.path().join(words.join("-").replace('/', "-"));
        let mut run =
            Process::start("mco", command.args(words).env("NO_COLOR", "1"), &log).unwrap();
        if let Err(error) = run.wait(2 * PATIENCE) {
            panic!("{error:#}\n{}", run.log());
        }
        run.log()
    };
    let listed = run(&["up", "--scenario", "list"]);
    assert!(listed.lines().count() >= 5 && listed.contains("budget "), "{listed}");
    let up = ["up", "--dir", &dir, "--masters", "1", "--nodes", "2"];
    for (story, want) in [
        ("no-reboot", "and has not rebooted."),
        ("kernel-argument", "and all 2 rebooted."),
        ("bad-config", "The roll-out stops there: 2 workers still run"),
        ("drift", "rebooted, and is Done."),
        ("budget", "The drain continued by itself"),
        ("join", "worker-2 is Done with rendered-worker-"),
    ] {
        let told = run(&[&up[..], &["--scenario", story]].concat());
        assert!(told.contains(&format!("] Scenario {story}: ")), "{told}");
        let end = format!("] Scenario {story} is complete. ");
        assert!(told.contains(want) && told.contains(&end), "{told}");
    }
}

/// Tests the claims that hold for both.
fn the_cluster_works<R: Runs>(cluster: &mut Cluster<R>) {
    operator_and_pools_become_available(cluster);
    a_config_is_rolled_out_one_worker_at_a_time(cluster);
    the_server_serves_the_new_config(cluster);
    a_changed_file_degrades_its_node_until_restored(cluster);
    new_ssh_keys_need_no_reboot(cluster);
    a_paused_pool_updates_no_node(cluster);
    a_deleted_config_removes_its_files(cluster);
    a_kubelet_config_is_rolled_out_and_its_deletion_returns(cluster);
    a_killed_cluster_continues_the_rollout(cluster);
}

fn a_second_mco_up_is_refused(up: &Up) {
    let second = up.mco(&["up"]);
    let error = String::from_utf8_lossy(&second.stderr);
    assert!(!second.status.success() && error.contains("(process "), "{error}");
}

/// The cluster runs with `--verbose`.
fn verbose_prints_the_log(cluster: &Cluster<Up>) {
    cluster.wait("log lines of the controller", || {
        cluster.processes.status_lines().contains(" INFO mco_controller").then_some(())
    });
}

/// The components have the pods of an installed cluster, which survive the roll-out of a config.
fn components_are_pods_with_logs(cluster: &Cluster<Up>) {
    let logs = |arguments: &[&str]| {
        let arguments: Vec<&str> = ["logs"].iter().chain(arguments).copied().collect();
        let output = cluster.processes.mco(&arguments);
        let found = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success().then_some(found)
    };
    cluster.wait("the log of worker-0", || {
        let log = logs(&["worker-0"])?;
        let is_own = log.contains("Starting to manage node: worker-0");
        (is_own && !log.contains("Starting to manage node: worker-1")).then_some(())
    });
    cluster.wait("a line of the controller", || {
        let log = logs(&["controller", "--tail", "1", "--since", "1h"])?;
        (log.lines().count() == 1 && log.contains("mco_controller")).then_some(())
    });
    cluster.wait("a line of each daemon, with its node", || {
        let log = logs(&["daemon", "--tail=1"])?;
        log.lines().any(|line| line.starts_with("master-2: ")).then_some(())
    });
    let unknown = cluster.processes.mco(&["logs", "worker-9"]);
    let error = String::from_utf8_lossy(&unknown.stderr);
    assert!(!unknown.status.success() && error.contains("on a node worker-9"), "{error}");
}

fn new_ssh_keys_need_no_reboot<R: Runs>(cluster: &Cluster<R>) {
    let all = || [Nodes::Masters, Nodes::Workers].into_iter().flat_map(Nodes::names);
    let before = ["master", "worker"].map(|pool| cluster.wait_updated(pool, ""));
    let watching = cluster.watch(|_, node| before.contains(&node.current) && is_idle(node));
    let boots: Vec<String> = all().map(|node| cluster.boot_id(&node)).collect();
    cluster.apply("examples/99-ssh.yaml");
    for (pool, before) in ["master", "worker"].iter().zip(&before) {
        cluster.wait_updated(pool, before);
    }
    let history = watching.until("the nodes to have the keys", |_, node| {
        !before.contains(&node.current) && is_idle(node)
    });
    let out = max_matching(&history, |node| !node.accepts_pods());
    assert!(out.is_empty(), "every node stays in service: {out:#?}");
    assert_eq!(all().map(|node| cluster.boot_id(&node)).collect::<Vec<_>>(), boots);
    for node in all() {
        assert!(cluster.has(&node, "home/core/.ssh/authorized_keys.d/ignition"), "{node}");
    }
}

fn operator_and_pools_become_available<R: Runs>(cluster: &Cluster<R>) {
    cluster.wait_updated("master", "");
    cluster.wait_updated("worker", "");
    cluster.wait("the operator to be Available", || {
        let operator = cluster.get("clusteroperator", "machine-config");
        let holds =
            ["Available", "Progressing", "Degraded"].map(|kind| condition(&operator, kind).0);
        (holds == ["True", "False", "False"]).then_some(())
    });
    let configs = cluster.table("mc");
    assert!(configs.starts_with("NAME "), "{configs}");
    for (kind, titles) in [
        ("mc", "NAME GENERATEDBYCONTROLLER IGNITIONVERSION AGE"),
        ("mcp", "NAME CONFIG UPDATED UPDATING DEGRADED MACHINECOUNT READYMACHINECOUNT"),
    ] {
        let table = cluster.table(kind);
        let shown: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
        let titles: Vec<&str> = titles.split(' ').collect();
        assert!(titles.iter().all(|title| shown.contains(title)), "{kind}: {shown:?}");
        assert_eq!(shown.first(), titles.first());
    }
}

fn a_config_is_rolled_out_one_worker_at_a_time<R: Runs>(cluster: &Cluster<R>) {
    let before = cluster.wait_updated("worker", "");
    let watching = cluster.watch(|_, node| is_idle(node));
    let boots = Nodes::Workers.names().map(|node| (cluster.boot_id(&node), node));
    cluster.apply(EXAMPLE);
    let after = cluster.wait_updated("worker", &before);
    let is_worker = |name: &str| name.starts_with("worker-");
    let history = watching.until("the workers to have the config", |name, node| {
        is_idle(node) && (node.current == after || !is_worker(name))
    });
    assert_eq!(after, cluster.rendered_offline("worker"), "the name is that of `mco render`");
    for node in Nodes::Workers.names() {
        assert_eq!(cluster.read(&node, FILE).as_deref(), Some(CONTENTS), "{node}");
        assert!(cluster.has(&node, UNIT), "{node}: the unit is enabled");
    }
    for (boot_id, node) in boots {
        assert_ne!(cluster.boot_id(&node), boot_id, "{node} has been restarted");
    }
    for node in Nodes::Masters.names() {
        assert!(!cluster.has(&node, FILE) && !cluster.has(&node, UNIT), "{node}");
    }
    let out = max_matching(&history, |node| !node.accepts_pods());
    assert_eq!(out.len(), 1, "one node at a time: {out:#?}");
    for node in Nodes::Workers.names() {
        let line = format!("node {node}: Ready, Done, {after}\n");
        cluster.wait("the status line of the node", || {
            cluster.processes.status_lines().contains(&line).then_some(())
        });
        let was_out = |views: &NodeSummaries| !views[&node].accepts_pods();
        assert!(history.iter().any(was_out), "{node} was drained");
    }
}

fn the_server_serves_the_new_config<R: Runs>(cluster: &Cluster<R>) {
    cluster.wait("the server to have the config", || {
        let served = cluster.served("worker")?;
        let has = |list: &str, key: &str, name: &str| {
            let list = served.pointer(list).and_then(Value::as_array);
            list.is_some_and(|list| list.iter().any(|it| it[key] == name))
        };
        let has_both = has("/storage/files", "path", "/etc/custom-config")
            && has("/systemd/units", "name", "custom.service");
        has_both.then_some(())
    });
}

fn a_changed_file_degrades_its_node_until_restored<R: Runs>(cluster: &Cluster<R>) {
    let config = cluster.wait_updated("worker", "");
    cluster.write("worker-1", FILE, "greeting = bye\n");
    let message = format!(
        "unexpected on-disk state validating against {config}: \
         content mismatch for file \"/etc/custom-config\""
    );
    cluster.wait("worker-1 to be Degraded", || {
        let node = cluster.node("worker-1");
        (node.state == "Degraded" && node.reason == message).then_some(())
    });
    cluster.wait("the pool to be Degraded", || {
        let (status, text) = condition(&cluster.get("mcp", "worker"), "Degraded");
        (status == "True" && text.contains(&format!("Node worker-1 is reporting: {message:?}")))
            .then_some(())
    });
    cluster.write("worker-1", FILE, CONTENTS);
    cluster.wait("worker-1 to be Done again", || {
        let node = cluster.node("worker-1");
        (node.state == "Done" && node.reason.is_empty()).then_some(())
    });
    cluster.wait("the pool to recover", || {
        (condition(&cluster.get("mcp", "worker"), "Degraded").0 == "False").then_some(())
    });
}

/// The disks of `mco up` are on this machine, so that the differences are known.
fn drift_is_restored_and_adopted(cluster: &Cluster<Up>) {
    let up = &cluster.processes;
    let is_done = |node: &str| {
        cluster.wait(&format!("{node} to be Done"), || {
            let node = cluster.node(node);
            (node.state == "Done" && node.reason.is_empty()).then_some(())
        });
    };
    let drifts = |node: &str| {
        cluster.write(node, FILE, "greeting = bye\n");
        cluster.wait(&format!("{node} to be Degraded"), || {
            (cluster.node(node).state == "Degraded").then_some(())
        });
    };
    let before = cluster.wait_updated("worker", "");
    let boot = cluster.boot_id("worker-0");
    drifts("worker-0");
    let shown = up.mco(&["drift"]);
    assert_eq!(shown.status.code(), Some(1));
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("-greeting = hello\n-interval = 30\n+greeting = bye\n"), "{shown}");
    cluster::succeed(&up.mco(&["drift", "worker-0", "--fix", "--yes"]));
    is_done("worker-0");
    assert_eq!(cluster.read("worker-0", FILE).as_deref(), Some(CONTENTS));
    assert_ne!(cluster.boot_id("worker-0"), boot, "the force file reboots");

    drifts("worker-1");
    let adopting = cluster::text(&up.mco(&["drift", "worker-1", "--adopt"]));
    let file = cluster.file("adopted.yaml", &adopting);
    cluster::succeed(&up.mco(&["apply", "-f", &file]));
    cluster.wait("the pool to have another target", || {
        (target(&cluster.get("mcp", "worker")) != before).then_some(())
    });
    cluster::succeed(&up.mco(&["node", "force", "worker-1", "--yes"]));
    cluster.wait_updated("worker", &before);
    for node in Nodes::Workers.names() {
        assert_eq!(cluster.read(&node, FILE).as_deref(), Some("greeting = bye\n"), "{node}");
    }
}

fn a_paused_pool_updates_no_node<R: Runs>(cluster: &Cluster<R>) {
    let before = cluster.wait_updated("worker", "");
    cluster.pause("worker", true);
    cluster.apply("examples/99-worker-chrony.yaml");
    let next = cluster.wait("a new config for the paused pool", || {
        let name = target(&cluster.get("mcp", "worker"));
        (name != before).then_some(name)
    });
    cluster.wait("the pool to be not Updated", || {
        (condition(&cluster.get("mcp", "worker"), "Updated").0 == "False").then_some(())
    });
    for node in Nodes::Workers.names() {
        assert_eq!(cluster.node(&node).desired, before, "{node} keeps its config");
    }
    cluster.pause("worker", false);
    assert_eq!(cluster.wait_updated("worker", &before), next);
    for node in Nodes::Workers.names() {
        assert!(cluster.has(&node, "etc/chrony.conf"), "{node}");
    }
}

fn a_deleted_config_removes_its_files<R: Runs>(cluster: &Cluster<R>) {
    let before = cluster.wait_updated("worker", "");
    cluster.delete("mc", "99-worker-custom");
    cluster.wait_updated("worker", &before);
    for node in Nodes::Workers.names() {
        assert!(!cluster.has(&node, FILE) && !cluster.has(&node, UNIT), "{node}");
    }
}

// covers: KUB-1, KUB-10
fn a_kubelet_config_is_rolled_out_and_its_deletion_returns<R: Runs>(cluster: &Cluster<R>) {
    let before = cluster.wait_updated("worker", "");
    cluster.label("worker", "custom-kubelet", "sysctl");
    cluster.apply("examples/settings/kubelet-sysctls.yaml");
    let after = cluster.wait_updated("worker", &before);
    let object = cluster.get("kubeletconfig", "custom-kubelet");
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).map(str::to_owned);
    let generated = Some("99-worker-generated-kubelet".to_owned());
    assert_eq!(text("/metadata/finalizers/0"), generated, "{object}");
    let suffix = "/metadata/annotations/machineconfiguration.openshift.io~1mc-name-suffix";
    assert_eq!(text(suffix).as_deref(), Some(""), "{object}");
    assert!(cluster.table("mc").contains("99-worker-generated-kubelet"));
    assert_eq!(after, cluster.rendered_offline("worker"));
    let has_sysctls = |node: &str| {
        let fragment = cluster.read(node, "etc/kubernetes/kubelet.conf.d/99-mco-0.conf");
        fragment.is_some_and(|text| text.contains("net.sctp.sack_timeout"))
    };
    for node in Nodes::Workers.names() {
        assert!(has_sysctls(&node), "{node}");
    }
    cluster.delete("kubeletconfig", "custom-kubelet");
    assert_eq!(cluster.wait_updated("worker", &after), before);
    for node in Nodes::Workers.names() {
        assert!(!has_sysctls(&node), "{node}");
    }
}

fn a_killed_cluster_continues_the_rollout<R: Runs>(cluster: &mut Cluster<R>) {
    let before = cluster.wait_updated("worker", "");
    cluster.apply(EXAMPLE);
    cluster.wait("a worker to be updating", || {
        let workers = Nodes::Workers.names();
        workers.iter().any(|node| cluster.node(node).desired != before).then_some(())
    });
    cluster.processes.kill_and_start_again();
    let after = cluster.wait_updated("worker", &before);
    assert_eq!(after, cluster.rendered_offline("worker"));
    for node in Nodes::Workers.names() {
        assert_eq!(cluster.read(&node, FILE).as_deref(), Some(CONTENTS), "{node}");
        assert!(cluster.has(&node, UNIT), "{node}");
        cluster.wait("the node to be uncordoned", || {
            let node = cluster.get("node", &node);
            (node.pointer("/spec/unschedulable") != Some(&Value::Bool(true))).then_some(())
        });
    }
}

fn down_purge_removes_the_state(mut cluster: Cluster<Up>) {
    let output = cluster.processes.down_and_purge();
    assert!(output.contains("has stopped"), "{output}");
    assert!(!cluster.processes.dir().exists());
}

/// Returns status and message of a condition; `Unknown` if missing.
fn condition(object: &Value, kind: &str) -> (String, String) {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let found = conditions.into_iter().flatten().find(|found| found["type"] == kind);
    let text =
        |key: &str| found.and_then(|found| found[key].as_str()).unwrap_or_default().to_owned();
    if found.is_some() {
        (text("status"), text("message"))
    } else {
        ("Unknown".to_owned(), String::new())
    }
}

/// Returns the target config of a pool.
fn target(pool: &Value) -> String {
    let name = pool.pointer("/spec/configuration/name").and_then(Value::as_str);
    name.unwrap_or_default().to_owned()
}

/// Returns true if a node is in service with its config and not updating.
fn is_idle(node: &NodeSummary) -> bool {
    node.is_done() && node.accepts_pods()
}
