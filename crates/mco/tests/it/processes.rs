//! Operator and controller as processes, on the embedded API server and on a real one.

use std::{io::Write as _, path::Path, process::ExitStatus};

use k8s_openapi::{
    api::coordination::v1::Lease,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client,
    runtime::wait::{Condition as _, conditions},
};
use mco_api::{ClusterOperator, MachineConfigPool, label};
use mco_cluster::client;
use mco_testkit::{
    PATIENCE,
    api::{ApiServer, Embedded, KubeApiServer, Process, Programs, Settings, command},
    object_wait,
    pki::Authority,
};
use rustix::process::Signal;

/// Sends SIGTERM and waits until the process has ended.
fn stop(mut process: Process) -> ExitStatus {
    process.signal(Signal::TERM).expect("it runs");
    process.wait(PATIENCE).expect("it ends")
}

/// Waits for a CRD, because a kind can be watched only after the operator has installed it.
pub(crate) async fn installed(client: &Client, kind: &str) {
    let kinds = Api::<CustomResourceDefinition>::all(client.clone());
    let is_established = conditions::is_crd_established();
    let is_installed =
        |found: Option<&CustomResourceDefinition>| is_established.matches_object(found);
    object_wait::wait_until(kinds, kind, "its kind", is_installed)
        .await
        .expect("the operator installs it");
}

// covers: PROC-1, PROC-4
#[tokio::test]
async fn operator_and_controller_install_a_cluster_and_stop_on_sigterm() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut api = Embedded::start(Path::new(env!("CARGO_BIN_EXE_mco")), folder.path())
        .expect("the embedded API server starts");
    processes_install_a_cluster_and_stop(&api, folder.path()).await;
    api.process().signal(Signal::TERM).expect("it runs");
    assert!(api.process().wait(PATIENCE).expect("it ends").success());
}

// covers: PROC-1, PROC-4
#[tokio::test]
async fn operator_and_controller_run_on_a_real_kube_apiserver() {
    let programs = match Programs::find() {
        Ok(programs) => programs,
        Err(absent) => {
            let _ = writeln!(std::io::stderr(), "skipped: {absent}");
            return;
        }
    };
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::new("test").expect("an authority");
    let settings = Settings::loopback(&folder.path().join("api"));
    let api = KubeApiServer::start(&programs, &authority, &settings).expect("it starts");
    processes_install_a_cluster_and_stop(&api, folder.path()).await;
}

async fn processes_install_a_cluster_and_stop(api: &dyn ApiServer, folder: &Path) {
    let file = api.kubeconfig();
    let start = |process: &str| {
        let mut command = command(env!("CARGO_BIN_EXE_mco"));
        command.args([process, "start", "--metrics-listen-address", "127.0.0.1:0"]);
        command.arg("--kubeconfig").arg(file).env_remove("RELEASE_VERSION");
        let log = folder.join(format!("{process}.log"));
        Process::start(process, &mut command, &log).expect("the binary starts")
    };
    let (operator, controller) = (start("operator"), start("controller"));

    let client = client::connect(Some(file)).await.expect("a client");
    let operators = Api::<ClusterOperator>::all(client.clone());
    installed(&client, "clusteroperators.config.openshift.io").await;
    let has_version = |found: Option<&ClusterOperator>| {
        let status = found.and_then(|found| found.status.as_ref());
        status.is_some_and(|status| !status.versions.is_empty())
    };
    let reached =
        object_wait::wait_until(operators, label::CLUSTER_OPERATOR, "a version", has_version);
    reached.await.expect("the operator reaches its version");
    let pools = Api::<MachineConfigPool>::all(client.clone());
    let master = pools.get("master").await.expect("the operator creates the pool");
    let name = master.status.expect("the controller sets the status").configuration.rendered.name;
    assert!(name.starts_with("rendered-master-"), "{name}");

    assert!(stop(controller).success() && stop(operator).success());
    for (namespace, name) in
        [("kube-system", "machine-config-controller"), (label::NAMESPACE, "machine-config")]
    {
        let lease = Api::<Lease>::namespaced(client.clone(), namespace).get(name).await;
        let spec = lease.expect("the process holds the lease").spec.unwrap_or_default();
        assert_eq!(spec.holder_identity.as_deref(), Some(""), "{name} is free again");
    }
}
