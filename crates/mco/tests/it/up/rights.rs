//! The rights of the components of `mco up`.

use k8s_openapi::api::{
    core::v1::Secret,
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use mco_api::label;
use mco_cluster::client;
use serde_json::json;

use super::{
    EXAMPLE,
    alone::Up,
    cluster::{Cluster, Runs as _},
    down_purge_removes_the_state,
};

const CONTROLLER: &str = "machine-config-controller";

#[test]
fn a_component_whose_role_loses_a_verb_is_denied_and_named() {
    let mut cluster = Cluster::new(Up::start());
    let before = cluster.wait_updated("worker", "");
    let lines = cluster.processes.status_lines();
    assert!(!lines.contains("was denied"), "{lines}");
    machines_get_a_token_that_only_requests_certificates(&cluster);
    cluster.with_client(async |client| drop_verb(&client, "nodes", "patch").await);
    cluster.apply(EXAMPLE);
    let user = format!("system:serviceaccount:{}:{CONTROLLER}", label::NAMESPACE);
    let refusal = format!("User {user:?} cannot patch resource \"nodes\" in API group \"\"");
    cluster.wait("the denied request to be printed", || {
        let lines = cluster.processes.status_lines().replace('\\', "");
        let mut denied = lines.lines().filter(|line| line.contains("was denied a request"));
        denied.any(|line| line.contains("ERROR") && line.contains(&refusal)).then_some(())
    });
    assert_eq!(cluster.node("worker-0").desired, before, "no node was updated");
    // As a state directory that an older version wrote, which had no roles.
    cluster.with_client(async |client| {
        let params = DeleteParams::default();
        let roles = Api::<ClusterRole>::all(client.clone());
        roles.delete(CONTROLLER, &params).await.unwrap();
        let bindings = Api::<ClusterRoleBinding>::all(client.clone());
        bindings.delete("machine-config-daemon", &params).await.unwrap();
    });
    cluster.processes.interrupt();
    cluster.processes.start_again();
    cluster.wait_updated("worker", &before);
    machines_get_a_token_that_only_requests_certificates(&cluster);
    let lines = cluster.processes.status_lines();
    assert!(!lines.contains("was denied"), "{lines}");
    down_purge_removes_the_state(cluster);
}

/// Removes a verb on a resource from the role of the controller.
async fn drop_verb(client: &Client, resource: &str, verb: &str) {
    let roles = Api::<ClusterRole>::all(client.clone());
    let mut role = roles.get(CONTROLLER).await.unwrap();
    for rule in role.rules.iter_mut().flatten() {
        if rule.resources.iter().flatten().any(|it| it == resource) {
            rule.verbs.retain(|it| it != verb);
        }
    }
    let patch = Patch::Merge(json!({"rules": role.rules}));
    roles.patch(CONTROLLER, &PatchParams::default(), &patch).await.unwrap();
}

/// The certificate of the server is verified by the CA that the controller maintains.
fn machines_get_a_token_that_only_requests_certificates(cluster: &Cluster<Up>) {
    let served = cluster.wait("the server to have a config", || cluster.served("worker"));
    let files = served["storage"]["files"].as_array().expect("files").clone();
    let found = files.iter().find(|file| file["path"] == "/etc/kubernetes/kubeconfig");
    let source = found.and_then(|file| file["contents"]["source"].as_str());
    let text = mco_ignition::data_url::decode(source.expect("a kubeconfig is served")).unwrap();
    let file = cluster.file("served-kubeconfig", &String::from_utf8(text).unwrap());
    let name = format!("csr-{}", served_number(&file));
    cluster.with_client(async |_| {
        let machine = client::connect(Some(file.as_ref())).await.unwrap();
        crate::joining::request(&machine, &name, "worker-9").await;
        let secrets = Api::<Secret>::namespaced(machine, label::NAMESPACE);
        let refused = secrets.list(&ListParams::default()).await.unwrap_err().to_string();
        assert!(refused.contains(":node-bootstrapper\" cannot list"), "{refused}");
    });
    assert_eq!(cluster.get("csr", &name)["spec"]["username"], json!(bootstrapper()));
}

fn bootstrapper() -> String {
    format!("system:serviceaccount:{}:node-bootstrapper", label::NAMESPACE)
}

/// Returns a number that differs between the tokens of two starts.
fn served_number(file: &str) -> usize {
    let text = mco_host::input::file(file.as_ref(), 1 << 20).unwrap();
    text.iter().map(|byte| usize::from(*byte)).sum()
}
