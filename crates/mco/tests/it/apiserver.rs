//! `mco apiserver`: the rights of its callers, and its log.

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, api::ListParams};
use mco_cluster::client;
use mco_testkit::{
    PATIENCE,
    api::{Process, command},
};

/// Starts the server with these flags, lists nodes as a user without roles, and returns the answer and
/// the log.
async fn list_as_alice(flags: &[&str]) -> (Result<usize, u16>, String) {
    let folder = tempfile::tempdir().unwrap();
    let (state, log) = (folder.path().join("state"), folder.path().join("log"));
    let mut serve = command(env!("CARGO_BIN_EXE_mco"));
    serve.args(["apiserver", "--listen", "127.0.0.1:0", "--dir"]).arg(&state).args(flags);
    let mut process = Process::start("mco apiserver", &mut serve, &log).unwrap();
    let text = || {
        let text = mco_host::input::file(&log, 1 << 20).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    };
    process.wait_ready(PATIENCE, || text().contains("kubeconfig: ")).unwrap();
    client::use_ring();
    let file = kube::config::Kubeconfig::read_from(state.join("kubeconfig")).unwrap();
    let options = kube::config::KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(file, &options).await.unwrap();
    config.auth_info.impersonate = Some("alice".to_owned());
    let nodes = Api::<Node>::all(Client::try_from(config).unwrap());
    let answer = match nodes.list(&ListParams::default()).await {
        Ok(found) => Ok(found.items.len()),
        Err(kube::Error::Api(status)) => Err(status.code),
        Err(error) => panic!("{error}"),
    };
    (answer, text())
}

#[tokio::test]
async fn roles_are_enforced_only_if_told() {
    assert_eq!(list_as_alice(&[]).await.0, Ok(0));
    assert_eq!(list_as_alice(&["--authorization", "roles"]).await.0, Err(403));
}

#[tokio::test]
async fn a_verbose_server_logs_every_request() {
    let (answer, log) = list_as_alice(&["--authorization", "roles", "--verbose"]).await;
    assert_eq!(answer, Err(403));
    let line = log.lines().find(|line| line.contains("Answered a request")).unwrap_or_default();
    for field in ["method=GET", "/api/v1/nodes", "code=403", "Forbidden"] {
        assert!(line.contains(field), "{field}: {log}");
    }
    let (_, log) = list_as_alice(&[]).await;
    assert!(!log.contains("Answered"), "{log}");
}
