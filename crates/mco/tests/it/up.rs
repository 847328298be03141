//! The whole system as a person runs it, driven by `kubectl` where there is one and by `mco` where
//! there is none: the same claims on `mco up`, and on a real kube-apiserver with every process by
//! itself.

mod alone;
mod apart;
mod cluster;
mod screen;

use std::io::Write as _;

use mco_testkit::{
    api::Programs,
    nodes::{View, Views, most},
};
use serde_json::Value;

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
fn a_cluster_on_one_machine_does_what_a_cluster_does() {
    let mut cluster = Cluster::new(Up::start());
    a_second_one_is_refused(&cluster.processes);
    it_does_what_a_cluster_does(&mut cluster);
    it_goes_without_a_trace(cluster);
}

#[test]
fn on_a_real_kube_apiserver_the_processes_do_the_same() {
    let programs = match Programs::find() {
        Ok(programs) => programs,
        Err(absent) => {
            let _ = writeln!(std::io::stderr(), "skipped: {absent}");
            return;
        }
    };
    let mut cluster = Cluster::new(Apart::start(&programs));
    it_does_what_a_cluster_does(&mut cluster);
    cluster.processes.stop();
}

#[test]
fn ctrl_c_stops_it_and_the_next_start_goes_on() {
    let mut cluster = Cluster::new(Up::start());
    let before = cluster.wait_updated("worker", "");
    let boots = Nodes::Workers.names().map(|node| cluster.boot_id(&node));
    cluster.processes.interrupt();
    let said = cluster::text(&cluster.processes.mco(&["down"]));
    assert!(said.contains("does not run"), "{said}");
    cluster.processes.start_again();
    assert_eq!(cluster.wait_updated("worker", ""), before);
    assert_eq!(Nodes::Workers.names().map(|node| cluster.boot_id(&node)), boots);
    it_goes_without_a_trace(cluster);
}

/// What holds on either.
fn it_does_what_a_cluster_does<R: Runs>(cluster: &mut Cluster<R>) {
    it_comes_up_well(cluster);
    a_config_reaches_every_worker_one_at_a_time(cluster);
    new_machines_get_the_config_too(cluster);
    a_changed_file_degrades_its_node_until_it_is_put_back(cluster);
    new_keys_need_no_restart(cluster);
    a_paused_pool_holds(cluster);
    a_deleted_config_takes_its_files_along(cluster);
    nothing_is_lost_when_it_is_killed(cluster);
}

fn a_second_one_is_refused(up: &Up) {
    let second = up.mco(&["up"]);
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(!second.status.success() && said.contains("already (process "), "{said}");
}

fn new_keys_need_no_restart<R: Runs>(cluster: &Cluster<R>) {
    let all = || [Nodes::Masters, Nodes::Workers].into_iter().flat_map(Nodes::names);
    let before = ["master", "worker"].map(|pool| cluster.wait_updated(pool, ""));
    let watching = cluster.watch(|_, node| before.contains(&node.current) && is_at_rest(node));
    let boots: Vec<String> = all().map(|node| cluster.boot_id(&node)).collect();
    cluster.apply("examples/99-ssh.yaml");
    for (pool, before) in ["master", "worker"].iter().zip(&before) {
        cluster.wait_updated(pool, before);
    }
    let history = watching.until("the nodes to have the keys", |_, node| {
        !before.contains(&node.current) && is_at_rest(node)
    });
    let out = most(&history, |node| !node.is_in_service());
    assert!(out.is_empty(), "nobody leaves: {out:#?}");
    assert_eq!(all().map(|node| cluster.boot_id(&node)).collect::<Vec<_>>(), boots);
    for node in all() {
        assert!(cluster.has(&node, "home/core/.ssh/authorized_keys.d/ignition"), "{node}");
    }
}

fn it_comes_up_well<R: Runs>(cluster: &Cluster<R>) {
    cluster.wait_updated("master", "");
    cluster.wait_updated("worker", "");
    cluster.wait("the operator to say that all is well", || {
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

fn a_config_reaches_every_worker_one_at_a_time<R: Runs>(cluster: &Cluster<R>) {
    let before = cluster.wait_updated("worker", "");
    let watching = cluster.watch(|_, node| is_at_rest(node));
    let boots = Nodes::Workers.names().map(|node| (cluster.boot_id(&node), node));
    cluster.apply(EXAMPLE);
    let after = cluster.wait_updated("worker", &before);
    let is_worker = |name: &str| name.starts_with("worker-");
    let history = watching.until("the workers to have the config", |name, node| {
        is_at_rest(node) && (node.current == after || !is_worker(name))
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
    let out = most(&history, |node| !node.is_in_service());
    assert_eq!(out.len(), 1, "never more than one: {out:#?}");
    for node in Nodes::Workers.names() {
        let line = format!("node {node}: Ready, Done, {after}\n");
        cluster.wait("the news to tell of it", || {
            cluster.processes.news().contains(&line).then_some(())
        });
        let was_out = |views: &Views| !views[&node].is_in_service();
        assert!(history.iter().any(was_out), "{node} was emptied first");
    }
}

fn new_machines_get_the_config_too<R: Runs>(cluster: &Cluster<R>) {
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

fn a_changed_file_degrades_its_node_until_it_is_put_back<R: Runs>(cluster: &Cluster<R>) {
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
    cluster.wait("the pool to be well again", || {
        (condition(&cluster.get("mcp", "worker"), "Degraded").0 == "False").then_some(())
    });
}

fn a_paused_pool_holds<R: Runs>(cluster: &Cluster<R>) {
    let before = cluster.wait_updated("worker", "");
    cluster.pause("worker", true);
    cluster.apply("examples/99-worker-chrony.yaml");
    let next = cluster.wait("a new config for the paused pool", || {
        let name = target(&cluster.get("mcp", "worker"));
        (name != before).then_some(name)
    });
    cluster.wait("the pool to say that it is behind", || {
        (condition(&cluster.get("mcp", "worker"), "Updated").0 == "False").then_some(())
    });
    for node in Nodes::Workers.names() {
        assert_eq!(cluster.node(&node).desired, before, "{node} is left alone");
    }
    cluster.pause("worker", false);
    assert_eq!(cluster.wait_updated("worker", &before), next);
    for node in Nodes::Workers.names() {
        assert!(cluster.has(&node, "etc/chrony.conf"), "{node}");
    }
}

fn a_deleted_config_takes_its_files_along<R: Runs>(cluster: &Cluster<R>) {
    let before = cluster.wait_updated("worker", "");
    cluster.delete("mc", "99-worker-custom");
    cluster.wait_updated("worker", &before);
    for node in Nodes::Workers.names() {
        assert!(!cluster.has(&node, FILE) && !cluster.has(&node, UNIT), "{node}");
    }
}

fn nothing_is_lost_when_it_is_killed<R: Runs>(cluster: &mut Cluster<R>) {
    let before = cluster.wait_updated("worker", "");
    cluster.apply(EXAMPLE);
    cluster.wait("a worker to be under way", || {
        let workers = Nodes::Workers.names();
        workers.iter().any(|node| cluster.node(node).desired != before).then_some(())
    });
    cluster.processes.kill_and_start_again();
    let after = cluster.wait_updated("worker", &before);
    assert_eq!(after, cluster.rendered_offline("worker"));
    for node in Nodes::Workers.names() {
        assert_eq!(cluster.read(&node, FILE).as_deref(), Some(CONTENTS), "{node}");
        assert!(cluster.has(&node, UNIT), "{node}");
        cluster.wait("the node to take pods again", || {
            let node = cluster.get("node", &node);
            (node.pointer("/spec/unschedulable") != Some(&Value::Bool(true))).then_some(())
        });
    }
}

fn it_goes_without_a_trace(mut cluster: Cluster<Up>) {
    let said = cluster.processes.down_and_purge();
    assert!(said.contains("has stopped"), "{said}");
    assert!(!cluster.processes.dir().exists());
}

/// Status and message of a condition; `Unknown` where it is missing.
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

/// The config that a pool is to have.
fn target(pool: &Value) -> String {
    let name = pool.pointer("/spec/configuration/name").and_then(Value::as_str);
    name.unwrap_or_default().to_owned()
}

/// Whether a node is in service with its config and does nothing.
fn is_at_rest(node: &View) -> bool {
    node.is_done() && node.is_in_service()
}
