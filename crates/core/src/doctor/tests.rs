use mco_api::annotation;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-11-17T12:00:00Z";

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn empty() -> Facts {
    let right = |name: &str| Right { name: name.to_owned(), allowed: Some(true) };
    Facts {
        rights: vec![right("create namespaces")],
        definitions: Fetched::Found(vec![Definition {
            name: "machineconfigs.machineconfiguration.openshift.io".to_owned(),
            ..Definition::default()
        }]),
        nodes: Fetched::Found(vec![node("w-0", json!({}))]),
        ..Facts::new(NOW.parse().unwrap(), "1.0.0", Ok("v1.36.4".to_owned()))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "takes the result of a macro")]
fn node(name: &str, annotations: Value) -> Node {
    read(json!({
        "metadata": {"name": name, "annotations": annotations,
            "labels": {"node-role.kubernetes.io/worker": ""}},
        "status": {"nodeInfo": {
            "kubeletVersion": "v1.36.4", "operatingSystem": "linux", "osImage": "Fedora",
            "containerRuntimeVersion": "containerd://2.1.0", "architecture": "amd64",
            "bootID": "", "kernelVersion": "", "kubeProxyVersion": "", "machineID": "",
            "systemUUID": "",
        }},
    }))
}

#[expect(clippy::needless_pass_by_value, reason = "takes the result of a macro")]
fn pool(name: &str, conditions: Value) -> MachineConfigPool {
    read(json!({
        "metadata": {"name": name},
        "spec": {
            "configuration": {"name": format!("rendered-{name}-1")},
            "nodeSelector": {"matchLabels": {format!("node-role.kubernetes.io/{name}"): ""}},
        },
        "status": {"machineCount": 1, "conditions": conditions},
    }))
}

fn lease(name: &str, renewed: &str) -> Lease {
    read(json!({"metadata": {"name": name}, "spec": {"holderIdentity": "a",
        "leaseDurationSeconds": 15, "renewTime": renewed}}))
}

fn deployment(name: &str, ready: i32) -> Deployment {
    read(
        json!({"metadata": {"name": name}, "spec": {"replicas": 1, "selector": {}, "template": {}},
        "status": {"observedGeneration": 1, "availableReplicas": ready}}),
    )
}

fn daemon_set(name: &str, ready: i32) -> DaemonSet {
    read(json!({"metadata": {"name": name}, "spec": {"selector": {}, "template": {}},
        "status": {"observedGeneration": 1, "desiredNumberScheduled": 1, "numberReady": ready,
            "currentNumberScheduled": 1, "numberMisscheduled": 0}}))
}

fn daemon_pod(node: &str, image: &str) -> Pod {
    read(json!({
        "metadata": {"name": format!("machine-config-daemon-{node}"),
            "labels": {"k8s-app": "machine-config-daemon"}},
        "spec": {"nodeName": node,
            "containers": [{"name": "machine-config-daemon", "image": image}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }))
}

fn done() -> Value {
    json!({
        "machineconfiguration.openshift.io/currentConfig": "rendered-worker-1",
        "machineconfiguration.openshift.io/desiredConfig": "rendered-worker-1",
        "machineconfiguration.openshift.io/state": "Done",
    })
}

/// Returns a healthy cluster of one node.
fn healthy() -> Facts {
    let definition =
        Definition { state: DefinitionState::Served, ..empty().definitions.items()[0].clone() };
    let namespace = json!({"metadata": {"name": "openshift-machine-config-operator"}});
    let config = json!({"metadata": {"annotations": {
        "machineconfiguration.openshift.io/generated-by-version": "1.0.0",
        "machineconfiguration.openshift.io/join-tokens": "required",
    }}, "spec": {}});
    Facts {
        definitions: Fetched::Found(vec![definition]),
        namespace: Fetched::Found(read(namespace)),
        operator: Fetched::Found(read(
            json!({"metadata": {}, "spec": {}, "status": {"conditions": [
                {"type": "Available", "status": "True"}, {"type": "Degraded", "status": "False"},
            ]}}),
        )),
        controller_config: Fetched::Found(read(config)),
        deployments: Fetched::Found(vec![
            deployment("machine-config-operator", 1),
            deployment("machine-config-controller", 1),
        ]),
        daemon_sets: Fetched::Found(vec![
            daemon_set("machine-config-server", 1),
            daemon_set("machine-config-daemon", 1),
        ]),
        pods: Fetched::Found(vec![daemon_pod("w-0", "mco:1")]),
        leases: Fetched::Found(vec![
            lease("machine-config", "2026-11-17T11:59:55.000000Z"),
            lease("machine-config-controller", "2026-11-17T11:59:55.000000Z"),
        ]),
        nodes: Fetched::Found(vec![node("w-0", done())]),
        machine_config_nodes: Fetched::Found(vec![read(json!({"metadata": {"name": "w-0"},
            "spec": {"node": {"name": "w-0"}, "pool": {"name": "worker"},
                "configVersion": {"desired": "rendered-worker-1"}}}))]),
        pools: Fetched::Found(vec![pool("worker", json!([]))]),
        configs: Fetched::Found(["rendered-worker-1".to_owned()].into()),
        certificates: Fetched::Found(vec![Certificate {
            object: "Secret a/b".to_owned(),
            not_after: Some("2036-01-01T00:00:00Z".parse().unwrap()),
        }]),
        ..empty()
    }
}

/// Returns the findings that are not `ok`, as lines.
fn problems(facts: &Facts) -> Vec<String> {
    let found = examine(facts).into_iter().filter(|finding| finding.severity != Severity::Ok);
    let line = |finding: Finding| {
        let fix = finding.fix.expect("every problem has a fix");
        assert!(!fix.is_empty(), "{}", finding.text);
        let severity = if finding.severity == Severity::Error { "error" } else { "warning" };
        format!("{severity} {}: {} -> {fix}", finding.part, finding.text)
    };
    found.map(line).collect()
}

#[test]
fn a_cluster_without_an_installation_is_examined() {
    assert_eq!(problems(&empty()), [""; 0]);
    let texts: Vec<String> = examine(&empty()).into_iter().map(|found| found.text).collect();
    assert_eq!(
        texts,
        [
            "Kubernetes v1.36.4 answers",
            "you have the rights that an installation needs",
            "no kind exists yet, and none is another owner's",
            "mco is not installed in this cluster; to install it, run: mco install | kubectl apply -f -",
            "1 node can be managed",
        ]
    );
}

#[test]
fn a_healthy_cluster_has_a_good_word_for_every_part() {
    let facts = healthy();
    assert_eq!(problems(&facts), [""; 0]);
    let parts: BTreeSet<Part> = examine(&facts).iter().map(|finding| finding.part).collect();
    // Rights matter before an installation, and drains while there are some.
    assert_eq!(parts.len(), 12, "{parts:?}");
}

#[test]
fn an_unreachable_api_server_is_the_only_finding() {
    let facts = Facts { kubernetes: Err("connection refused".to_owned()), ..empty() };
    let found = problems(&facts);
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("error API server: the API server does not answer: connection"));
}

/// An edit of the healthy cluster, and parts of the one problem that follows.
type Case = (&'static str, fn(&mut Facts), &'static [&'static str]);

const CASES: [Case; 31] = [
    (
        "an old Kubernetes",
        |facts| facts.kubernetes = Ok("v1.29.1".to_owned()),
        &["error API server: Kubernetes v1.29.1 is not supported", "1.30 or later", "newer than"],
    ),
    (
        "clocks",
        |facts| facts.clock_difference = Some(SignedDuration::from_secs(-31)),
        &["warning API server: the clock", "by -31s", "NTP"],
    ),
    (
        "a missing kind",
        |facts| {
            facts.definitions = empty().definitions;
            (facts.leases, facts.deployments) = (empty().leases, empty().deployments);
        },
        &["error kinds: CustomResourceDefinitions are missing: machineconfigs", "mco crds |"],
    ),
    (
        "a missing kind, which the operator creates again",
        |facts| facts.definitions = empty().definitions,
        &["error kinds: CustomResourceDefinitions are missing: machineconfigs", "-> wait: the"],
    ),
    (
        "a kind of another owner",
        |facts| {
            edit(&mut facts.definitions, |it| {
                (it.owner, it.lacks) = (Some("cvo".to_owned()), vec!["spec.a".to_owned()]);
            });
        },
        &["warning kinds: machineconfigs", "of cvo lacks spec.a -> have cvo upgrade it"],
    ),
    (
        "a kind that cannot be used",
        |facts| {
            edit(&mut facts.definitions, |it| {
                it.state = DefinitionState::Unusable("version v1 is not served".to_owned());
            });
        },
        &["error kinds: the kind of machineconfigs", "version v1 is not served"],
    ),
    (
        "pod security",
        |facts| {
            let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
            facts.namespace = Fetched::Found(read(json!({"metadata": {"labels": labels}})));
        },
        &["error namespace: ", "enforces the pod security level restricted", "=privileged"],
    ),
    (
        "no namespace",
        |facts| facts.namespace = Fetched::Absent,
        &["error namespace: the namespace openshift-machine-config-operator does not exist"],
    ),
    (
        "a forgotten node",
        |facts| {
            let mut annotations = done();
            annotations[annotation::RECOVER.name()] = json!("forgotten");
            facts.nodes = Fetched::Found(vec![node("w-0", annotations)]);
        },
        &[
            "warning nodes: node w-0 was forgotten: its daemon leaves it alone",
            "kubectl annotate node w-0 machineconfiguration.openshift.io/recover-",
        ],
    ),
    (
        "another operator",
        |facts| {
            facts.other_operator =
                Some("ControllerConfig a was generated by version v4".to_owned());
            facts.client = "2.0.0".to_owned();
        },
        &[
            "warning operator: another operator runs this cluster: ControllerConfig a was generated",
            "without --take-over -> run: mco takeover --check",
        ],
    ),
    (
        "a degraded operator",
        |facts| {
            facts.operator = Fetched::Found(read(json!({"metadata": {}, "spec": {}, "status": {
            "conditions": [{"type": "Degraded", "status": "True", "reason": "AFailed",
                "message": "no"}]}})));
        },
        &["error operator: the ClusterOperator is Degraded (AFailed): no"],
    ),
    (
        "a controller without pods",
        |facts| {
            facts.leases = Fetched::Found(vec![lease("machine-config", &fresh())]);
            facts.deployments = Fetched::Found(vec![
                deployment("machine-config-operator", 1),
                deployment("machine-config-controller", 0),
            ]);
        },
        &["error controller: 0 of 1 pods of machine-config-controller are ready -> see: kubectl"],
    ),
    (
        "an operator that is not deployed",
        |facts| {
            facts.leases = Fetched::Found(vec![lease("machine-config-controller", &fresh())]);
            facts.deployments = Fetched::Found(vec![deployment("machine-config-controller", 1)]);
        },
        &["error operator: there is no Deployment machine-config-operator -> run: mco install"],
    ),
    (
        "a missing controller, which the operator creates again",
        |facts| {
            facts.leases = Fetched::Found(vec![lease("machine-config", &fresh())]);
            facts.deployments = Fetched::Found(vec![deployment("machine-config-operator", 1)]);
        },
        &[
            "error controller: there is no Deployment machine-config-controller -> wait: the operator",
        ],
    ),
    (
        "missing daemons, and an operator that does not run",
        |facts| {
            facts.deployments = Fetched::Found(vec![
                deployment("machine-config-operator", 0),
                deployment("machine-config-controller", 1),
            ]);
            facts.daemon_sets = Fetched::Found(vec![daemon_set("machine-config-server", 1)]);
        },
        &["error daemons: there is no DaemonSet machine-config-daemon -> let the operator run"],
    ),
    (
        "an operator that is not deployed, in another namespace",
        |facts| {
            facts.installed_in = "node-config".to_owned();
            facts.leases = Fetched::Found(vec![lease("machine-config-controller", &fresh())]);
            facts.deployments = Fetched::Found(vec![deployment("machine-config-controller", 1)]);
            facts.daemon_sets = Fetched::Found(vec![daemon_set("machine-config-daemon", 1)]);
        },
        &[
            "there is no Deployment machine-config-operator -> run: mco install --namespace node-config",
            "there is no DaemonSet machine-config-server -> run: mco install --namespace node-config",
        ],
    ),
    (
        "a server without pods",
        |facts| {
            facts.daemon_sets = Fetched::Found(vec![
                daemon_set("machine-config-server", 0),
                daemon_set("machine-config-daemon", 1),
            ]);
        },
        &["error config server: no pod of machine-config-server is ready: new machines get no"],
    ),
    (
        "a server without nodes",
        |facts| {
            let mut none = daemon_set("machine-config-server", 0);
            none.status.as_mut().unwrap().desired_number_scheduled = 0;
            facts.daemon_sets = Fetched::Found(vec![none, daemon_set("machine-config-daemon", 1)]);
        },
        &[
            "warning config server: the DaemonSet machine-config-server selects no node -> give",
            "kubectl label node NODE node-role.kubernetes.io/control-plane=",
        ],
    ),
    (
        "a node without a daemon",
        |facts| facts.pods = Fetched::Found(vec![]),
        &["error daemons: no pod of machine-config-daemon is ready on node w-0", "taints"],
    ),
    (
        "a node without a report",
        |facts| facts.nodes = Fetched::Found(vec![node("w-0", json!({}))]),
        &["error daemons: the daemon of node w-0 has not reported yet -> see: kubectl get pods"],
    ),
    (
        "images of two versions",
        |facts| {
            let pods = ["mco:1", "mco:2"].map(|image| daemon_pod("w-0", image));
            facts.pods = Fetched::Found(pods.into());
        },
        &["warning operator: the processes run from different images", "mco:1", "mco:2"],
    ),
    (
        "another client",
        |facts| facts.client = "0.9.0".to_owned(),
        &["warning operator: this client has version 0.9.0, and the operator 1.0.0"],
    ),
    (
        "no join tokens",
        |facts| {
            let version = "machineconfiguration.openshift.io/generated-by-version";
            let metadata = json!({"annotations": {version: "1.0.0"}});
            facts.controller_config =
                Fetched::Found(read(json!({"metadata": metadata, "spec": {}})));
        },
        &["warning first boot: FirstBootUnauthenticated", "join-tokens=required"],
    ),
    (
        "an old kubelet and another engine",
        |facts| {
            edit(&mut facts.nodes, |it| {
                let info = it.status.as_mut().unwrap().node_info.as_mut().unwrap();
                info.kubelet_version = "v1.32.0".to_owned();
                info.container_runtime_version = "docker://27".to_owned();
            });
        },
        &["warning nodes: the container engine docker://27 of node w-0", "kubelet v1.32.0 of node"],
    ),
    (
        "a degraded node",
        |facts| {
            let mut annotations = done();
            annotations["machineconfiguration.openshift.io/state"] = json!("Degraded");
            annotations["machineconfiguration.openshift.io/reason"] =
                json!("content mismatch for file \"/etc/a\"");
            facts.nodes = Fetched::Found(vec![node("w-0", annotations)]);
        },
        &["error nodes: node w-0 is degraded: content mismatch", "\"/etc/a\"", "restore the file"],
    ),
    (
        "a degraded pool",
        |facts| {
            let conditions = json!([
                {"type": "Degraded", "status": "True", "message": ""},
                {"type": "RenderDegraded", "status": "True", "message": "99-a is not valid"},
            ]);
            facts.pools = Fetched::Found(vec![pool("worker", conditions)]);
        },
        &["error pools: pool worker is degraded: 99-a is not valid -> fix or delete the Machine"],
    ),
    (
        "a pool that was paused two days ago",
        |facts| {
            let updated = json!([{"type": "Updated", "status": "False",
            "lastTransitionTime": "2026-11-15T12:00:00Z"}]);
            let mut paused = pool("worker", updated);
            paused.spec.paused = true;
            facts.pools = Fetched::Found(vec![paused]);
        },
        &["warning pools: pool worker is paused, and its update has waited for 2d -> run: kubectl"],
    ),
    (
        "a rendered config that is gone",
        |facts| facts.configs = Fetched::Found(BTreeSet::new()),
        &[
            "error configs: pool worker refers to MachineConfig rendered-worker-1",
            "node w-0 refers to MachineConfig rendered-worker-1 (currentConfig)",
        ],
    ),
    (
        "a faulty MachineConfig",
        |facts| {
            let mut fault = Fault::error("BadMode", "mode is 9").hint("use octal digits");
            fault.object = Some("MachineConfig/99-a".to_owned());
            facts.faults = vec![fault];
        },
        &["error configs: MachineConfig/99-a: mode is 9 [BadMode] -> use octal digits"],
    ),
    (
        "a blocked drain",
        |facts| {
            let record = json!({"request": "drain-a", "since": "2026-11-17T11:00:00Z",
            "attempts": 3, "blockers": [{"pod": "shop/web-0",
                "why": "PodDisruptionBudget shop/web allows no disruption",
                "since": "2026-11-17T11:00:00Z"}]});
            let mut annotations = done();
            annotations["machineconfiguration.openshift.io/drainRecord"] =
                json!(record.to_string());
            facts.nodes = Fetched::Found(vec![node("w-0", annotations)]);
        },
        &[
            "warning drains: the drain of node w-0",
            "60m: pod shop/web-0: PodDisruptionBudget shop/web",
        ],
    ),
    (
        "a certificate that ends soon",
        |facts| {
            edit(&mut facts.certificates, |it| {
                it.not_after = Some("2026-11-20T12:00:00Z".parse().unwrap());
            });
        },
        &["warning certificates: the certificate Secret a/b ends in 3d -> see docs/cert"],
    ),
];

#[test]
fn every_problem_is_found_with_its_fix() {
    for (case, change, parts) in CASES {
        let mut facts = healthy();
        change(&mut facts);
        let found = problems(&facts).join("\n");
        for part in parts {
            assert!(found.contains(part), "{case}: {part:?} is not in\n{found}");
        }
    }
}

fn fresh() -> String {
    "2026-11-17T11:59:55.000000Z".to_owned()
}

fn edit<T>(list: &mut Fetched<Vec<T>>, change: impl Fn(&mut T)) {
    let Fetched::Found(all) = list else { panic!("a list") };
    all.iter_mut().for_each(change);
}

#[test]
fn a_lease_is_compared_with_the_clock_of_the_api_server() {
    let stale =
        |facts: &Facts| problems(facts).join("\n").contains("has not renewed its Lease for");
    let mut facts = healthy();
    edit(&mut facts.leases, |lease| {
        lease.spec.as_mut().unwrap().renew_time = Some(read(json!("2026-11-17T11:50:00.000000Z")));
    });
    assert!(stale(&facts));
    facts.clock_difference = Some(SignedDuration::from_secs(-595));
    assert!(!stale(&facts), "{:?}", problems(&facts));
}

#[test]
fn a_node_in_two_custom_pools_and_a_pool_without_nodes_are_found() {
    let mut facts = healthy();
    let selector = json!({"matchLabels": {"node-role.kubernetes.io/worker": ""}});
    let mut pools = ["infra", "gpu"].map(|name| pool(name, json!([])));
    for pool in &mut pools {
        pool.spec.node_selector = read(selector.clone());
    }
    pools[0].status.as_mut().unwrap().machine_count = 0;
    let [infra, gpu] = pools;
    facts.pools = Fetched::Found(vec![infra, gpu]);
    let names = ["rendered-infra-1", "rendered-gpu-1", "rendered-worker-1"];
    facts.configs = Fetched::Found(names.map(str::to_owned).into());
    let found = problems(&facts);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().any(|it| it.contains("node w-0 belongs to 2 custom roles")), "{found:?}");
    assert!(found.iter().any(|it| it.contains("pool infra has no nodes")), "{found:?}");
}

#[test]
fn objects_that_cannot_be_read_are_named() {
    let mut facts = healthy();
    facts.leases = Fetched::Failed("you may not list leases".to_owned());
    facts.deployments = Fetched::Failed("you may not list deployments".to_owned());
    let found = problems(&facts);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("Deployments: not checked: you may not list deployments"));

    let mut facts = empty();
    facts.rights[0].allowed = Some(false);
    let found = problems(&facts);
    assert!(
        found[0].starts_with("error rights: you may not install mco: no right to create names")
    );
}

#[test]
fn processes_outside_of_pods_are_no_problem() {
    let mut facts = healthy();
    facts.deployments = Fetched::Found(vec![]);
    facts.daemon_sets = Fetched::Found(vec![]);
    facts.pods = Fetched::Found(vec![]);
    assert_eq!(problems(&facts), [""; 0]);
    facts.leases = Fetched::Found(vec![]);
    assert_eq!(problems(&facts), [""; 0], "without leader election");
}

#[test]
fn processes_of_mco_up_have_pods_and_no_leases() {
    let mut facts = healthy();
    facts.leases = Fetched::Found(vec![]);
    let found = problems(&facts);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("machine-config-operator is ready and holds no Lease"), "{found:?}");
    facts.kubernetes = Ok("v1.36.0+mco".to_owned());
    assert_eq!(problems(&facts), [""; 0]);
}

#[test]
fn equal_findings_about_nodes_are_one() {
    let mut facts = empty();
    let engine = |name: &str| {
        let mut node = node(name, json!({}));
        let info = node.status.as_mut().unwrap().node_info.as_mut().unwrap();
        info.container_runtime_version = "docker://27".to_owned();
        node
    };
    facts.nodes = Fetched::Found(["a", "b", "c", "d", "e"].map(engine).into());
    let found = problems(&facts);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("docker://27 of nodes a, b, c and 2 more is not supported"));
}
