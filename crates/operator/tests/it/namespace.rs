//! An installation in another namespace than the standard one, on both API servers.

use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
};
use mco_api::{ClusterOperator, label};
use mco_cluster::{Health, client};
use mco_operator::{Config, manifests::ObjectName};

use crate::{
    operands::cluster::{Cluster, IMAGE, settings},
    support::{Operator, condition, idle, wait, wait_for},
};

const NAMESPACE: &str = "node-config";

/// The operator puts everything into its namespace, and one of another namespace waits for its end.
async fn everything_is_in_the_chosen_namespace(cluster: &Cluster) {
    let first = Operator::start(&cluster.own, &settings(IMAGE));
    for manifest in &cluster.operands() {
        let name = ObjectName::of(manifest);
        assert_ne!(name.namespace.as_deref(), Some(label::NAMESPACE), "{name}");
        cluster.wait_for_manifest(manifest).await;
    }
    let is_available = |found: &ClusterOperator| condition(found, "Available").starts_with("True");
    let operator = wait(&cluster.admin, "Available", is_available).await;
    let related = &operator.status.as_ref().unwrap().related_objects[0];
    assert_eq!(related.name, NAMESPACE);
    let secrets = Api::<Secret>::namespaced(cluster.admin.clone(), NAMESPACE);
    let exists = |found: Option<&Secret>| found.is_some();
    wait_for(&secrets, "node-bootstrapper-token", "the credential of machines", exists).await;
    let namespaces = Api::<Namespace>::all(cluster.admin.clone());
    assert!(namespaces.get_opt(label::NAMESPACE).await.unwrap().is_none(), "nothing is there");
    let labelled = ListParams::default().labels(label::INSTALLATION);
    let labelled = namespaces.list(&labelled).await.unwrap();
    assert_eq!(labelled.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), [NAMESPACE]);
    assert_eq!(cluster.denied(), [""; 0], "the operator has all rights that it needs");

    // Another operator, in the standard namespace.
    let health = Health::default();
    let config = Config { health: health.clone(), ..settings(IMAGE) };
    let standard = client::in_namespace(cluster.admin.clone(), label::NAMESPACE);
    let second = Operator::start(&standard, &config);
    let reason = idle(&health).await;
    assert!(reason.starts_with("the installation in namespace node-config has"), "{reason}");
    assert!(reason.ends_with("`mco uninstall`"), "{reason}");
    assert!(namespaces.get_opt(label::NAMESPACE).await.unwrap().is_none(), "it changed nothing");

    // As an uninstallation does.
    first.stop().await;
    let operators = Api::<ClusterOperator>::all(cluster.admin.clone());
    operators.delete(label::CLUSTER_OPERATOR, &DeleteParams::default()).await.unwrap();
    let is_standard = |found: &ClusterOperator| {
        let status = found.status.clone().unwrap_or_default();
        status.related_objects.first().is_some_and(|it| it.name == label::NAMESPACE)
    };
    wait(&cluster.admin, "the second operator leads", is_standard).await;
    assert_eq!(health.idle(), None);
    second.stop().await;
}

#[tokio::test]
async fn everything_is_in_the_chosen_namespace_on_the_embedded_api_server() {
    let cluster = Cluster::embedded_in(NAMESPACE).await;
    everything_is_in_the_chosen_namespace(&cluster).await;
}

#[tokio::test]
async fn everything_is_in_the_chosen_namespace_on_a_real_kube_apiserver() {
    let Some(cluster) = Cluster::real_in(NAMESPACE).await else { return };
    everything_is_in_the_chosen_namespace(&cluster).await;
}

/// An operator of another namespace waits for one in the standard namespace, too.
#[tokio::test]
async fn an_installation_in_the_standard_namespace_has_the_cluster() {
    let cluster = Cluster::embedded().await;
    let first = Operator::start(&cluster.own, &settings(IMAGE));
    wait(&cluster.admin, "a status", |found| found.status.is_some()).await;
    let health = Health::default();
    let config = Config { health: health.clone(), ..settings(IMAGE) };
    let other = client::in_namespace(cluster.admin.clone(), NAMESPACE);
    let second = Operator::start(&other, &config);
    let reason = idle(&health).await;
    assert!(reason.contains("the installation in namespace openshift-machine-config-operator"));
    let namespaces = Api::<Namespace>::all(cluster.admin.clone());
    assert!(namespaces.get_opt(NAMESPACE).await.unwrap().is_none(), "it changed nothing");
    second.stop().await;
    first.stop().await;
}
