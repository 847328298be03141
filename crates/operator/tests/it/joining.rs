//! Tests of the objects that new machines join with, and of the report about join tokens.

use std::{io::Write as _, path::Path};

use k8s_openapi::api::{
    core::v1::{Namespace, Secret, ServiceAccount},
    rbac::v1::{ClusterRoleBinding, RoleBinding},
};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use mco_api::{
    ControllerConfig,
    annotation::{self, JoinTokens},
    join_token::{BOOTSTRAPPER, BOOTSTRAPPER_SECRET, NAMESPACE},
    label,
};
use mco_cluster::client;
use mco_testkit::api::{self, ApiServer as _, Programs};
use serde_json::json;

use crate::support::{Operator, cluster, condition, config, wait, wait_for};

const CONDITION: &str = "FirstBootUnauthenticated";

#[tokio::test(start_paused = true)]
async fn objects_of_joining_exist_and_are_created_again() {
    let client = cluster().await;
    let operator = Operator::start(&client, &config("v1", "4.20.0"));
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), label::NAMESPACE);
    let secrets = Api::<Secret>::namespaced(client.clone(), label::NAMESPACE);
    let namespaces = Api::<Namespace>::all(client.clone());
    wait_for(&namespaces, NAMESPACE, "the namespace", |found| found.is_some()).await;
    let account = |what| wait_for(&accounts, BOOTSTRAPPER, what, |found| found.is_some());
    let first = account("the account exists").await.unwrap();
    let secret = wait_for(&secrets, BOOTSTRAPPER_SECRET, "the Secret", |found| found.is_some());
    let secret = secret.await.unwrap();
    assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/service-account-token"));
    let of = "kubernetes.io/service-account.name";
    assert_eq!(secret.annotations().get(of).map(String::as_str), Some(BOOTSTRAPPER));

    // An object that another owner changed stays.
    let patch = json!({"metadata": {"annotations": {"owner": "other", of: "other"}}});
    let patch = Patch::Merge(patch);
    secrets.patch(BOOTSTRAPPER_SECRET, &PatchParams::default(), &patch).await.unwrap();
    // One that was deleted is created again. The clock is paused: waiting costs no time.
    accounts.delete(BOOTSTRAPPER, &DeleteParams::default()).await.unwrap();
    let again = wait_for(&accounts, BOOTSTRAPPER, "the account exists again", |found| {
        found.is_some_and(|found| found.uid() != first.uid())
    });
    again.await;
    let secret = secrets.get(BOOTSTRAPPER_SECRET).await.unwrap();
    assert_eq!(secret.annotations().get(of).map(String::as_str), Some("other"));
    operator.stop().await;
}

#[tokio::test]
async fn unauthenticated_first_boots_are_a_condition_until_tokens_are_required() {
    let client = cluster().await;
    let operator = Operator::start(&client, &config("v1", "4.20.0"));
    let found = wait(&client, "the condition", |o| condition(o, CONDITION).starts_with("True"));
    let text = condition(&found.await, CONDITION);
    let (key, name) = (annotation::JOIN_TOKENS.name(), label::CONTROLLER_CONFIG);
    let command = format!("kubectl annotate --overwrite controllerconfig {name} {key}=required");
    assert!(text.starts_with("True JoinTokensOff: ") && text.ends_with(&command), "{text}");
    let configs = Api::<ControllerConfig>::all(client.clone());
    let patch = Patch::Merge(json!({"metadata": {"annotations": {key: "required"}}}));
    configs.patch(name, &PatchParams::default(), &patch).await.unwrap();
    wait(&client, "tokens are required", |o| condition(o, CONDITION).starts_with("False")).await;
    operator.stop().await;

    // With the flags the operator keeps the annotations; without, it left that of the administrator.
    let mut given = config("v2", "4.20.0");
    given.join_tokens = Some(JoinTokens::Required);
    given.approve_joins = Some(true);
    let operator = Operator::start(&client, &given);
    let has = |key: &'static str, value: &'static str| {
        move |found: Option<&ControllerConfig>| {
            found.is_some_and(|found| found.annotations().get(key).is_some_and(|it| it == value))
        }
    };
    let approve = annotation::APPROVE_JOINS.name();
    wait_for(&configs, name, "joins are approved", has(approve, "true")).await;
    let patch = Patch::Merge(json!({"metadata": {"annotations": {key: "off"}}}));
    configs.patch(name, &PatchParams::default(), &patch).await.unwrap();
    wait_for(&configs, name, "tokens are required again", has(key, "required")).await;
    operator.stop().await;
}

/// The operator has the rights of its manifest, and hands out no others.
#[tokio::test]
async fn rights_of_joining_are_given_on_a_real_kube_apiserver() {
    let programs = match Programs::find() {
        Ok(programs) => programs,
        Err(absent) => {
            let _ = writeln!(std::io::stderr(), "skipped: {absent}");
            return;
        }
    };
    let server = api::shared(&programs, Path::new(env!("CARGO_TARGET_TMPDIR")));
    let server = server.as_ref().expect("the server starts");
    let account = api::account(server, "machine-config-operator").unwrap();
    let admin = client::connect(Some(server.kubeconfig())).await.unwrap();
    let bindings = Api::<RoleBinding>::namespaced(admin.clone(), NAMESPACE);
    bindings.delete(NAMESPACE, &DeleteParams::default()).await.unwrap();
    let own = client::connect(Some(&account)).await.unwrap();
    let mut config = config("v1", "4.20.0");
    config.image = "registry.test/mco:1".to_owned();
    let operator = Operator::start(&own, &config);
    wait_for(&bindings, NAMESPACE, "the binding exists again", |found| found.is_some()).await;
    let bindings = Api::<ClusterRoleBinding>::all(admin.clone());
    let name = "system-bootstrap-node-bootstrapper";
    let binding = wait_for(&bindings, name, "the binding", |found| found.is_some()).await.unwrap();
    assert_eq!(binding.role_ref.name, "system:node-bootstrapper");
    let secrets = Api::<Secret>::namespaced(admin, label::NAMESPACE);
    wait_for(&secrets, BOOTSTRAPPER_SECRET, "the Secret", |found| found.is_some()).await;
    // It cannot read the tokens itself.
    let tokens = Api::<Secret>::namespaced(own, NAMESPACE);
    let denied = tokens.list(&ListParams::default()).await.unwrap_err();
    assert!(matches!(denied, kube::Error::Api(status) if status.code == 403));
    operator.stop().await;
}
