//! `mco token`, `mco pointer`, `mco node approve` and the failed first boots of `mco status`.

use std::{io::Write as _, path::Path, process::Stdio};

use k8s_openapi::{
    ByteString,
    api::{
        certificates::v1::CertificateSigningRequest,
        core::v1::{ConfigMap, Namespace},
        events::v1::Event,
        rbac::v1::ClusterRoleBinding,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ListParams, Patch, PatchParams, PostParams},
    runtime::wait::{Condition as _, conditions},
};
use mco_api::{ControllerConfig, MachineConfig, MachineConfigPool, label};
use mco_cluster::{apply, client};
use mco_core::join::{
    TokenText,
    approval::{CLIENT_SIGNER, bootstrapper},
};
use mco_testkit::{
    api::{ApiServer as _, Embedded, KubeApiServer, Programs, Settings},
    object_wait, objects,
    pki::{Authority, Credentials},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::mco;

const CA: &str = "-----BEGIN CERTIFICATE-----
MIIBdDCCARmgAwIBAgIUB2xxcHV0dGVzdA==
-----END CERTIFICATE-----
";

/// A cluster with the pools worker and infra, and the CA of the config server.
pub(crate) struct Cluster {
    pub(crate) api: Embedded,
    client: Client,
    _folder: tempfile::TempDir,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
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

    pub(crate) async fn annotate(&self, key: &str, value: &str) {
        let configs = Api::<ControllerConfig>::all(self.client.clone());
        let patch = Patch::Merge(json!({"metadata": {"annotations": {key: value}}}));
        configs.patch(label::CONTROLLER_CONFIG, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Replaces the CA of the config server.
    pub(crate) async fn set_server_ca(&self, certificate: &str) {
        let maps = Api::<ConfigMap>::namespaced(self.client.clone(), label::NAMESPACE);
        let patch = Patch::Merge(json!({"data": {"ca-bundle.crt": certificate}}));
        maps.patch(label::SERVER_CA, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Makes a rendered config the one of a pool.
    pub(crate) async fn set_config(&self, pool: &str, name: &str, config: Value) {
        let object = json!({"metadata": {"name": name}, "spec": {"config": config}});
        self.create::<MachineConfig>(None, object).await;
        let pools = Api::<MachineConfigPool>::all(self.client.clone());
        let params = PatchParams::default();
        let patch = Patch::Merge(json!({"spec": {"configuration": {"name": name}}}));
        pools.patch(pool, &params, &patch).await.unwrap();
        let status = json!({"machineCount": 0, "configuration": {"name": name}});
        let patch = Patch::Merge(json!({"status": status}));
        pools.patch_status(pool, &params, &patch).await.unwrap();
    }

    /// Returns the notes of the events with a reason.
    pub(crate) async fn events(&self, reason: &str) -> Vec<String> {
        let api = Api::<Event>::namespaced(self.client.clone(), label::NAMESPACE);
        let with_reason = ListParams::default().fields(&format!("reason={reason}"));
        let events = api.list(&with_reason).await.unwrap();
        events.items.into_iter().filter_map(|event| event.note).collect()
    }

    /// Runs a command and returns exit code, output and messages.
    pub(crate) fn run(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let kubeconfig = self.api.kubeconfig().to_str().unwrap();
        let run = mco(&[args, &["--kubeconfig", kubeconfig]].concat()).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (run.status.code(), text(run.stdout), text(run.stderr))
    }

    pub(crate) fn ok(&self, args: &[&str]) -> String {
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

/// Returns the words of a pointer for the pool worker.
fn pointer<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let words = ["pointer", "--pool", "worker", "--server", "https://api-int.test"];
    words.into_iter().chain(more.iter().copied()).collect()
}

#[tokio::test]
async fn pointers_are_accepted_by_ignition_and_carry_the_token() {
    let cluster = Cluster::start().await;
    let server = ["--server", "https://api-int.test"];
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

/// Returns a client of a user of the API server.
#[expect(clippy::disallowed_methods, reason = "the test writes a kubeconfig")]
async fn user(api: &KubeApiServer, authority: &Authority, name: &str, group: &str) -> Client {
    let pair = authority.user(name, Some(group)).unwrap();
    let path = api.file("user.kubeconfig");
    let text = authority.kubeconfig(api.url(), Credentials::Certificate(&pair));
    std::fs::write(&path, text).unwrap();
    client::connect(Some(&path)).await.unwrap()
}

/// Requests a first certificate, as the kubelet of a new machine does.
pub(crate) async fn request(client: &Client, name: &str, node: &str) {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(rcgen::DnType::CommonName, format!("system:node:{node}"));
    let key = rcgen::KeyPair::generate().unwrap();
    let pem = params.serialize_request(&key).unwrap().pem().unwrap();
    let object = json!({"metadata": {"name": name}, "spec": {
        "request": ByteString(pem.into_bytes()), "signerName": CLIENT_SIGNER,
        "usages": ["digital signature", "client auth"]}});
    let api = Api::<CertificateSigningRequest>::all(client.clone());
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

#[tokio::test]
async fn an_administrator_approves_what_passes_the_checks_and_the_rest_by_force() {
    let programs = match Programs::find() {
        Ok(programs) => programs,
        Err(absent) => {
            let _ = writeln!(std::io::stderr(), "skipped: {absent}");
            return;
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("test").unwrap();
    let settings = Settings::loopback(folder.path());
    let api = KubeApiServer::start(&programs, &authority, &settings).unwrap();
    let admin = client::connect(Some(api.kubeconfig())).await.unwrap();
    for crd in mco_api::crds() {
        apply::create(&mco_cluster::Api::all(admin.clone()), &crd).await.unwrap();
    }
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "system-bootstrap-node-bootstrapper"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": "system:node-bootstrapper"},
        "subjects": [{"kind": "ServiceAccount", "name": "node-bootstrapper",
            "namespace": label::NAMESPACE}],
    }))
    .unwrap();
    apply::create(&mco_cluster::Api::all(admin.clone()), &binding).await.unwrap();
    let group = format!("system:serviceaccounts:{}", label::NAMESPACE);
    let machine = user(&api, &authority, &bootstrapper(label::NAMESPACE), &group).await;
    request(&machine, "csr-a", "w-1").await;
    request(&admin, "csr-b", "w-2").await;
    let run = |args: &[&str]| {
        let kubeconfig = api.kubeconfig().to_str().unwrap();
        let run = mco(&[&["node", "approve"], args, &["--kubeconfig", kubeconfig]].concat());
        let run = run.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (run.status.code(), text(run.stdout), text(run.stderr))
    };
    let requests = Api::<CertificateSigningRequest>::all(admin);
    let approved = async |name: &str| {
        let found = requests.get(name).await.unwrap();
        found.status.and_then(|status| status.conditions).is_some_and(|list| !list.is_empty())
    };
    let (code, out, err) = run(&[]);
    assert_eq!(code, Some(0), "{err}");
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[1].starts_with("w-1") && lines[1].contains("passed"), "{out}");
    assert!(lines[2].starts_with("w-2") && lines[2].contains("requested by admin"), "{out}");

    let (code, out, err) = run(&["w-1"]);
    assert_eq!(code, Some(0), "{err}");
    let expected = "certificate request csr-a of node w-1 (client, first) approved, passed\n";
    assert_eq!(out, expected);
    assert!(approved("csr-a").await);
    let (code, out, err) = run(&["w-2"]);
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("stays pending: it was requested by admin"), "{out}");
    assert!(err.contains("mco node approve w-2 --force"), "{err}");
    assert!(!approved("csr-b").await);
    let (code, _, err) = run(&["w-2", "--force"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("can now act as node w-2"), "{err}");
    assert!(approved("csr-b").await);
    let (code, _, err) = run(&["w-2"]);
    assert!(code == Some(1) && err.contains("no certificate request of node w-2 waits"), "{err}");
}
