//! An upgrade of operator and controller, in a cluster that changes in nothing else.

use std::collections::BTreeSet;

use kube::{Api, Client, api::ListParams};
use mco_api::{ClusterOperator, MachineConfig, MachineConfigPool, condition::PoolCondition, label};
use mco_apiserver::{ApiServer, Settings};
use mco_cluster::Shutdown;
use mco_core::render::Build;
use mco_operator::RootCa;
use mco_testkit::object_wait::wait_until;
use tokio::task::JoinHandle;

/// A process that runs as a task.
struct Running(Shutdown, JoinHandle<()>);

impl Running {
    fn operator(client: &Client, version: &str) -> Self {
        let mut config = mco_operator::Config::new(build(version), version);
        config.root_ca = RootCa::Fixed("authority".to_owned());
        let shutdown = Shutdown::new();
        let run = mco_operator::run(config, client.clone(), shutdown.clone());
        Self(shutdown, tokio::spawn(async move { _ = run.await }))
    }

    fn controller(client: &Client, version: &str) -> Self {
        let shutdown = Shutdown::new();
        let config = mco_controller::Config::new(build(version));
        let run = mco_controller::run(config, client.clone(), shutdown.clone());
        Self(shutdown, tokio::spawn(async move { _ = run.await }))
    }

    async fn stop(self) {
        self.0.request();
        self.1.await.unwrap();
    }
}

fn build(version: &str) -> Build {
    Build { version: version.to_owned(), hash: format!("hash of {version}") }
}

/// Returns status, reason and message of a condition of the ClusterOperator.
fn condition(operator: &ClusterOperator, kind: &str) -> String {
    let conditions = operator.status.iter().flat_map(|status| &status.conditions);
    let mut found = conditions.filter(|found| found.kind == kind);
    found.next().map_or_else(String::new, |c| format!("{} {}: {}", c.status, c.reason, c.message))
}

async fn wait_for_operator(client: &Client, what: &str, holds: impl Fn(&ClusterOperator) -> bool) {
    let api = Api::<ClusterOperator>::all(client.clone());
    let reached = |found: Option<&ClusterOperator>| found.is_some_and(&holds);
    wait_until(api, label::CLUSTER_OPERATOR, what, reached).await.unwrap();
}

async fn rendered(client: &Client) -> BTreeSet<String> {
    let configs = Api::<MachineConfig>::all(client.clone());
    let all = configs.list(&ListParams::default()).await.unwrap();
    let names = all.items.iter().map(kube::ResourceExt::name_any);
    names.filter(|name| name.starts_with("rendered-")).collect()
}

// covers: PROC-8
#[tokio::test]
async fn an_upgrade_renders_nothing_and_its_build_skew_is_progress() {
    let server = ApiServer::in_memory(Settings::default()).await.unwrap();
    let client = Client::new(server, "default");
    mco_operator::install(&client).await.unwrap();
    let operator = Running::operator(&client, "v1");
    let controller = Running::controller(&client, "v1");
    let at_v1 =
        |o: &ClusterOperator| condition(o, "Progressing") == "False : Cluster version is v1";
    wait_for_operator(&client, "v1", at_v1).await;
    let pools = Api::<MachineConfigPool>::all(client.clone());
    let is_rendered = |pool: Option<&MachineConfigPool>| {
        pool.is_some_and(|pool| !pool.spec.configuration.rendered.name.is_empty())
    };
    wait_until(pools.clone(), "worker", "a config", is_rendered).await.unwrap();
    let before = rendered(&client).await;
    assert_eq!(before.len(), 2, "{before:?}");
    controller.stop().await;

    let controller = Running::controller(&client, "v2");
    let skew = "True BuildSkew: Working towards v1: waiting for the controller: ignoring \
        controller config generated from v1 (my version: v2)";
    let progresses = |o: &ClusterOperator| condition(o, "Progressing") == skew;
    wait_for_operator(&client, "the build skew", progresses).await;
    let operators = Api::<ClusterOperator>::all(client.clone());
    let found = operators.get(label::CLUSTER_OPERATOR).await.unwrap();
    assert_eq!(condition(&found, "Degraded"), "False : ");
    operator.stop().await;

    let operator = Running::operator(&client, "v2");
    let at_v2 =
        |o: &ClusterOperator| condition(o, "Progressing") == "False : Cluster version is v2";
    wait_for_operator(&client, "v2", at_v2).await;
    let is_settled = |pool: Option<&MachineConfigPool>| {
        let status = pool.and_then(|pool| pool.status.as_ref());
        let mut conditions = status.into_iter().flat_map(|status| &status.conditions);
        let kind = PoolCondition::RenderDegraded;
        conditions
            .any(|it| it.kind == kind.as_str() && it.status == "False" && it.reason.is_empty())
    };
    wait_until(pools, "worker", "a build without skew", is_settled).await.unwrap();
    assert_eq!(rendered(&client).await, before);
    operator.stop().await;
    controller.stop().await;
}
