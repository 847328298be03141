//! `mco token`, `mco pointer`, `mco node approve` and the failed first boots of `mco status`.

use std::{io::Write as _, path::Path, process::Stdio};

use k8s_openapi::{
    api::{
        core::v1::{ConfigMap, Namespace},
        events::v1::Event,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
    runtime::wait::{Condition as _, conditions},
};
use mco_api::{ControllerConfig, MachineConfigPool, label};
use mco_cluster::{apply, client};
use mco_core::join::TokenText;
use mco_testkit::{
    api::{ApiServer as _, Embedded},
    object_wait, objects,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::mco;

const CA: &str = "-----BEGIN CERTIFICATE-----
MIIBdDCCARmgAwIBAgIUB2xxcHV0dGVzdA==
-----END CERTIFICATE-----
";

/// A cluster with the pools worker and infra, and the CA of the config server.
struct Cluster {
    api: Embedded,
    client: Client,
    _folder: tempfile::TempDir,
}

impl Cluster {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let api = Embedded::start(Path::new(env!("CARGO_BIN_EXE_mco")), folder.path()).unwrap();
        let client = client::connect(Some(api.kubeconfig())).await.unwrap();
        let kinds = Api::<CustomResourceDefinition>::all(client.clone());
        for crd in mco_api::crds() {
            apply::create(&mco_cluster::Api::all(client.clone()), &crd).await.unwrap();
            let is_served =
                |found: Option<&_>| conditions::is_crd_established().matches_object(found);
            let name = crd.name_any();
            object_wait::wait_until(kinds.clone(), &name, "its kind", is_served).await.unwrap();
        }
        let cluster = Self { api, client, _folder: folder };
        cluster.create::<Namespace>(None, json!({"metadata": {"name": label::NAMESPACE}})).await;
        objects::create_controller_config(&cluster.client, "v1").await.unwrap();
        for pool in ["worker", "infra"] {
            let pools = Api::<MachineConfigPool>::all(cluster.client.clone());
            pools.create(&PostParams::default(), &objects::pool(pool)).await.unwrap();
        }
        let ca = json!({"metadata": {"name": label::SERVER_CA}, "data": {"ca-bundle.crt": CA}});
        cluster.create::<ConfigMap>(Some(label::NAMESPACE), ca).await;
        cluster
    }

    async fn create<K>(&self, namespace: Option<&str>, object: Value)
    where
        K: kube::Resource<DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + Serialize
            + DeserializeOwned,
        K: mco_cluster::Object,
    {
        let resource = kube::api::ApiResource::erase::<K>(&());
        let api: Api<kube::api::DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        let object: K = serde_json::from_value(object).unwrap();
        let mut value = serde_json::to_value(object).unwrap();
        value["apiVersion"] = json!(K::api_version(&()));
        value["kind"] = json!(K::kind(&()));
        let object = serde_json::from_value(value).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    async fn annotate(&self, key: &str, value: &str) {
        let configs = Api::<ControllerConfig>::all(self.client.clone());
        let patch = Patch::Merge(json!({"metadata": {"annotations": {key: value}}}));
        configs.patch(label::CONTROLLER_CONFIG, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Runs a command and returns exit code, output and messages.
    fn run(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let kubeconfig = self.api.kubeconfig().to_str().unwrap();
        let run = mco(&[args, &["--kubeconfig", kubeconfig]].concat()).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (run.status.code(), text(run.stdout), text(run.stderr))
    }

    fn ok(&self, args: &[&str]) -> String {
        let (code, out, err) = self.run(args);
        assert_eq!(code, Some(0), "{args:?}: {err}");
        out
    }

    fn fails(&self, args: &[&str]) -> String {
        let (code, out, err) = self.run(args);
        assert_eq!((code, out.as_str()), (Some(1), ""), "{args:?}: {err}");
        err
    }
}

#[tokio::test]
async fn tokens_are_made_listed_and_revoked() {
    let cluster = Cluster::start().await;
    let (_, out, err) = cluster.run(&["token", "create", "--pool", "worker", "--node", "w-1"]);
    let token = TokenText::parse(out.trim()).unwrap();
    assert!(err.contains("not shown again") && err.contains("tokens are not required"), "{err}");
    let args = ["token", "create", "--pool", "infra", "--ttl", "30m", "--uses", "3"];
    let more = ["--bind-address", "10.0.4.0/24", "--description", "rack\u{1b} 4", "-o", "json"];
    let made: Value = serde_json::from_str(&cluster.ok(&[&args[..], &more[..]].concat())).unwrap();
    assert_eq!((made["pool"].as_str(), made["uses"].as_u64()), (Some("infra"), Some(3)));

    let table = cluster.ok(&["token", "list"]);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 3, "{table}");
    assert!(lines[0].starts_with("ID") && lines[0].contains("LAST USE"), "{table}");
    // The one that expires first comes first; no secret and no control character is shown.
    for part in [made["id"].as_str().unwrap(), "0/3", "valid", "address=10.0.4.0/24", "never"] {
        assert!(lines[1].contains(part), "{part} in {table}");
    }
    assert!(lines[2].contains(token.id()) && lines[2].contains("node=w-1"), "{table}");
    let all = table + &cluster.ok(&["token", "list", "-o", "json"]);
    let secret = token.reveal();
    assert!(!all.contains(secret.split('.').next_back().unwrap()) && !all.contains('\u{1b}'));
    assert!(!all.contains(&token.secret_sha256()));

    let out = cluster.ok(&["token", "revoke", &token.reveal()]);
    assert_eq!(out, format!("token \"{}\" revoked\n", token.id()));
    assert!(!cluster.ok(&["token", "list"]).contains(token.id()));
    let err = cluster.fails(&["token", "revoke", token.id()]);
    assert!(err.contains("there is no token") && err.contains("mco token list"), "{err}");

    let wrong = [
        (vec!["--pool", "gone"], "there is no pool gone"),
        (vec!["--pool", "worker", "--bind-mac", "x"], "--bind-mac is not a MAC address"),
        (vec!["--pool", "worker", "--ttl", "0s"], "--ttl 0s"),
        (vec!["--pool", "worker", "--ttl", "9000h"], "2160h"),
    ];
    for (args, expected) in wrong {
        let err = cluster.fails(&[&["token", "create"], &args[..]].concat());
        assert!(err.contains(expected), "{err}");
    }
}

#[tokio::test]
async fn pointers_are_accepted_by_ignition_and_carry_the_token() {
    let cluster = Cluster::start().await;
    let server = ["--server", "https://api-int.test"];
    let pointer = |more: &[&str]| [&["pointer", "--pool", "worker"], &server[..], more].concat();
    let open = cluster.ok(&pointer(&[]));
    assert!(!open.contains("httpHeaders"));
    let arguments = cluster.ok(&pointer(&["-o", "kernel-arguments"]));
    assert!(
        arguments.ends_with("ignition.config.url=https://api-int.test:22623/config/worker\n"),
        "{arguments}"
    );
    let (_, out, _) = cluster.run(&["token", "create", "--pool", "worker"]);
    let token = out.trim();
    let with_token = cluster.ok(&pointer(&["--token", token]));
    let value: Value = serde_json::from_str(&with_token).unwrap();
    let source = &value["ignition"]["config"]["merge"][0];
    assert_eq!(source["source"], "https://api-int.test:22623/config/worker");
    let header = json!({"name": "Authorization", "value": format!("Bearer {token}")});
    assert_eq!(source["httpHeaders"], json!([header]));
    for config in [&open, &with_token] {
        mco_ignition::read(config.as_bytes()).unwrap().check().unwrap();
        validate(config);
    }
    let cloud = cluster.ok(&pointer(&["--token", token, "-o", "cloud-init"]));
    assert!(cloud.starts_with("#cloud-config\n") && cloud.contains("mco join --server"), "{cloud}");

    let err = cluster.fails(&pointer(&["--token", token, "-o", "kernel-arguments"]));
    assert!(err.contains("cannot carry a token") && err.contains("-o ignition"), "{err}");
    let infra = [&["pointer", "--pool", "infra"], &server[..], &["--token", token]].concat();
    assert!(cluster.fails(&infra).contains("is for pool worker"));
    let other = format!("zzzzzzzz.{}", "0".repeat(32));
    let err = cluster.fails(&pointer(&["--token", &other]));
    assert!(err.contains("zzzzzzzz is not valid") && !err.contains("0000"), "{err}");
    let err = cluster.fails(&pointer(&["--token", "secret-but-no-token"]));
    assert!(err.contains("not a join token") && !err.contains("secret-but"), "{err}");
    let err = cluster.fails(&["pointer", "--pool", "worker"]);
    assert!(err.contains("--server https://HOST:22623"), "{err}");

    cluster.annotate("machineconfiguration.openshift.io/join-tokens", "required").await;
    let err = cluster.fails(&pointer(&[]));
    assert!(err.contains("need a join token") && err.contains("mco token create"), "{err}");
    // The host of the API server that machines use.
    let info = json!({"metadata": {"name": "cluster-info"}, "data": {"kubeconfig":
        "clusters:\n- cluster: {server: 'https://10.1.2.3:6443'}\n"}});
    cluster.create::<Namespace>(None, json!({"metadata": {"name": "kube-public"}})).await;
    cluster.create::<ConfigMap>(Some("kube-public"), info).await;
    let found = cluster.ok(&["pointer", "--pool", "worker", "--token", token]);
    assert!(found.contains("https://10.1.2.3:22623/config/worker"), "{found}");
}

/// Validates a config with Ignition's own program, if it is installed.
#[expect(clippy::disallowed_methods, reason = "runs Ignition's own program")]
fn validate(config: &str) {
    let mut command = std::process::Command::new("ignition-validate");
    command.arg("-").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        let _ = writeln!(std::io::stderr(), "skipped: ignition-validate is not installed");
        return;
    };
    child.stdin.take().unwrap().write_all(config.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && !text.contains("error"), "{text}");
}

#[tokio::test]
async fn failed_first_boots_are_part_of_the_status() {
    let cluster = Cluster::start().await;
    let event = json!({"metadata": {"name": "e"}, "eventTime": "2026-11-17T10:00:00.000000Z",
        "reason": "FirstBootFailed", "type": "Warning", "action": "FirstBootFailed",
        "reportingController": "machineconfigserver", "reportingInstance": "a",
        "regarding": {"kind": "MachineConfigPool", "name": "worker", "namespace": label::NAMESPACE},
        "note": "Machine w-4 (address 10.0.0.4) failed to join at step fetch: no route"});
    cluster.create::<Event>(Some(label::NAMESPACE), event).await;
    let (code, out, err) = cluster.run(&["status"]);
    assert_eq!(code, Some(2), "{err}");
    let line = "pool worker: first boot failed at 2026-11-17T10:00:00Z: Machine w-4";
    assert!(out.contains(line), "{out}");
}
