//! Workloads of users in `mco up`, with the commands of kubectl.

use std::io::Write as _;

use super::{
    alone::Up,
    cluster::{self, Cluster},
    down_purge_removes_the_state,
};

#[test]
fn kubectl_runs_workloads_in_mco_up() {
    let cluster = Cluster::new(Up::start());
    if !cluster.has_kubectl() {
        let _ = writeln!(std::io::stderr(), "skipped: kubectl is not built");
        return;
    }
    cluster.wait_updated("worker", "");
    components_are_deployments_and_daemon_sets(&cluster);
    a_deployment_is_created_scaled_updated_and_undone(&cluster);
    a_drained_node_loses_its_pods_to_others(&cluster);
    pods_and_jobs_run(&cluster);
    down_purge_removes_the_state(cluster);
}

/// Runs kubectl and returns its output.
fn kubectl(cluster: &Cluster<Up>, line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let output = cluster.kubectl(&words);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "kubectl {line}: {text}{error}");
    text
}

fn components_are_deployments_and_daemon_sets(cluster: &Cluster<Up>) {
    for workload in ["deploy/machine-config-controller", "ds/machine-config-daemon"] {
        let line = format!("-n openshift-machine-config-operator rollout status {workload}");
        let said = kubectl(cluster, &format!("{line} --timeout=60s"));
        assert!(said.contains("successfully rolled out"), "{said}");
    }
    let line =
        "-n openshift-machine-config-operator get pods -l k8s-app=machine-config-daemon -o name";
    assert_eq!(kubectl(cluster, line).lines().count(), 6, "a daemon per node");
    kubectl(cluster, "-n example rollout status deploy/example --timeout=60s");
}

fn a_deployment_is_created_scaled_updated_and_undone(cluster: &Cluster<Up>) {
    let run = |line: &str| kubectl(cluster, line);
    run("create deployment web --image=example.com/web:1 --replicas=2 --port=8080");
    let done = run("rollout status deployment/web --timeout=60s");
    assert!(done.contains("deployment \"web\" successfully rolled out"), "{done}");
    run("expose deployment web --port=80 --target-port=8080");
    run("scale deployment web --replicas=3");
    run("rollout status deployment/web --timeout=60s");
    cluster.wait("three endpoints", || {
        let found = run("get endpoints web -o jsonpath={.subsets[*].addresses[*].ip}");
        (found.split(' ').count() == 3).then_some(())
    });
    let slices = run("get endpointslices -l kubernetes.io/service-name=web -o name");
    assert_eq!(slices.lines().count(), 1, "{slices}");
    run("set image deployment/web web=example.com/web:2");
    run("rollout status deployment/web --timeout=60s");
    let images = || run("get pods -l app=web -o jsonpath={.items[*].spec.containers[0].image}");
    assert_eq!(images(), ["example.com/web:2"; 3].join(" "));
    let history = run("rollout history deployment/web");
    assert!(history.contains("\n1 ") && history.contains("\n2 "), "{history}");
    run("rollout undo deployment/web");
    run("rollout status deployment/web --timeout=60s");
    assert_eq!(images(), ["example.com/web:1"; 3].join(" "));
    run("rollout restart deployment/web");
    run("rollout status deployment/web --timeout=60s");
    run("wait --for=condition=Available deployment/web --timeout=60s");
}

fn a_drained_node_loses_its_pods_to_others(cluster: &Cluster<Up>) {
    let on = || {
        let found = kubectl(cluster, "get pods -l app=web -o jsonpath={.items[*].spec.nodeName}");
        found.split(' ').map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(on().iter().any(|node| node == "worker-0"), "the pods are spread: {:?}", on());
    kubectl(cluster, "drain worker-0 --ignore-daemonsets --timeout=60s");
    kubectl(cluster, "rollout status deployment/web --timeout=60s");
    assert!(on().iter().all(|node| node != "worker-0"), "{:?}", on());
    kubectl(cluster, "uncordon worker-0");
    kubectl(cluster, "delete deployment,service web --timeout=60s");
    cluster.wait("no pods of the deployment", || {
        kubectl(cluster, "get pods -l app=web -o name").is_empty().then_some(())
    });
}

fn pods_and_jobs_run(cluster: &Cluster<Up>) {
    kubectl(cluster, "run alone --image=example.com/alone");
    kubectl(cluster, "wait --for=condition=Ready pod/alone --timeout=60s");
    kubectl(cluster, "create job once --image=example.com/once");
    kubectl(cluster, "wait --for=condition=complete job/once --timeout=60s");
    let table = cluster::text(&cluster.kubectl(&["get", "pods", "-l", "job-name=once"]));
    assert!(table.contains("Completed"), "{table}");
    kubectl(cluster, "delete pod alone --timeout=60s");
    kubectl(cluster, "delete job once --timeout=60s");
}
