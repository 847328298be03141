//! `mco version`.

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Api;
use mco_api::{ClusterOperator, label};
use mco_testkit::objects;
use serde_json::{Value, json};

use crate::{health::Cluster, mco};

const CLIENT: &str = env!("CARGO_PKG_VERSION");

#[test]
fn the_client_is_shown_without_a_cluster() {
    let run = mco(&["version", "--client"]).output().unwrap();
    assert!(run.status.success());
    let text = String::from_utf8(run.stdout).unwrap();
    assert!(text.starts_with(&format!("client      {CLIENT} (")), "{text}");
    assert_eq!(text.lines().count(), 1);

    let args = ["version", "--kubeconfig", "/does/not/exist"];
    let run = mco(&args).output().unwrap();
    assert_eq!(run.status.code(), Some(1));
    assert!(String::from_utf8(run.stdout).unwrap().starts_with("client"));
    assert!(String::from_utf8(run.stderr).unwrap().contains("/does/not/exist"));
}

#[tokio::test]
async fn versions_and_their_skew_are_shown_on_the_embedded_api_server() {
    versions_and_their_skew_are_shown(Cluster::embedded().await).await;
}

#[tokio::test]
async fn versions_and_their_skew_are_shown_on_a_real_kube_apiserver() {
    if let Some(cluster) = Cluster::real().await {
        versions_and_their_skew_are_shown(cluster).await;
    }
}

async fn versions_and_their_skew_are_shown(cluster: Cluster) {
    let (code, text, errors) = cluster.run(&["version"]).await;
    assert_eq!(code, 0, "{errors}");
    assert!(text.contains("release     unknown\n") && text.contains("Kubernetes  v1."), "{text}");
    assert!(text.contains("skew        no operator"), "{text}");

    cluster.install_kinds().await;
    let client = &cluster.client;
    cluster.put(Api::<Namespace>::all(client.clone()), label::NAMESPACE, json!({})).await;
    objects::create_controller_config(client, CLIENT).await.unwrap();
    let operator = json!({"spec": {}, "status": {"versions":
        [{"name": "operator", "version": "4.20.0"}, {"name": "operator-image", "version": "i"}]}});
    cluster.put(Api::<ClusterOperator>::all(client.clone()), "machine-config", operator).await;
    let pods = || Api::<Pod>::namespaced(client.clone(), label::NAMESPACE);
    let pod = |process: &str, image: &str| {
        json!({"metadata": {"labels": {"k8s-app": process}},
            "spec": {"serviceAccountName": "default", "automountServiceAccountToken": false,
                "containers": [{"name": process, "image": image}]}})
    };
    create_account(&cluster).await;
    for (name, image) in [("a", "mco:1"), ("b", "mco:1")] {
        cluster.put(pods(), name, pod("machine-config-daemon", image)).await;
    }
    let (_, text, _) = cluster.run(&["version"]).await;
    assert!(text.contains("release     4.20.0\n"), "{text}");
    assert!(text.contains(&format!("operator    {CLIENT}\n")), "{text}");
    assert!(text.contains("daemon      mco:1 (2 pods)\n"), "{text}");
    assert!(text.ends_with("skew        the client and the operator have the same version\n"));

    cluster.put(pods(), "c", pod("machine-config-controller", "mco:2")).await;
    let (code, text, _) = cluster.run(&["version", "-o", "json"]).await;
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &found["client"]["version"]), (0, &json!(CLIENT)));
    assert_eq!(found["cluster"]["images"]["machine-config-daemon"], json!({"mco:1": 2}));
    let skew = found["skew"].as_str().unwrap();
    assert!(skew.starts_with("the processes run from different images: "), "{skew}");
}

/// The API server admits pods only with their ServiceAccount.
async fn create_account(cluster: &Cluster) {
    let accounts = Api::<k8s_openapi::api::core::v1::ServiceAccount>::namespaced(
        cluster.client.clone(),
        label::NAMESPACE,
    );
    cluster.put(accounts, "default", json!({})).await;
}
