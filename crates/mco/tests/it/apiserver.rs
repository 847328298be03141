//! `mco apiserver`: the rights of its callers.

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, api::ListParams};
use mco_cluster::client;
use mco_testkit::{
    PATIENCE,
    api::{Process, command},
};

/// Starts the server with these flags, and lists nodes as a user without roles.
async fn list_as_alice(flags: &[&str]) -> Result<usize, u16> {
    let folder = tempfile::tempdir().unwrap();
    let (state, log) = (folder.path().join("state"), folder.path().join("log"));
    let mut serve = command(env!("CARGO_BIN_EXE_mco"));
    serve.args(["apiserver", "--listen", "127.0.0.1:0", "--dir"]).arg(&state).args(flags);
    let mut process = Process::start("mco apiserver", &mut serve, &log).unwrap();
    let is_ready = || {
        let text = mco_host::input::file(&log, 4096).unwrap_or_default();
        String::from_utf8_lossy(&text).contains("kubeconfig: ")
    };
    process.wait_ready(PATIENCE, is_ready).unwrap();
    client::use_ring();
    let file = kube::config::Kubeconfig::read_from(state.join("kubeconfig")).unwrap();
    let options = kube::config::KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(file, &options).await.unwrap();
    config.auth_info.impersonate = Some("alice".to_owned());
    let nodes = Api::<Node>::all(Client::try_from(config).unwrap());
    match nodes.list(&ListParams::default()).await {
        Ok(found) => Ok(found.items.len()),
        Err(kube::Error::Api(status)) => Err(status.code),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn roles_are_enforced_only_if_told() {
    assert_eq!(list_as_alice(&[]).await, Ok(0));
    assert_eq!(list_as_alice(&["--authorization", "roles"]).await, Err(403));
}
