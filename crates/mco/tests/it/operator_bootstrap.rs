//! `mco operator bootstrap` makes the manifests of an installation, and the facts of a cluster do not
//! change what its nodes run.

use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Namespace, Secret},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, PostParams},
};
use mco_api::{ControllerConfig, MachineConfig, MachineConfigPool, annotation, label};
use mco_apiserver::{ApiServer, Settings};
use mco_cluster::{Shutdown, lease::LeadershipEnd};
use mco_core::render::Build;
use mco_testkit::object_wait;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::Folder;

fn build() -> Build {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    Build { hash: option_env!("MCO_BUILD_HASH").unwrap_or(&version).to_owned(), version }
}

const FLAGS: [(&str, &str); 8] = [
    ("--root-ca", "root-ca.crt"),
    ("--kube-ca", "kube-ca.crt"),
    ("--pull-secret", "pull.json"),
    ("--config-file", "config.json"),
    ("--infra-config-file", "infra.json"),
    ("--network-config-file", "network.json"),
    ("--proxy-config-file", "proxy.json"),
    ("--dns-config-file", "dns.json"),
];

/// Kinds of OpenShift, their plurals, and the objects of the new cluster.
fn objects(topology: &str) -> [(&'static str, &'static str, Value); 5] {
    let object = |kind: &str, spec: Value, status: Value| {
        json!({"apiVersion": "config.openshift.io/v1", "kind": kind,
            "metadata": {"name": "cluster"}, "spec": spec, "status": status})
    };
    let status = json!({"apiServerInternalURI": "https://api-int.c.test:6443",
        "apiServerURL": "https://api.c.test:6443", "platform": "None",
        "platformStatus": {"type": "None"}, "controlPlaneTopology": topology,
        "infrastructureTopology": "HighlyAvailable", "cpuPartitioning": "None"});
    let network = json!({"serviceNetwork": ["172.30.0.0/16"], "networkType": "OVNKubernetes"});
    let proxy = json!({"httpProxy": "http://proxy.test:3128", "noProxy": ".c.test"});
    [
        ("Infrastructure", "infrastructures", object("Infrastructure", json!({}), status)),
        ("Network", "networks", object("Network", network, json!({}))),
        ("Proxy", "proxies", object("Proxy", json!({}), proxy)),
        ("DNS", "dnses", object("DNS", json!({"baseDomain": "c.test"}), json!({}))),
        ("FeatureGate", "featuregates", object("FeatureGate", json!({}), json!({}))),
    ]
}

fn pull_secret() -> Value {
    let text = json!({"auths": {"registry.test": {"auth": "YTpi"}}}).to_string();
    json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "pull-secret", "namespace": "openshift-config"},
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": ByteString(text.into_bytes())}})
}

/// Returns a folder with the files of an installer.
fn installer(topology: &str) -> Folder {
    let folder = Folder::new(&[("root-ca.crt", b"root"), ("kube-ca.crt", b"kube")]);
    folder.write("pull.json", pull_secret().to_string().as_bytes());
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    folder.write("config.json", config.to_string().as_bytes());
    let files = ["infra.json", "network.json", "proxy.json", "dns.json"];
    for ((.., object), name) in objects(topology).into_iter().zip(files) {
        folder.write(name, object.to_string().as_bytes());
    }
    folder
}

/// Runs the command without the flag `left_out`. Returns its error, which is empty on success.
fn bootstrap(folder: &Folder, left_out: &str, further: &[&str]) -> String {
    let flags = FLAGS.iter().filter(|(flag, _)| *flag != left_out);
    let words: Vec<&str> = ["operator", "bootstrap", "--dest-dir", "out"]
        .into_iter()
        .chain(flags.flat_map(|(flag, file)| [*flag, *file]))
        .chain(further.iter().copied())
        .collect();
    let out = folder.mco(&words).env_remove("RELEASE_VERSION").output().unwrap();
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    if out.status.success() { String::new() } else { text }
}

// covers: O47, O13
#[test]
fn manifests_of_an_installation_are_written() {
    let folder = installer("HighlyAvailableArbiter");
    let images = [
        "--machine-config-operator-image",
        "registry.test/mco:1",
        "--infra-image",
        "pod",
        "--release-image",
        "registry.test/release:1",
        "--payload-version",
        "4.20.0",
    ];
    assert_eq!(bootstrap(&folder, "", &images), "");
    let config =
        folder.read("out/bootstrap/manifests/machineconfigcontroller-controllerconfig.yaml");
    let parsed = mco_core::yaml::documents(&config).unwrap().remove(0);
    let spec = &parsed["spec"];
    assert_eq!(spec["clusterDNSIP"], "172.30.0.10");
    assert_eq!(spec["infra"]["metadata"], json!({"name": "cluster"}));
    assert_eq!(spec["images"]["infraImageKey"], "pod");
    assert_eq!(spec["images"]["apiServerWatcherKey"], "registry.test/mco:1");
    assert_eq!(spec["releaseImage"], "registry.test/release:1");
    assert_eq!(
        (&spec["rootCAData"], &spec["kubeAPIServerServingCAData"]),
        (&json!("cm9vdA=="), &json!("a3ViZQ=="))
    );
    let annotations = &parsed["metadata"]["annotations"];
    assert_eq!(annotations[annotation::GENERATED_BY_VERSION.name()], build().version);
    assert_eq!(annotations[annotation::RELEASE_IMAGE_VERSION.name()], "4.20.0");
    for pool in ["master", "worker", "arbiter"] {
        let text = folder.read(&format!("out/bootstrap/manifests/{pool}.machineconfigpool.yaml"));
        assert!(text.contains(&format!("node-role.kubernetes.io/{pool}")), "{text}");
    }
    let pod = folder.read("out/bootstrap/machineconfigoperator-bootstrap-pod.yaml");
    assert!(
        pod.contains("image: registry.test/mco:1")
            || pod.contains("image: \"registry.test/mco:1\""),
        "{pod}"
    );
    let binding = folder.read("out/manifests/csr-bootstrap-role-binding.yaml");
    assert!(binding.contains("system:node-bootstrapper"), "{binding}");
    let map = folder.read("out/manifests/kube-apiserver-serving-ca-configmap.yaml");
    assert!(map.contains("initial-kube-apiserver-server-ca") && map.contains("kube"), "{map}");
    let secret = folder.read("out/bootstrap/manifests/machineconfigcontroller-pull-secret");
    assert_eq!(secret, pull_secret().to_string());

    let folder = installer("HighlyAvailable");
    assert_eq!(bootstrap(&folder, "", &[]), "");
    assert!(!folder.path("out/bootstrap/manifests/arbiter.machineconfigpool.yaml").exists());
}

// covers: O47
#[test]
fn images_of_a_release_are_read_from_its_references() {
    let folder = installer("HighlyAvailable");
    let tags = [
        "machine-config-operator",
        "keepalived-ipfailover",
        "coredns",
        "baremetal-runtimecfg",
        "oauth-proxy",
        "kube-rbac-proxy",
        "pod",
        "haproxy-router",
        "docker-registry",
        "stream-coreos",
        "stream-coreos-extensions",
    ];
    let tag = |name: &&str| json!({"name": name, "from": {"kind": "DockerImage", "name": format!("r.test/{name}")}});
    let mut stream =
        json!({"kind": "ImageStream", "spec": {"tags": tags.iter().map(tag).collect::<Vec<_>>()}});
    folder.write("references.json", stream.to_string().as_bytes());
    assert_eq!(bootstrap(&folder, "", &["--image-references", "references.json"]), "");
    let config =
        folder.read("out/bootstrap/manifests/machineconfigcontroller-controllerconfig.yaml");
    let spec = mco_core::yaml::documents(&config).unwrap().remove(0)["spec"].clone();
    assert_eq!(spec["images"]["haproxyImage"], "r.test/haproxy-router");
    assert_eq!(spec["baseOSContainerImage"], "r.test/stream-coreos");
    assert_eq!(spec["baseOSExtensionsContainerImage"], "r.test/stream-coreos-extensions");
    stream["spec"]["tags"][2]["from"]["kind"] = json!("ImageStreamTag");
    folder.write("references.json", stream.to_string().as_bytes());
    let text = bootstrap(&folder, "", &["--image-references", "references.json"]);
    assert!(text.contains("references.json: spec.tags has no tag \"coredns\""), "{text}");
}

// covers: O48
#[test]
fn missing_and_invalid_files_of_an_installation_are_errors() {
    let folder = installer("HighlyAvailable");
    let text = bootstrap(&folder, "--config-file", &[]);
    assert!(text.contains("required file config-file not set"), "{text}");
    let text = bootstrap(&folder, "--infra-config-file", &["--infra-config-file", "absent.yaml"]);
    assert!(text.contains("cannot read absent.yaml file. Error: "), "{text}");
    let text = bootstrap(&folder, "--kube-ca", &["--kube-ca", "absent.crt"]);
    assert_eq!(text, "", "the file is optional");
    folder.write("network.json", b"{\"kind\": \"Network\", \"spec\": {\"serviceNetwork\": []}}");
    let text = bootstrap(&folder, "", &[]);
    assert!(text.contains("spec.serviceNetwork: service cidr is empty in Network"), "{text}");
    folder.write("network.json", b"a: [");
    assert!(bootstrap(&folder, "", &[]).contains("network.json: invalid YAML"));
    folder.write("pull.json", b"{\"kind\": \"Secret\", \"type\": \"Opaque\"}");
    let text = bootstrap(&folder, "", &[]);
    assert!(text.contains("pull.json: expected secret type"), "{text}");
}

async fn create<K>(api: &Api<K>, object: &Value)
where
    K: kube::Resource + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let object = serde_json::from_value(object.clone()).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// A cluster, and the processes of `mco` in it.
struct Cluster {
    client: Client,
    shutdown: Shutdown,
    operator: Option<JoinHandle<LeadershipEnd>>,
    controller: Option<JoinHandle<LeadershipEnd>>,
}

impl Cluster {
    async fn new() -> Self {
        let server = ApiServer::in_memory(Settings::default()).await.unwrap();
        let client = Client::new(server, "default");
        mco_operator::install(&client).await.unwrap();
        Self { client, shutdown: Shutdown::new(), operator: None, controller: None }
    }

    fn run(&mut self, profile: &str) {
        let (client, shutdown) = (&self.client, &self.shutdown);
        let mut operator = mco_operator::Config::new(build(), "0.0.1-snapshot");
        operator.profile = Some(profile.into());
        operator.root_ca = mco_operator::RootCa::Fixed("authority".to_owned());
        let run = mco_operator::run(operator, client.clone(), shutdown.clone());
        self.operator = Some(tokio::spawn(run));
        let controller = mco_controller::Config::new(build());
        let run = mco_controller::run(controller, client.clone(), shutdown.clone());
        self.controller = Some(tokio::spawn(run));
    }

    async fn create_namespace(&self, name: &str) {
        let namespaces = Api::<Namespace>::all(self.client.clone());
        create(&namespaces, &json!({"metadata": {"name": name}})).await;
    }

    async fn create_openshift(&self) {
        let definitions = Api::<CustomResourceDefinition>::all(self.client.clone());
        for (kind, plural, object) in objects("HighlyAvailable") {
            let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
            let definition = json!({"metadata": {"name": format!("{plural}.config.openshift.io")},
                "spec": {"group": "config.openshift.io", "scope": "Cluster",
                    "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(),
                        "listKind": format!("{kind}List")},
                    "versions": [{"name": "v1", "served": true, "storage": true,
                        "schema": {"openAPIV3Schema": schema}}]}});
            create(&definitions, &definition).await;
            let resource = ApiResource {
                group: "config.openshift.io".to_owned(),
                version: "v1".to_owned(),
                api_version: "config.openshift.io/v1".to_owned(),
                kind: kind.to_owned(),
                plural: plural.to_owned(),
            };
            create(&Api::<DynamicObject>::all_with(self.client.clone(), &resource), &object).await;
        }
    }

    fn maps(&self, namespace: &str) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn wait_for_config(&self, what: &str, holds: impl Fn(&ControllerConfig) -> bool) {
        let configs = Api::<ControllerConfig>::all(self.client.clone());
        let has = |found: Option<&ControllerConfig>| found.is_some_and(&holds);
        let name = label::CONTROLLER_CONFIG;
        let found = Box::pin(object_wait::wait_until(configs, name, what, has)).await;
        found.unwrap();
    }

    /// Waits until a pool has a rendered config, and returns its name.
    async fn wait_for_rendered(&self, pool: &str, holds: impl Fn(&str) -> bool) -> String {
        let pools = Api::<MachineConfigPool>::all(self.client.clone());
        let name = |pool: &MachineConfigPool| pool.spec.configuration.rendered.name.clone();
        let has = |found: Option<&MachineConfigPool>| found.is_some_and(|it| holds(&name(it)));
        let found = object_wait::wait_until(pools, pool, "its rendered config", has).await;
        name(&found.unwrap().unwrap())
    }

    async fn rendered(&self) -> Vec<String> {
        let configs = Api::<MachineConfig>::all(self.client.clone());
        let found = configs.list(&ListParams::default()).await.unwrap();
        let names = found.iter().map(ResourceExt::name_any);
        names.filter(|name| name.starts_with("rendered-")).collect()
    }

    async fn stop(self) {
        self.shutdown.request();
        for running in [self.operator, self.controller].into_iter().flatten() {
            running.await.unwrap();
        }
    }
}

fn is_complete(config: &ControllerConfig) -> bool {
    let observed = config.status.as_ref().map_or(0, |status| status.observed_generation);
    Some(observed) == config.metadata.generation
}

// covers: O49
#[tokio::test]
async fn the_cluster_renders_what_the_installer_rendered() {
    let folder = installer("HighlyAvailable");
    let flags = [
        "--profile",
        "full",
        "--machine-config-operator-image",
        "registry.test/mco:1",
        "--infra-image",
        "registry.test/pod:1",
        "--baseos-image",
        "registry.test/os:1",
    ];
    assert_eq!(bootstrap(&folder, "", &flags), "");
    let [.., (_, _, gate)] = objects("HighlyAvailable");
    folder.write("out/bootstrap/manifests/gate.json", gate.to_string().as_bytes());
    let words = [
        "controller",
        "bootstrap",
        "--manifest-dir",
        "out/bootstrap/manifests",
        "--dest-dir",
        "rendered",
        "--pull-secret",
        "out/bootstrap/manifests/machineconfigcontroller-pull-secret",
    ];
    let out = folder.mco(&words).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));

    let mut cluster = Cluster::new().await;
    for name in ["openshift-config", "openshift-config-managed"] {
        cluster.create_namespace(name).await;
    }
    cluster.create_openshift().await;
    let secrets = Api::<Secret>::namespaced(cluster.client.clone(), "openshift-config");
    create(&secrets, &pull_secret()).await;
    let root = json!({"metadata": {"name": "root-ca"}, "data": {"ca.crt": "root"}});
    create(&cluster.maps("kube-system"), &root).await;
    let read = |path: &str| mco_core::yaml::documents(&folder.read(path)).unwrap().remove(0);
    let initial = read("out/manifests/kube-apiserver-serving-ca-configmap.yaml");
    create(&cluster.maps("openshift-config"), &initial).await;
    let config = read("out/bootstrap/manifests/machineconfigcontroller-controllerconfig.yaml");
    create(&Api::<ControllerConfig>::all(cluster.client.clone()), &config).await;
    cluster.run("full");
    for pool in ["master", "worker"] {
        let text = folder.read(&format!("rendered/machine-pools/{pool}.yaml"));
        let name = text.lines().find_map(|line| line.trim().strip_prefix("name: rendered-"));
        let name = format!("rendered-{}", name.unwrap());
        assert!(
            folder.read(&format!("rendered/machine-configs/{name}.yaml")).contains("kubelet.conf")
        );
        cluster.wait_for_rendered(pool, |found| found == name).await;
    }
    cluster.wait_for_config("nothing is left to do", is_complete).await;
    cluster.stop().await;
}

#[tokio::test]
async fn facts_of_a_plain_cluster_render_nothing_anew() {
    let mut cluster = Cluster::new().await;
    cluster.run("adopt");
    for pool in ["master", "worker"] {
        cluster.wait_for_rendered(pool, |found| !found.is_empty()).await;
    }
    cluster.wait_for_config("it is complete", is_complete).await;
    let of_pools = async |cluster: &Cluster| {
        let master = cluster.wait_for_rendered("master", |found| !found.is_empty()).await;
        (master, cluster.wait_for_rendered("worker", |found| !found.is_empty()).await)
    };
    let (names, all) = (of_pools(&cluster).await, cluster.rendered().await);
    let texts: Vec<String> = objects("HighlyAvailable")
        .into_iter()
        .take(4)
        .map(|(.., object)| object.to_string())
        .collect();
    let settings = json!({"metadata": {"name": "cluster-settings"},
        "data": {"facts": texts.join("\n---\n")}});
    create(&cluster.maps(label::NAMESPACE), &settings).await;
    let has_facts = |config: &ControllerConfig| {
        let spec = &config.spec;
        let is_known = spec.cluster_dns_ip == "172.30.0.10" && spec.proxy.is_some();
        is_known && spec.infra.is_some() && spec.dns.is_some() && is_complete(config)
    };
    cluster.wait_for_config("the facts are in effect", has_facts).await;
    // The controller has reconciled the new ControllerConfig.
    assert_eq!(of_pools(&cluster).await, names);
    assert_eq!(cluster.rendered().await, all);
    cluster.stop().await;
}
