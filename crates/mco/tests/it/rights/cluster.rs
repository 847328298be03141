//! A cluster of a real kube-apiserver with the four processes, each with its own service account.

use std::{
    collections::BTreeSet,
    io::Write as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use k8s_openapi::api::{
    apps::v1::DaemonSet,
    certificates::v1::CertificateSigningRequest,
    core::v1::{Pod, Secret},
};
use kube::{Api, Client, ResourceExt as _, api::ListParams};
use mco_api::{
    ContainerRuntimeConfig, KubeletConfig, MachineConfig, MachineConfigNode, MachineConfigPool,
    label,
};
use mco_cluster::{NoteCount, Reporter, Shutdown, client};
use mco_core::{render::Build, takeover::Order};
use mco_daemon::{
    Clients, DaemonContext,
    simulate::{FirstConfig, Machine, Power, simulate},
};
use mco_testkit::{
    PATIENCE,
    api::{
        ApiServer as _, AuditedRequest, KubeApiServer, Process, Programs, Settings,
        account_kubeconfig, command, wait,
    },
    object_wait,
    pki::{Authority, Credentials},
};
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinHandle};

use crate::{
    mco,
    processes::stop,
    secure_metrics::{get, secure_address},
    workspace,
};

const NODE: &str = "worker-0";

/// Accounts whose requests are compared with their rights.
const PROCESSES: [&str; 4] = ["operator", "controller", "daemon", "server"];

/// Kinds of others that the processes use where they exist: group, version, kind and plural.
const KINDS: &[(&str, &str, &str, &str)] = &[
    ("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors"),
    ("monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules"),
    (CONFIG, "v1", "Scheduler", "schedulers"),
    (CONFIG, "v1", "Image", "images"),
    (CONFIG, "v1", "ImageDigestMirrorSet", "imagedigestmirrorsets"),
    (CONFIG, "v1", "ImageTagMirrorSet", "imagetagmirrorsets"),
    (CONFIG, "v1", "ClusterImagePolicy", "clusterimagepolicies"),
    (CONFIG, "v1", "ImagePolicy", "imagepolicies"),
    (CONFIG, "v1", "Node", "nodes"),
    (CONFIG, "v1", "FeatureGate", "featuregates"),
    (CONFIG, "v1", "APIServer", "apiservers"),
    ("operator.openshift.io", "v1alpha1", "ImageContentSourcePolicy", "imagecontentsourcepolicies"),
];

const CONFIG: &str = "config.openshift.io";

pub(super) struct Cluster {
    // Dropped before the API server.
    processes: Vec<Process>,
    daemon: Option<(Shutdown, JoinHandle<()>)>,
    admin: Client,
    server: KubeApiServer,
    authority: Authority,
    folder: tempfile::TempDir,
}

impl Cluster {
    /// Starts the API server. Prints a line and returns `None` if the test cannot run here.
    pub(super) async fn start() -> Option<Self> {
        let programs = match Programs::find() {
            Ok(programs) => programs,
            Err(absent) => {
                let _ = writeln!(std::io::stderr(), "skipped: {absent}");
                return None;
            }
        };
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new("test").unwrap();
        let mut settings = Settings::loopback(&folder.path().join("api"));
        settings.has_audit_log = true;
        let server = KubeApiServer::start(&programs, &authority, &settings).unwrap();
        let admin = client::connect(Some(server.kubeconfig())).await.unwrap();
        Some(Self { processes: Vec::new(), daemon: None, admin, server, authority, folder })
    }

    /// Runs kubectl as the administrator, with an input.
    fn kubectl(&self, words: &[&str], input: &str) -> String {
        let mut kubectl = command(self.server.kubectl());
        kubectl.arg("--kubeconfig").arg(self.server.kubeconfig()).args(words);
        kubectl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = kubectl.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {}: {error}", words.join(" "));
        String::from_utf8(output.stdout).unwrap()
    }

    fn create(&self, objects: &[Value]) {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        self.kubectl(&["create", "-f", "-"], &list.to_string());
    }

    /// Starts a process with the service account of its manifest.
    fn run(&mut self, process: &str, flags: &[&str]) {
        let account = format!("machine-config-{process}");
        let kubeconfig = account_kubeconfig(&self.server, &account).unwrap();
        let mut command = command(env!("CARGO_BIN_EXE_mco"));
        command.args([process, "start", "--metrics-listen-address", "127.0.0.1:0"]);
        command.args(["--secure-metrics-listen-address", "127.0.0.1:0"]).args(flags);
        command.arg("--kubeconfig").arg(kubeconfig).env_remove("RELEASE_VERSION");
        let log = self.folder.path().join(format!("{process}.log"));
        self.processes.push(Process::start(process, &mut command, &log).unwrap());
    }

    async fn wait<K: object_wait::Watched>(
        &self,
        api: Api<K>,
        name: &str,
        what: &str,
        holds: impl FnMut(Option<&K>) -> bool,
    ) -> Option<K> {
        let waited = object_wait::wait_until(api, name, what, holds).await;
        waited.unwrap_or_else(|error| {
            let logs: Vec<String> = self.processes.iter().map(Process::log).collect();
            panic!("{error:#}\n{}", logs.join("\n"))
        })
    }

    /// Installs `mco` as an administrator does, into a cluster with the kinds of the Prometheus
    /// operator, and starts operator and controller.
    pub(super) async fn install(&mut self) {
        let kinds: Vec<Value> = KINDS.iter().map(definition).collect();
        self.create(&kinds);
        let deploy = workspace().join("deploy");
        self.kubectl(&["apply", "-k", &deploy.display().to_string()], "");
        self.run("operator", &["--operator-image", "registry.test/mco:1"]);
        let sets = Api::<DaemonSet>::namespaced(self.admin.clone(), label::NAMESPACE);
        self.wait(sets, "machine-config-server", "the last object", |it| it.is_some()).await;
        self.run("controller", &["--approve-joins"]);
        let pools = Api::<MachineConfigPool>::all(self.admin.clone());
        let is_rendered = |found: Option<&MachineConfigPool>| {
            found.is_some_and(|pool| !pool.spec.configuration.rendered.name.is_empty())
        };
        self.wait(pools, "worker", "a rendered config", is_rendered).await;
        let secrets = Api::<Secret>::namespaced(self.admin.clone(), label::NAMESPACE);
        self.wait(secrets, "machine-config-server-tls", "a certificate", |it| it.is_some()).await;
    }

    /// The metrics of operator and controller are for clients with a token and the right to read them.
    pub(super) async fn metrics_need_a_token_and_a_right(&self) {
        let rules = json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]);
        let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": "metrics-reader"});
        let subjects =
            json!([{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}]);
        let account = |name: &str| {
            json!({"apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": name, "namespace": "default"}})
        };
        let rights = "rbac.authorization.k8s.io/v1";
        self.create(&[
            account("reader"),
            account("other"),
            json!({"apiVersion": rights, "kind": "ClusterRole",
                "metadata": {"name": "metrics-reader"}, "rules": rules}),
            json!({"apiVersion": rights, "kind": "ClusterRoleBinding",
                "metadata": {"name": "metrics-reader"}, "roleRef": reference,
                "subjects": subjects}),
        ]);
        let token = |name: &str| {
            let token = self.kubectl(&["create", "token", name, "-n", "default"], "");
            token.trim().to_owned()
        };
        let (reader, other) = (token("reader"), token("other"));
        for process in &self.processes {
            let address = wait("the address of the metrics", PATIENCE, || secure_address(process));
            let address = address.unwrap();
            assert_eq!(get(&address, "/metrics", None).await.unwrap_err(), 401);
            assert_eq!(get(&address, "/metrics", Some("no-token")).await.unwrap_err(), 401);
            assert_eq!(get(&address, "/metrics", Some(&other)).await.unwrap_err(), 403);
            let metrics = get(&address, "/metrics", Some(&reader)).await.unwrap();
            assert!(metrics.contains("mco_api_requests_total{"), "{metrics}");
            assert_eq!(get(&address, "/livez", None).await.unwrap(), "ok");
            assert_eq!(get(&address, "/state", Some(&reader)).await.unwrap_err(), 404);
        }
    }

    /// Adds a worker with its daemon, and waits until it has the config of its pool.
    pub(super) async fn add_nodes(&mut self) {
        let labels = json!({"node-role.kubernetes.io/worker": "", "kubernetes.io/os": "linux"});
        let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        let sets = Api::<DaemonSet>::namespaced(self.admin.clone(), label::NAMESPACE);
        let set = sets.get("machine-config-daemon").await.unwrap();
        // Pods of DaemonSets are not evicted.
        let owner = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "controller": true,
            "name": set.name_any(), "uid": set.uid()});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "daemon", "namespace": label::NAMESPACE,
                "ownerReferences": [owner]},
            "spec": {"nodeName": NODE, "serviceAccountName": "machine-config-daemon",
                "containers": [{"name": "c", "image": "i"}]},
        });
        self.create(&[
            json!({"apiVersion": "v1", "kind": "Node",
                "metadata": {"name": NODE, "labels": labels}, "status": ready}),
            pod,
        ]);
        let pods = Api::<Pod>::namespaced(self.admin.clone(), label::NAMESPACE);
        let uid = pods.get("daemon").await.unwrap().uid().unwrap();
        let uid = format!("--bound-object-uid={uid}");
        let words = [
            "create",
            "token",
            "machine-config-daemon",
            "-n",
            label::NAMESPACE,
            "--bound-object-kind=Pod",
            "--bound-object-name=daemon",
            &uid,
        ];
        let token = self.kubectl(&words, "");
        let own = self.kubeconfig("pod", Credentials::Token(token.trim()));
        let pair = self.authority.user(&format!("system:node:{NODE}"), Some("system:nodes"));
        let node = self.kubeconfig("kubelet", Credentials::Certificate(&pair.unwrap()));
        let connect = async |path: &Path| client::connect(Some(path)).await.unwrap();
        let clients = Clients { own: connect(&own).await, node: connect(&node).await };
        let reporter =
            Reporter::new(clients.node.clone(), "machineconfigdaemon", NoteCount::default());
        let machine = Machine {
            node: NODE.parse().unwrap(),
            root: self.folder.path().join("root"),
            boot_time: Duration::from_millis(1),
            power: watch::Sender::new(Power::Off),
            first: FirstConfig::ApiServer,
        };
        let shutdown = Shutdown::new();
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let build = Build { hash: version.clone(), version };
        let order = Some((build, Order::HandsOff));
        let context = DaemonContext { order, ..DaemonContext::new(clients, reporter) };
        let run = simulate(machine, context, shutdown.clone());
        self.daemon = Some((shutdown, tokio::spawn(async move { run.await.unwrap() })));
        self.wait_until_updated(1).await;
        let reports = Api::<MachineConfigNode>::all(self.admin.clone());
        let is_reported = |found: Option<&MachineConfigNode>| {
            found.is_some_and(|it| it.status.as_ref().is_some_and(|it| !it.conditions.is_empty()))
        };
        self.wait(reports, NODE, "the report of its daemon", is_reported).await;
    }

    #[expect(clippy::disallowed_methods, reason = "the test writes its input files")]
    fn kubeconfig(&self, name: &str, credentials: Credentials<'_>) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, self.authority.kubeconfig(self.server.url(), credentials)).unwrap();
        path
    }

    /// Waits until the worker has the config of its pool, whose inputs have this number of files of the
    /// test. Returns the name of the config.
    async fn wait_until_updated(&self, sources: usize) -> String {
        let pools = Api::<MachineConfigPool>::all(self.admin.clone());
        let is_updated = |found: Option<&MachineConfigPool>| {
            let Some(pool) = found else { return false };
            let target = &pool.spec.configuration;
            let status = pool.status.clone().unwrap_or_default();
            target.source.len() >= sources
                && status.configuration.rendered.name == target.rendered.name
                && status.updated_machine_count == 1
                && status.machine_count == 1
        };
        let what = "an updated pool";
        let pool = self.wait(pools, "worker", what, is_updated).await;
        pool.unwrap().spec.configuration.rendered.name
    }

    /// Rolls a MachineConfig out to the worker, whose pod is evicted.
    pub(super) async fn roll_out_and_drain(&self) {
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1",
            "controller": true});
        self.create(&[
            json!({"apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": "web", "namespace": "default"}}),
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "web", "namespace": "default", "ownerReferences": [owner]},
                "spec": {"nodeName": NODE, "terminationGracePeriodSeconds": 0,
                    "serviceAccountName": "web", "containers": [{"name": "c", "image": "i"}]},
            }),
        ]);
        let before = self.wait_until_updated(1).await;
        self.create(&[machine_config("99-worker-a", "/etc/a")]);
        let after = self.wait_for_config_after(&before).await;
        assert_ne!(after, before);
        let pods = Api::<Pod>::namespaced(self.admin.clone(), "default");
        assert!(pods.get_opt("web").await.unwrap().is_none(), "the pod was evicted");
    }

    /// Waits until the worker has another config than `before`.
    async fn wait_for_config_after(&self, before: &str) -> String {
        let pools = Api::<MachineConfigPool>::all(self.admin.clone());
        let is_new = |found: Option<&MachineConfigPool>| {
            found.is_some_and(|pool| pool.spec.configuration.rendered.name != before)
        };
        self.wait(pools, "worker", "a new config", is_new).await;
        self.wait_until_updated(1).await
    }

    /// Applies and removes settings of kubelets and container engines.
    pub(super) async fn apply_settings(&self) {
        let selector =
            json!({"matchLabels": {"pools.operator.machineconfiguration.openshift.io/worker": ""}});
        let api = "machineconfiguration.openshift.io/v1";
        let before = self.wait_until_updated(1).await;
        self.create(&[
            json!({"apiVersion": api, "kind": "KubeletConfig", "metadata": {"name": "a"},
            "spec": {"machineConfigPoolSelector": selector, "kubeletConfig": {"maxPods": 100}}}),
        ]);
        let with_kubelet = self.wait_for_config_after(&before).await;
        self.create(&[json!({"apiVersion": api, "kind": "ContainerRuntimeConfig",
            "metadata": {"name": "a"}, "spec": {"machineConfigPoolSelector": selector,
                "containerRuntimeConfig": {"pidsLimit": 2048}}})]);
        let configs = Api::<ContainerRuntimeConfig>::all(self.admin.clone());
        let is_applied = |found: Option<&ContainerRuntimeConfig>| {
            found.is_some_and(|it| {
                it.status.as_ref().is_some_and(|status| !status.conditions.is_empty())
            })
        };
        self.wait(configs.clone(), "a", "its status", is_applied).await;
        self.kubectl(&["delete", "kubeletconfig,containerruntimeconfig", "a", "--wait=false"], "");
        let kubelets = Api::<KubeletConfig>::all(self.admin.clone());
        self.wait(kubelets, "a", "its end", |found| found.is_none()).await;
        self.wait(configs, "a", "its end", |found| found.is_none()).await;
        assert_ne!(self.wait_for_config_after(&with_kubelet).await, with_kubelet);
    }

    /// Edits the config of the pool, and waits until the controller has reverted the edit.
    pub(super) async fn repair_a_rendered_config(&self) {
        let name = self.wait_until_updated(1).await;
        let patch = json!({"spec": {"fips": true}}).to_string();
        self.kubectl(&["patch", "machineconfig", &name, "--type=merge", "-p", &patch], "");
        let configs = Api::<MachineConfig>::all(self.admin.clone());
        let is_reverted = |found: Option<&MachineConfig>| found.is_some_and(|it| !it.spec.fips);
        self.wait(configs, &name, "the reverted edit", is_reverted).await;
    }

    /// Serves a machine with a join token its config, and approves the certificate of its kubelet.
    pub(super) async fn serve_a_new_machine(&mut self) {
        let server = account_kubeconfig(&self.server, "machine-config-server").unwrap();
        crate::server::serves_a_pool_with_the_url_of_the_cluster(&self.admin, &server, "worker")
            .await;
        let words = ["create", "token", "node-bootstrapper", "-n", label::NAMESPACE];
        let token = self.kubectl(&words, "");
        let machine = self.kubeconfig("machine", Credentials::Token(token.trim()));
        let machine = client::connect(Some(&machine)).await.unwrap();
        crate::joining::request(&machine, "csr-a", "worker-1").await;
        let requests = Api::<CertificateSigningRequest>::all(self.admin.clone());
        let is_approved = |found: Option<&CertificateSigningRequest>| {
            let status = found.and_then(|found| found.status.as_ref());
            status.is_some_and(|it| it.conditions.as_ref().is_some_and(|list| !list.is_empty()))
        };
        self.wait(requests, "csr-a", "its approval", is_approved).await;
    }

    /// Lets the controller delete rendered configs that nothing refers to.
    pub(super) async fn prune(&self) {
        let configs = Api::<MachineConfig>::all(self.admin.clone());
        let key = "machineconfiguration.openshift.io/rendered-history=1";
        self.kubectl(&["annotate", "machineconfigpool", "worker", key], "");
        self.create(&[machine_config("99-worker-b", "/etc/b")]);
        let before = self.wait_until_updated(1).await;
        self.kubectl(&["delete", "machineconfig", "99-worker-a"], "");
        self.wait_for_config_after(&before).await;
        let count = async || {
            let all = configs.list_metadata(&ListParams::default()).await.unwrap();
            all.iter().filter(|it| it.name_any().starts_with("rendered-worker-")).count()
        };
        let pruned = async {
            while count().await > 3 {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        let pruned = tokio::time::timeout(PATIENCE, pruned).await;
        assert!(pruned.is_ok(), "{} configs are left", count().await);
    }

    /// Removes the worker, whose MachineConfigNode goes with it.
    pub(super) async fn remove_a_node(&mut self) {
        let (shutdown, task) = self.daemon.take().unwrap();
        shutdown.request();
        tokio::time::timeout(PATIENCE, task).await.unwrap().unwrap();
        self.kubectl(&["delete", "node", NODE], "");
        let nodes = Api::<MachineConfigNode>::all(self.admin.clone());
        self.wait(nodes, NODE, "its end", |found| found.is_none()).await;
    }

    /// Stops the processes and removes the installation.
    pub(super) async fn uninstall(&mut self) {
        for process in self.processes.drain(..) {
            assert!(!process.log().contains("orbidden"), "{}", process.log());
            assert!(stop(process).success());
        }
        let kubeconfig = self.server.kubeconfig();
        let run = mco(&["uninstall", "--yes"]).env("KUBECONFIG", kubeconfig).output().unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        let sets = Api::<DaemonSet>::namespaced(self.admin.clone(), label::NAMESPACE);
        let left = sets.list(&ListParams::default()).await.unwrap();
        assert!(left.items.iter().all(|it| it.metadata.deletion_timestamp.is_some()));
    }

    /// Returns the requests of the four processes.
    pub(super) fn requests(&self) -> BTreeSet<AuditedRequest> {
        let users = PROCESSES.map(|process| {
            format!("system:serviceaccount:{}:machine-config-{process}", label::NAMESPACE)
        });
        let mut requests = self.server.requests().unwrap();
        requests.retain(|request| users.contains(&request.user));
        requests
    }
}

/// Returns a kind without a schema.
fn definition((group, version, kind, plural): &(&str, &str, &str, &str)) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let is_namespaced = group.starts_with("monitoring") || *plural == "imagepolicies";
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": if is_namespaced { "Namespaced" } else { "Cluster" },
            "names": {"kind": kind, "plural": plural, "listKind": format!("{kind}List")},
            "versions": [{"name": version, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

/// Returns a MachineConfig with one file for workers.
fn machine_config(name: &str, path: &str) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {label::ROLE: "worker"}},
        "spec": {"config": {"ignition": {"version": "3.5.0"},
            "storage": {"files": [{"path": path, "contents": {"source": "data:,1"}}]}}},
    })
}
