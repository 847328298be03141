//! Two controllers as processes on a real kube-apiserver; the leader is killed during a rollout.

use std::{io::Write as _, path::Path};

use k8s_openapi::api::{coordination::v1::Lease, core::v1::Node};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use mco_api::{MachineConfig, MachineConfigPool, annotation, label};
use mco_cluster::client;
use mco_testkit::{
    api::{ApiServer as _, KubeApiServer, Process, Programs, Settings, command},
    daemons::{Daemons, REBOOT},
    object_wait, objects,
    pki::Authority,
};
use serde_json::json;

use crate::processes::installed;

const NODES: usize = 12;
const LIMIT: usize = 3;

/// Number of nodes that are updated before the leader is killed.
const FIRST: usize = 4;

fn start(process: &str, name: &str, kubeconfig: &Path, folder: &Path) -> Process {
    let mut command = command(env!("CARGO_BIN_EXE_mco"));
    command.args([process, "start", "--metrics-listen-address", "127.0.0.1:0"]);
    command.arg("--kubeconfig").arg(kubeconfig).env_remove("RELEASE_VERSION");
    let log = folder.join(format!("{name}.log"));
    Process::start(name, &mut command, &log).expect("the binary starts")
}

async fn pool(client: &Client, what: &str, holds: impl Fn(&MachineConfigPool) -> bool) -> String {
    let pools = Api::<MachineConfigPool>::all(client.clone());
    let holds = |pool: Option<&MachineConfigPool>| pool.is_some_and(&holds);
    let pool =
        object_wait::wait_until(pools, "worker", what, holds).await.expect("the pool changes");
    let pool = pool.expect("a pool");
    pool.spec.configuration.rendered.name
}

fn target(pool: &MachineConfigPool) -> &str {
    &pool.spec.configuration.rendered.name
}

async fn holder(client: &Client, other_than: &str) -> String {
    let leases = Api::<Lease>::namespaced(client.clone(), label::NAMESPACE);
    let of = |lease: &Lease| lease.spec.clone().unwrap_or_default().holder_identity;
    let is_held = |lease: Option<&Lease>| {
        let holder = lease.and_then(of).unwrap_or_default();
        !holder.is_empty() && holder != other_than
    };
    let held = object_wait::wait_until(leases, "machine-config-controller", "a leader", is_held);
    let lease = held.await.expect("a controller leads").expect("the lease exists");
    of(&lease).expect("the lease has a holder")
}

// covers: LE-1, PROC-3, PROC-4
#[tokio::test]
async fn another_controller_continues_the_rollout_of_a_killed_leader() {
    let programs = match Programs::find() {
        Ok(programs) => programs,
        Err(absent) => {
            let _ = writeln!(std::io::stderr(), "skipped: a leader that is killed: {absent}");
            return;
        }
    };
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::new("test").expect("an authority");
    let settings = Settings::loopback(&folder.path().join("api"));
    let api = KubeApiServer::start(&programs, &authority, &settings).expect("it starts");
    let file = api.kubeconfig();
    let _operator = start("operator", "operator", file, folder.path());
    let client = client::connect(Some(file)).await.expect("a client");
    installed(&client, "machineconfigpools.machineconfiguration.openshift.io").await;
    let mut first = start("controller", "first", file, folder.path());
    let killed = holder(&client, "").await;
    let second = start("controller", "second", file, folder.path());
    let old = pool(&client, "the pool has a config", |pool| !target(pool).is_empty()).await;

    let nodes = Api::<Node>::all(client.clone());
    for number in 0..NODES {
        let node = objects::worker(&format!("n{number:02}"), &old);
        nodes.create(&PostParams::default(), &node).await.expect("a node");
    }
    let limit = Patch::Merge(json!({"spec": {"maxUnavailable": LIMIT}}));
    let pools = Api::<MachineConfigPool>::all(client.clone());
    pools.patch("worker", &PatchParams::default(), &limit).await.expect("a limit");
    let updated = |pool: &MachineConfigPool| {
        pool.status.as_ref().map_or(0, |status| status.updated_machine_count)
    };
    let all = i32::try_from(NODES).expect("few");
    pool(&client, "all nodes are counted", |pool| updated(pool) == all).await;
    let daemons = Daemons::start_held(client.clone(), FIRST, REBOOT);

    let config = objects::config("99-more", "worker", "/etc/more", "more");
    let configs = Api::<MachineConfig>::all(client.clone());
    configs.create(&PostParams::default(), &config).await.expect("the config is created");
    let new = pool(&client, "the pool has a new config", |pool| target(pool) != old).await;
    let first_ones = i32::try_from(FIRST).expect("few");
    let some = |pool: &MachineConfigPool| target(pool) == new && updated(pool) == first_ones;
    pool(&client, "the first nodes are updated", some).await;
    first.kill().expect("the leader is killed");
    holder(&client, &killed).await;
    daemons.release();

    let done = |pool: &MachineConfigPool| {
        let status = pool.status.clone().unwrap_or_default();
        status.configuration.rendered.name == new && status.updated_machine_count == all
    };
    pool(&client, "all nodes are updated", done).await;
    let busiest = daemons.max_updating();
    assert!((1..=LIMIT).contains(&busiest.len()), "{busiest:?}");
    for node in nodes.list(&ListParams::default()).await.expect("nodes") {
        let value = |key: &str| node.annotations().get(key).cloned().unwrap_or_default();
        assert_eq!(value(annotation::CURRENT_CONFIG.name()), new, "{}", node.name_any());
        let closed = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default();
        assert!(!closed, "{} is open again", node.name_any());
    }
    drop(second);
}
