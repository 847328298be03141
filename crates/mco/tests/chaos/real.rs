//! The same rollout on a real kube-apiserver: through the TLS proxy with some single faults, and with
//! etcd restored from a backup in mid-rollout.

use std::{io::Write as _, path::Path, time::Duration};

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams},
};
use mco_api::MachineConfigPool;
use mco_cluster::{
    Clock,
    client::{self, Deadlines, Options},
};
use mco_testkit::{
    api::{ApiServer as _, KubeApiServer},
    chaos::{Chaos, Plan, Proxy},
};
use serde_json::json;

use crate::cluster::{Cluster, FIRST, SECOND, WORKERS};

/// Time in which the cluster converges, also after a restore: a watch whose connection was cut asks for
/// the version of the API server before it resumes.
const BOUND: Duration = Duration::from_mins(2);

/// Time without an answer after which a request fails here, so that a lost answer costs little time.
const FIRST_BYTE: Duration = Duration::from_secs(3);

/// Time without an event after which a watch fails here. kube-apiserver sends a bookmark a minute.
const IDLE: Duration = Duration::from_secs(75);

/// Starts the cluster behind a proxy.
async fn cluster(api: &KubeApiServer, chaos: &Chaos, folder: &Path) -> (Cluster, Proxy) {
    let direct = client::connect(Some(api.kubeconfig())).await.unwrap();
    let proxy = Proxy::start(chaos, api.kubeconfig(), folder).await.unwrap();
    let deadlines = Deadlines::new(FIRST_BYTE, IDLE);
    let options = Options { deadlines, ..Options::default() };
    let through = client::connect_with(Some(proxy.kubeconfig()), &options).await.unwrap();
    let cluster = Cluster::start(direct, &through, &options.metrics, Clock::System).await;
    (cluster, proxy)
}

/// Returns some of the faults, one after the other, over the requests of a whole rollout.
fn sample() -> Plan {
    let faults = [
        "40:swallow-answer",
        "70:cut-before",
        "100:answer-503",
        "130:swallow-answer",
        "150:cut-body",
        "170:answer-410",
        "190:carry-out-and-answer-504",
        "200:cut-after",
        "210:swallow-request",
        "220:duplicate",
        "230:answer-429",
        "240:swallow-answer",
        "250:end-watch",
    ];
    faults.join(",").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_on_a_real_api_server_survives_a_sample_of_faults() {
    let folder = tempfile::tempdir().unwrap();
    let Some(api) = KubeApiServer::alone(folder.path()).unwrap() else { return };
    let chaos = Chaos::new(&sample());
    let (cluster, _proxy) = cluster(&api, &chaos, folder.path()).await;
    let rolled_out = cluster.roll_out(BOUND).await;
    let applied: Vec<String> = chaos.applied().iter().map(ToString::to_string).collect();
    assert_eq!(rolled_out, Ok(()), "{applied:#?}");
    assert!(applied.len() > 8, "{applied:#?}");
    let metrics = cluster.metrics();
    assert!(metrics.contains("mco_api_request_timeouts_total{"), "{metrics}");
    cluster.stop().await.unwrap();
}

/// Returns the current resource version of the API server.
async fn version(client: &Client) -> u64 {
    let nodes: Api<Node> = Api::all(client.clone());
    let list = nodes.list(&ListParams::default()).await.unwrap();
    list.metadata.resource_version.unwrap().parse().unwrap()
}

/// Changes the objects that the components watch many times; returns the resource version after it.
async fn churn(client: &Client) -> u64 {
    let nodes: Api<Node> = Api::all(client.clone());
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    for number in 0..100 {
        let number = number.to_string();
        let mark = Patch::Merge(json!({"metadata": {"annotations": {"example.com/n": number}}}));
        for name in WORKERS {
            nodes.patch(name, &PatchParams::default(), &mark).await.unwrap();
        }
        pools.patch("worker", &PatchParams::default(), &mark).await.unwrap();
    }
    version(client).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_continues_without_a_restart_after_etcd_was_restored_from_a_backup() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut api) = KubeApiServer::alone(folder.path()).unwrap() else { return };
    let chaos = Chaos::default();
    let (cluster, _proxy) = cluster(&api, &chaos, folder.path()).await;
    cluster.wait("the cluster to be installed", BOUND, &[]).await.unwrap();
    cluster.apply_config(FIRST).await;
    cluster.wait_for_cordon(BOUND).await.unwrap();
    let Some(snapshot) = api.save_snapshot().unwrap() else {
        let _ = writeln!(std::io::stderr(), "skipped: etcdctl (Debian: etcd-client) is missing");
        return;
    };
    // The rollout ends, and the versions of the backup are far behind.
    cluster.wait("the rollout", BOUND, &[FIRST]).await.unwrap();
    let direct = client::connect(Some(api.kubeconfig())).await.unwrap();
    let before = churn(&direct).await;
    api.restore_snapshot(&snapshot).unwrap();
    let after = version(&direct).await;
    assert!(after < before, "resource versions went back: {before}, {after}");
    assert_eq!(cluster.wait("the rollout after the restore", BOUND, &[FIRST]).await, Ok(()));
    cluster.apply_config(SECOND).await;
    assert_eq!(cluster.wait("another rollout", BOUND, &[FIRST, SECOND]).await, Ok(()));
    cluster.stop().await.unwrap();
}
