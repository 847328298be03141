//! The ControllerConfig follows the facts of the cluster, on both API servers. On the real one the
//! operator has the rights of its manifests.

use k8s_openapi::{
    api::{
        apps::v1::DaemonSet,
        core::v1::{ConfigMap, Namespace, Service},
        rbac::v1::{Role, RoleBinding},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use mco_api::{ClusterOperator, ControllerConfig, annotation, label};
use mco_operator::{ImagesFile, RootCa};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    machine_configuration::on_both,
    operands::cluster::{Cluster, IMAGE, settings},
    support::{Operator, condition, config, established, wait, wait_for},
};

/// Kinds of OpenShift, and their plurals.
const KINDS: [(&str, &str); 6] = [
    ("Infrastructure", "infrastructures"),
    ("Network", "networks"),
    ("Proxy", "proxies"),
    ("DNS", "dnses"),
    ("Image", "images"),
    ("APIServer", "apiservers"),
];

async fn create<K>(api: &Api<K>, object: Value)
where
    K: Resource + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

pub(crate) async fn create_kinds(client: &Client) {
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    for (kind, plural) in KINDS {
        let name = format!("{plural}.config.openshift.io");
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let definition = json!({"metadata": {"name": name}, "spec": {
            "group": "config.openshift.io", "scope": "Cluster",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(),
                "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}}],
        }});
        create(&definitions, definition).await;
        established(client, &name).await;
    }
}

pub(crate) fn of_openshift(client: &Client, kind: &str) -> Api<DynamicObject> {
    let plural = KINDS.iter().find(|(known, _)| *known == kind).unwrap().1;
    let resource = ApiResource {
        group: "config.openshift.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "config.openshift.io/v1".to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    };
    Api::all_with(client.clone(), &resource)
}

/// Creates the object `cluster` of a kind of OpenShift.
pub(crate) async fn create_cluster(
    client: &Client,
    kind: &str,
    spec: impl Serialize,
    status: impl Serialize,
) {
    let object = json!({"apiVersion": "config.openshift.io/v1", "kind": kind,
        "metadata": {"name": "cluster"}, "spec": spec, "status": status});
    create(&of_openshift(client, kind), object).await;
}

pub(crate) fn maps(client: &Client, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), namespace)
}

pub(crate) async fn put(client: &Client, namespace: &str, name: &str, data: impl Serialize) {
    create(&maps(client, namespace), json!({"metadata": {"name": name}, "data": data})).await;
}

async fn merge(client: &Client, namespace: &str, name: &str, data: impl Serialize) {
    let patch = Patch::Merge(json!({"data": data}));
    maps(client, namespace).patch(name, &PatchParams::default(), &patch).await.unwrap();
}

async fn wait_for_spec(client: &Client, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let configs = Api::<ControllerConfig>::all(client.clone());
    let has = |found: Option<&ControllerConfig>| found.is_some_and(|it| holds(&json!(it.spec)));
    let found = wait_for(&configs, label::CONTROLLER_CONFIG, what, has).await;
    json!(found.unwrap().spec)
}

pub(crate) async fn wait_for_degraded(client: &Client, expected: &str) {
    let degraded = |it: &ClusterOperator| condition(it, "Degraded");
    wait(client, expected, |it| {
        degraded(it).contains("RenderConfigFailed") && degraded(it).contains(expected)
    })
    .await;
}

async fn wait_for_health(client: &Client) {
    wait(client, "the failure is over", |it| condition(it, "Degraded").starts_with("False")).await;
}

/// Returns a cluster whose operator runs.
async fn start(cluster: &Cluster) -> Operator {
    let operator = Operator::start(&cluster.own, &config("v1", "4.20.0"));
    wait_for_spec(&cluster.admin, "the ControllerConfig exists", |_| true).await;
    operator
}

pub(crate) async fn create_namespaces(client: &Client) {
    let namespaces = Api::<Namespace>::all(client.clone());
    let names =
        ["openshift-config", "openshift-config-managed", "openshift-kube-apiserver-operator"];
    for name in names {
        create(&namespaces, json!({"metadata": {"name": name}})).await;
    }
}

const BROKEN: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

fn certificate() -> String {
    let made = rcgen::generate_simple_self_signed(vec!["ca.test".to_owned()]).unwrap();
    made.cert.pem().replace('\r', "")
}

/// A cluster that becomes OpenShift while the operator runs.
async fn the_facts_of_openshift_reach_the_controller_config(cluster: &Cluster) {
    let client = &cluster.admin;
    let operator = start(cluster).await;
    let plain = wait_for_spec(client, "a plain cluster", |_| true).await;
    assert_eq!((&plain["infra"], &plain["platform"]), (&Value::Null, &json!("none")));

    create_namespaces(client).await;
    create_kinds(client).await;
    let services = json!({"serviceNetwork": ["172.30.0.0/16"], "networkType": "OVNKubernetes"});
    create_cluster(client, "Network", services, json!({})).await;
    create_cluster(client, "DNS", json!({"baseDomain": "c.test"}), json!({})).await;
    let platform =
        json!({"type": "BareMetal", "baremetal": {"apiServerInternalIPs": ["192.0.2.5"]}});
    let status = json!({"apiServerInternalURI": "https://api-int.c.test:6443",
        "platformStatus": platform, "controlPlaneTopology": "HighlyAvailable",
        "infrastructureTopology": "HighlyAvailable", "cpuPartitioning": "None"});
    create_cluster(client, "Infrastructure", json!({}), status).await;
    let spec = wait_for_spec(client, "the facts of OpenShift", |it| it["infra"].is_object()).await;
    let address = &spec["infra"]["status"]["platformStatus"]["baremetal"]["apiServerInternalIPs"];
    assert_eq!(*address, platform["baremetal"]["apiServerInternalIPs"]);
    assert_eq!(spec["platform"], "baremetal");
    let spec = wait_for_spec(client, "all of them", |it| {
        it["dns"].is_object() && it["clusterDNSIP"] == "172.30.0.10"
    })
    .await;
    assert_eq!(spec["pullSecret"]["name"], "pull-secret");
    assert_eq!(spec["networkType"], "OVNKubernetes");

    // A proxy comes and goes; its object stays.
    let proxies = of_openshift(client, "Proxy");
    create_cluster(client, "Proxy", json!({}), json!({"httpProxy": "http://proxy.test"})).await;
    let has = |proxy: Value| move |it: &Value| it["proxy"] == proxy;
    wait_for_spec(client, "a proxy", has(json!({"httpProxy": "http://proxy.test"}))).await;
    let patch = Patch::Merge(json!({"status": {"httpProxy": null}}));
    proxies.patch("cluster", &PatchParams::default(), &patch).await.unwrap();
    wait_for_spec(client, "no proxy", has(json!({}))).await;

    // covers: O07
    put(client, "openshift-config", "user-ca-bundle", json!({"ca-bundle.crt": BROKEN})).await;
    let expected = "configmap openshift-config/user-ca-bundle doesn't have a valid PEM bundle";
    wait_for_degraded(client, expected).await;
    merge(client, "openshift-config", "user-ca-bundle", json!({"ca-bundle.crt": certificate()}))
        .await;
    wait_for_health(client).await;
    let has_bundle =
        |it: &Value| it["additionalTrustBundle"].as_str().is_some_and(|it| !it.is_empty());
    wait_for_spec(client, "the bundle", has_bundle).await;
    assert_eq!(cluster.denied(), [""; 0]);
    operator.stop().await;
}

async fn an_object_of_openshift_is_watched_once(cluster: &Cluster) {
    let client = &cluster.admin;
    create_namespaces(client).await;
    create_kinds(client).await;
    let status = json!({"platformStatus": {"type": "None"}});
    create_cluster(client, "Infrastructure", json!({}), status).await;
    let services = json!({"serviceNetwork": ["172.30.0.0/16"]});
    create_cluster(client, "Network", services, json!({})).await;
    let operator = start(cluster).await;
    wait_for_health(client).await;
    let watches = cluster.watches();
    for (_, plural) in KINDS {
        let path = format!("/{plural}?");
        let count = watches.iter().filter(|watch| watch.contains(&path)).count();
        assert_eq!(count, 1, "watches of {plural}: {watches:#?}");
    }
    operator.stop().await;
}

async fn certificates_are_copied_and_rotated(cluster: &Cluster) {
    let client = &cluster.admin;
    create_namespaces(client).await;
    create_kinds(client).await;
    let status = json!({"platformStatus": {"type": "None"}});
    create_cluster(client, "Infrastructure", json!({}), status).await;
    let services = json!({"serviceNetwork": ["172.30.0.0/16"]});
    create_cluster(client, "Network", services, json!({})).await;
    let operator = start(cluster).await;

    // covers: O09
    let managed = "openshift-config-managed";
    let merged = maps(client, managed);
    let merged_is = |expected: Value| {
        move |found: Option<&ConfigMap>| {
            found.is_some_and(|it| json!(it.data.clone().unwrap_or_default()) == expected)
        }
    };
    let name = "merged-trusted-image-registry-ca";
    put(client, managed, "image-registry-ca", json!({"registry.test..5000": "one"})).await;
    let one = json!({"registry.test..5000": "one"});
    let found = wait_for(&merged, name, "the merged ConfigMap", merged_is(one)).await.unwrap();
    let owner = found.annotations().get("openshift.io/owning-component").cloned();
    assert_eq!(owner.as_deref(), Some("Machine Config Operator"));
    wait_for_spec(client, "the certificate of a registry", |it| {
        it["imageRegistryBundleData"][0]["file"] == "registry.test..5000"
    })
    .await;
    merge(client, managed, "image-registry-ca", json!({"registry.test..5000": null})).await;
    wait_for(&merged, name, "it is empty", merged_is(json!({}))).await;

    // covers: O14
    let configs = Api::<ControllerConfig>::all(client.clone());
    let rotates = annotation::SERVICE_CA_ROTATE.name();
    let own = maps(client, label::NAMESPACE);
    let has_bundle = |expected: &'static str| {
        move |found: Option<&ConfigMap>| {
            let data = found.and_then(|it| it.binary_data.clone()).unwrap_or_default();
            data.get("ca-bundle.crt").is_some_and(|it| it.0 == expected.as_bytes())
        }
    };
    put(client, managed, "kube-apiserver-server-ca", json!({"ca-bundle.crt": "first"})).await;
    wait_for(&own, "kubeconfig-data", "the copy", has_bundle("first")).await;
    let found = configs.get(label::CONTROLLER_CONFIG).await.unwrap();
    assert_eq!(found.annotations().get(rotates).map(String::as_str), Some("false"));
    merge(client, managed, "kube-apiserver-server-ca", json!({"ca-bundle.crt": "second"})).await;
    wait_for(&own, "kubeconfig-data", "the new copy", has_bundle("second")).await;
    let is_told = |found: Option<&ControllerConfig>| {
        found.is_some_and(|it| it.annotations().get(rotates).is_some_and(|it| it == "true"))
    };
    wait_for(&configs, label::CONTROLLER_CONFIG, "daemons are told", is_told).await;

    // covers: O10
    put(client, label::NAMESPACE, label::SERVER_CA, json!({"ca-bundle.crt": "server"})).await;
    wait_for_spec(client, "the CA of the server", |it| it["rootCAData"] == "c2VydmVy").await;
    assert_eq!(cluster.denied(), [""; 0]);
    operator.stop().await;
}

// covers: O12
async fn credentials_of_the_internal_registry_reach_the_controller_config(cluster: &Cluster) {
    let client = &cluster.admin;
    create_namespaces(client).await;
    create_kinds(client).await;
    create_cluster(
        client,
        "Infrastructure",
        json!({}),
        json!({"platformStatus": {"type": "None"}}),
    )
    .await;
    create_cluster(client, "Network", json!({"serviceNetwork": ["10.0.0.0/16"]}), json!({})).await;
    create_cluster(client, "DNS", json!({"baseDomain": "c.test"}), json!({})).await;
    let operator = start(cluster).await;
    if cluster.has_rights() {
        // The names of the Secrets are generated: the administrator gives the right to read them.
        let meta = json!({"name": "registry-credentials", "namespace": label::NAMESPACE});
        let roles = Api::<Role>::namespaced(client.clone(), label::NAMESPACE);
        let allowed = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]);
        create(&roles, json!({"metadata": meta, "rules": allowed})).await;
        let bindings = Api::<RoleBinding>::namespaced(client.clone(), label::NAMESPACE);
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role",
            "name": "registry-credentials"});
        let account = json!({"kind": "ServiceAccount", "name": "machine-config-operator",
            "namespace": label::NAMESPACE});
        create(&bindings, json!({"metadata": meta, "roleRef": role, "subjects": [account]})).await;
    }
    let operators = Api::<ClusterOperator>::all(client.clone());
    create(&operators, json!({"metadata": {"name": "image-registry"}, "spec": {}})).await;
    let secrets = |namespace: &str| {
        Api::<k8s_openapi::api::core::v1::Secret>::namespaced(client.clone(), namespace)
    };
    let host = "image-registry.openshift-image-registry.svc:5000";
    let text = json!({host: {"auth": "cHVsbGVy"}}).to_string();
    let secret = json!({"metadata": {"name": "puller-dockercfg"}, "type": "kubernetes.io/dockercfg",
        "data": {".dockercfg": k8s_openapi::ByteString(text.into_bytes())}});
    create(&secrets(label::NAMESPACE), secret).await;
    let text = json!({"auths": {"registry.test": {"auth": "Z2xvYmFs"}}}).to_string();
    let secret = json!({"metadata": {"name": "pull-secret"}, "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": k8s_openapi::ByteString(text.into_bytes())}});
    create(&secrets("openshift-config"), secret).await;
    let accounts = Api::<k8s_openapi::api::core::v1::ServiceAccount>::namespaced(
        client.clone(),
        label::NAMESPACE,
    );
    let account = json!({"metadata": {"name": "machine-os-puller"},
        "imagePullSecrets": [{"name": "puller-dockercfg"}]});
    create(&accounts, account).await;
    if Api::<Namespace>::all(client.clone()).get_opt("kube-system").await.unwrap().is_none() {
        create(
            &Api::<Namespace>::all(client.clone()),
            json!({"metadata": {"name": "kube-system"}}),
        )
        .await;
    }
    put(client, "kube-system", "bootstrap", json!({"status": "complete"})).await;
    let spec = wait_for_spec(client, "the credentials", |it| {
        it["internalRegistryPullSecret"].as_str().is_some_and(|it| !it.is_empty())
    })
    .await;
    let found: k8s_openapi::ByteString =
        serde_json::from_value(spec["internalRegistryPullSecret"].clone()).unwrap();
    let found: Value = serde_json::from_slice(&found.0).unwrap();
    let hosts: Vec<&String> = found["auths"].as_object().unwrap().keys().collect();
    let route = "default-route-openshift-image-registry.apps.c.test";
    assert_eq!(hosts, [route, host, "registry.test"]);
    assert_eq!(cluster.denied(), [""; 0]);
    operator.stop().await;
}

/// Settings of the administrator count more than what follows from Services.
async fn the_settings_of_a_plain_cluster_reach_the_controller_config(cluster: &Cluster) {
    let client = &cluster.admin;
    let operator = start(cluster).await;
    if cluster.has_rights() {
        let services = Api::<Service>::namespaced(client.clone(), "kube-system");
        create(
            &services,
            json!({"metadata": {"name": "kube-dns"},
            "spec": {"ports": [{"port": 53, "protocol": "UDP"}]}}),
        )
        .await;
        let address = services.get("kube-dns").await.unwrap().spec.unwrap().cluster_ip.unwrap();
        wait_for_spec(client, "the address of the DNS server", |it| it["clusterDNSIP"] == *address)
            .await;
    }
    let document = |kind: &str, spec: Value| {
        json!({"apiVersion": "config.openshift.io/v1", "kind": kind,
            "metadata": {"name": "cluster"}, "spec": spec})
        .to_string()
    };
    let network = document("Network", json!({"serviceNetwork": ["10.97.0.0/16"]}));
    put(client, label::NAMESPACE, "cluster-settings", json!({"network": network})).await;
    wait_for_spec(client, "the address of the settings", |it| it["clusterDNSIP"] == "10.97.0.10")
        .await;
    let proxy = document("Proxy", json!({"httpsProxy": "http://proxy.test:3128"}));
    merge(client, label::NAMESPACE, "cluster-settings", json!({"proxy": proxy})).await;
    wait_for_spec(client, "the proxy of the settings", |it| {
        it["proxy"]["httpsProxy"] == "http://proxy.test:3128"
    })
    .await;
    let wrong = document("Network", json!({"serviceNetwork": ["10.97.0.0/30"]}));
    merge(client, label::NAMESPACE, "cluster-settings", json!({"network": wrong})).await;
    wait_for_degraded(client, "Network cluster: spec.serviceNetwork: 10.97.0.0/30 has no tenth")
        .await;
    maps(client, label::NAMESPACE)
        .delete("cluster-settings", &DeleteParams::default())
        .await
        .unwrap();
    wait_for_health(client).await;
    assert_eq!(cluster.denied(), [""; 0]);
    operator.stop().await;
}

on_both! {
    the_facts_of_openshift_reach_the_controller_config,
    an_object_of_openshift_is_watched_once,
    certificates_are_copied_and_rotated,
    credentials_of_the_internal_registry_reach_the_controller_config,
    the_settings_of_a_plain_cluster_reach_the_controller_config,
}

// covers: O02
#[tokio::test]
async fn images_of_another_release_degrade_the_operator() {
    let cluster = Cluster::embedded().await;
    let mut given = config("v1", "4.20.0");
    let file = json!({"releaseVersion": "4.19.0", "machineConfigOperator": "registry.test/mco:1"});
    given.images_json = Some(ImagesFile::new(move || Ok(file.to_string())));
    let operator = Operator::start(&cluster.own, &given);
    let text = "refusing to read images.json version \"4.19.0\", operator version \"4.20.0\"";
    wait_for_degraded(&cluster.admin, text).await;
    operator.stop().await;
}

/// The clock is paused: the operator is idle for an hour.
#[tokio::test(start_paused = true)]
async fn facts_that_do_not_change_are_not_written() {
    let cluster = Cluster::embedded().await;
    create_namespaces(&cluster.admin).await;
    create_kinds(&cluster.admin).await;
    let status = json!({"platformStatus": {"type": "AWS"}});
    create_cluster(&cluster.admin, "Infrastructure", json!({}), status).await;
    let network = json!({"serviceNetwork": ["172.30.0.0/16"]});
    create_cluster(&cluster.admin, "Network", network, json!({})).await;
    let managed = "openshift-config-managed";
    put(&cluster.admin, managed, "image-registry-ca", json!({"a": "one"})).await;
    put(&cluster.admin, managed, "kube-apiserver-server-ca", json!({"ca-bundle.crt": "a"})).await;
    let operator = start(&cluster).await;
    tokio::time::sleep(std::time::Duration::from_mins(10)).await;
    cluster.take_writes();
    tokio::time::sleep(std::time::Duration::from_hours(1)).await;
    let mut writes = cluster.take_writes();
    writes.retain(|line| !line.contains("clusteroperators"));
    assert_eq!(writes, [""; 0]);
    operator.stop().await;
}

// covers: O16
#[tokio::test(start_paused = true)]
async fn a_controller_config_that_the_controller_does_not_reconcile_degrades_the_operator() {
    let cluster = Cluster::embedded().await;
    let operator = start(&cluster).await;
    let leases = Api::<k8s_openapi::api::coordination::v1::Lease>::namespaced(
        cluster.admin.clone(),
        label::NAMESPACE,
    );
    let name = "machine-config-controller";
    create(
        &leases,
        json!({"metadata": {"name": name}, "spec": {"holderIdentity": "c_1",
        "leaseDurationSeconds": 3600, "leaseTransitions": 0}}),
    )
    .await;
    let failed = |it: &ClusterOperator| {
        let text = condition(it, "Degraded");
        text.contains("MachineConfigControllerFailed")
            && text.contains("during waitForControllerConfigToBeCompleted: ")
            && text.contains("is being reported for 0, expecting it for 1")
    };
    tokio::time::sleep(std::time::Duration::from_mins(4)).await;
    wait(&cluster.admin, "Degraded", failed).await;
    let configs = Api::<ControllerConfig>::all(cluster.admin.clone());
    let patch = Patch::Merge(json!({"status": {"observedGeneration": 1}}));
    let params = PatchParams::default();
    configs.patch_status(label::CONTROLLER_CONFIG, &params, &patch).await.unwrap();
    wait_for_health(&cluster.admin).await;
    operator.stop().await;
}

// covers: O04
#[tokio::test]
async fn a_new_ca_reaches_the_controller_config_while_a_stage_fails() {
    let cluster = Cluster::embedded().await;
    let client = &cluster.admin;
    cluster.create_namespace().await;
    put(client, label::NAMESPACE, "kube-root-ca.crt", json!({"ca.crt": "first"})).await;
    let labels = json!({"app": "other"});
    let foreign = json!({"metadata": {"name": "machine-config-daemon"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
            "spec": {"containers": [{"name": "other", "image": "other"}]}}}});
    let sets = Api::<DaemonSet>::namespaced(client.clone(), label::NAMESPACE);
    create(&sets, foreign).await;
    let mut given = settings(IMAGE);
    given.root_ca = RootCa::Cluster;
    let operator = Operator::start(&cluster.own, &given);
    wait(client, "the stage fails", |it| {
        condition(it, "Degraded").contains("MachineConfigDaemonFailed")
    })
    .await;
    merge(client, label::NAMESPACE, "kube-root-ca.crt", json!({"ca.crt": "second"})).await;
    wait_for_spec(client, "the new CA", |it| {
        it["kubeAPIServerServingCAData"] == "c2Vjb25k" && it["rootCAData"] == "c2Vjb25k"
    })
    .await;
    operator.stop().await;
}
