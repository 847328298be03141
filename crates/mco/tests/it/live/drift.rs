//! Drift is shown, restored and adopted; a node is drained and forced.

use k8s_openapi::api::{
    core::v1::{Node, Pod, ServiceAccount},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{Cluster, Live};

on_both! {
    drift_is_shown_restored_and_adopted,
    a_node_is_drained_within_the_budgets_of_its_pods,
    a_node_is_forced_to_a_config,
}

const RECOVER: &str = "machineconfiguration.openshift.io/recover";

impl Live {
    /// Changes annotations of the node.
    async fn annotate(&self, annotations: &[(&str, Value)]) {
        let annotations: serde_json::Map<String, Value> = annotations
            .iter()
            .map(|(key, value)| (format!("machineconfiguration.openshift.io/{key}"), value.clone()))
            .collect();
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        let nodes = Api::<Node>::all(self.cluster.client.clone());
        nodes.patch("worker-0", &PatchParams::default(), &patch).await.unwrap();
    }

    /// Returns an annotation of the node; empty if it is missing.
    async fn annotation(&self, key: &str) -> String {
        let node = Api::<Node>::all(self.cluster.client.clone()).get("worker-0").await.unwrap();
        node.metadata.annotations.unwrap().remove(key).unwrap_or_default()
    }

    /// Reports drift as the daemon does.
    async fn report_drift(&self) {
        let reason = format!(
            "unexpected on-disk state validating against {}: content mismatch for file \"/etc/base\"",
            self.first
        );
        self.annotate(&[("state", json!("Degraded")), ("reason", json!(reason))]).await;
    }
}

async fn drift_is_shown_restored_and_adopted(live: Live) {
    let first = &live.first;
    assert_eq!(live.ok(&["drift"]).await, "no node differs from its config\n");
    let (code, _, errors) = live.run(&["drift", "wroker-0"]).await;
    let want = "error: unknown node \"wroker-0\"\nhint: did you mean worker-0?\n";
    assert_eq!((code, errors.as_str()), (2, want));

    live.report_drift().await;
    let (code, text, errors) = live.run(&["drift"]).await;
    let want =
        format!("node worker-0 differs from {first}:\n  content mismatch for file \"/etc/base\"\n");
    assert_eq!((code, &text), (1, &want), "{errors}");
    assert!(errors.contains("`mco drift --fix` restores the config"), "{errors}");
    let (code, _, errors) = live.run(&["drift", "worker-0", "--adopt"]).await;
    assert!(code == 2 && errors.contains("with --root /"), "{errors}");

    // With the disk, the contents are known.
    live.folder.write("disk/etc/base", b"two\n");
    let root = ["drift", "worker-0", "--root", "disk"];
    let (code, text, _) = live.run(&root).await;
    assert!(code == 1 && text.contains("\n-one\n+two\n"), "{text}");
    let (_, text, _) = live.run(&[&root[..], &["-o", "json"]].concat()).await;
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(found[0]["complete"], true, "{text}");
    assert_eq!(found[0]["differences"][0]["path"], "/etc/base", "{text}");
    let adopted = live.ok(&[&root[..], &["--adopt"]].concat()).await;
    live.folder.write("adopted.yaml", adopted.as_bytes());
    live.ok(&["apply", "-f", "adopted.yaml"]).await;
    let names = ["00-base", "50-motd", "99-zz-drift-worker-0"];
    let rendered = live.render(&names).await;
    assert_eq!(live.ok(&["cat", &format!("{rendered}:/etc/base")]).await, "two\n");

    // Nothing is asked without a terminal, so that nothing is changed without --yes.
    let (code, _, errors) = live.run(&["drift", "--fix"]).await;
    assert!(code == 2 && errors.contains("nothing was changed"), "{errors}");
    assert_eq!(live.annotation(RECOVER).await, "");
    let text = live.ok(&["drift", "--fix", "--yes"]).await;
    assert!(text.ends_with("node/worker-0 restores its config\n"), "{text}");
    assert_eq!(live.annotation(RECOVER).await, "force");
}

async fn a_node_is_drained_within_the_budgets_of_its_pods(live: Live) {
    let client = &live.cluster.client;
    // Pods need it; a plain kube-apiserver runs no controller that creates it.
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), "default");
    live.cluster.put(accounts, "default", json!({})).await;
    let pods = Api::<Pod>::namespaced(client.clone(), "default");
    let pod = async |name: &str, owner: Option<&str>| {
        let owner = owner.map(|kind| {
            json!([{"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "u",
                    "controller": true}])
        });
        let pod = json!({
            "metadata": {"labels": {"app": name}, "ownerReferences": owner.unwrap_or(json!([]))},
            "spec": {"nodeName": "worker-0", "terminationGracePeriodSeconds": 0,
                     "containers": [{"name": "main", "image": "example.com/image"}]},
            "status": {"phase": "Running",
                       "conditions": [{"type": "Ready", "status": "True"}]},
        });
        live.cluster.put(pods.clone(), name, pod).await;
    };
    pod("agent", Some("DaemonSet")).await;
    pod("alone", None).await;
    pod("web", Some("ReplicaSet")).await;
    let budgets = Api::<PodDisruptionBudget>::namespaced(client.clone(), "default");
    let budget = json!({
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        "status": {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1,
                   "desiredHealthy": 1, "expectedPods": 1},
    });
    live.cluster.put(budgets.clone(), "keep", budget).await;

    // A pod that would be lost stops everything before the cordon.
    let (code, _, errors) = live.run(&["node", "drain", "worker-0"]).await;
    let want = "pod default/alone: no controller recreates it after the eviction";
    assert!(code == 1 && errors.contains(want) && errors.contains("--force"), "{errors}");
    let nodes = Api::<Node>::all(client.clone());
    let is_cordoned = async || {
        let spec = nodes.get("worker-0").await.unwrap().spec;
        spec.and_then(|spec| spec.unschedulable).unwrap_or_default()
    };
    assert!(!is_cordoned().await);
    let dry = live.ok(&["node", "drain", "worker-0", "--force", "--dry-run"]).await;
    let blocked = "pod default/web waits: PodDisruptionBudget default/keep requires 1 ";
    assert!(dry.contains("pod default/alone is evicted\n") && dry.contains(blocked), "{dry}");
    assert!(!dry.contains("agent") && !is_cordoned().await, "{dry}");

    // The budget blocks until the timeout; its name is in the error.
    let args = ["node", "drain", "worker-0", "--force", "--timeout", "2s"];
    let (code, text, errors) = live.run(&args).await;
    assert!(code == 1 && text.contains(blocked), "{text}{errors}");
    assert!(errors.contains("worker-0 is not drained after 2 s: pod default/web: "), "{errors}");
    assert!(is_cordoned().await && pods.get_opt("alone").await.unwrap().is_none());

    // Without the budget, the drain completes.
    let draining = live.run(&["node", "drain", "worker-0", "--timeout", "60s"]);
    let deletion = DeleteParams::default();
    let ((code, text, errors), deleted) = tokio::join!(draining, budgets.delete("keep", &deletion));
    deleted.unwrap();
    assert_eq!(code, 0, "{text}{errors}");
    assert!(text.ends_with("pod default/web evicted\nnode/worker-0 drained\n"), "{text}");
    assert!(pods.get_opt("agent").await.unwrap().is_some(), "pods of DaemonSets stay");
    live.ok(&["node", "uncordon", "worker-0"]).await;
    assert!(!is_cordoned().await);
}

async fn a_node_is_forced_to_a_config(live: Live) {
    let Live { first, second, .. } = &live;
    let desired = "machineconfiguration.openshift.io/desiredConfig";
    let (code, _, errors) = live.run(&["node", "force", "worker-0", "--yes"]).await;
    assert!(code == 1 && errors.contains("nothing is to be forced"), "{errors}");
    live.report_drift().await;
    let text = live.ok(&["node", "force", "worker-0", "--dry-run"]).await;
    assert!(text.starts_with(&format!("node worker-0 is forced to {second}:\n")), "{text}");
    assert!(text.contains("/run/machine-config-daemon-force"), "{text}");
    assert_eq!(live.annotation(RECOVER).await, "", "a dry run changes nothing");
    live.ok(&["node", "force", "worker-0", "--yes"]).await;
    assert_eq!(live.annotation(RECOVER).await, "force");

    // Another config than that of the pool needs a pause; the pool's own does not.
    live.annotate(&[("desiredConfig", json!(second)), ("recover", Value::Null)]).await;
    let back = ["node", "force", "worker-0", "--yes", "--to", first.as_str()];
    let (code, _, errors) = live.run(&back).await;
    assert!(code == 1 && errors.contains("run `mco rollout pause worker` first"), "{errors}");
    let (code, _, errors) =
        live.run(&["node", "force", "worker-0", "--yes", "--to", "rendered-none"]).await;
    assert!(code == 1 && errors.contains("unknown MachineConfig"), "{errors}");
    live.ok(&["rollout", "pause", "worker"]).await;
    live.ok(&back).await;
    assert_eq!(live.annotation(desired).await, *first);
    assert_eq!(live.annotation(RECOVER).await, "force");
}
