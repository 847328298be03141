//! Tests of a cluster with the objects of OpenShift that tell the platform.

use k8s_openapi::{
    api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    runtime::wait::conditions::is_crd_established,
};
use mco_api::{
    InternalReleaseImage, MachineConfigPool, MachineConfiguration, OSImageStream, annotation, label,
};
use serde_json::{Value, json};

use super::{on_both, published};
use crate::{
    operands::{
        admission::{INTERVAL, denied},
        cluster::{Cluster, IMAGE, settings},
    },
    support::{Operator, config, wait_for},
};

on_both! {
    the_status_follows_the_platform,
    the_arbiter_has_a_pool_and_labels_are_restored,
    conditional_policies_come_and_go,
}

/// Kinds of OpenShift, with their plurals.
const KINDS: [(&str, &str); 3] = [
    ("Infrastructure", "infrastructures"),
    ("ClusterVersion", "clusterversions"),
    ("FeatureGate", "featuregates"),
];

fn resource(kind: &str) -> ApiResource {
    let plural = KINDS.iter().find(|(found, _)| *found == kind).unwrap().1;
    ApiResource {
        group: "config.openshift.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "config.openshift.io/v1".to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

/// Defines the kinds of OpenShift.
async fn define(client: &Client) {
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    for (kind, plural) in KINDS {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let version = json!({"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": schema}});
        let name = format!("{plural}.config.openshift.io");
        let definition = json!({
            "metadata": {"name": name},
            "spec": {"group": "config.openshift.io", "scope": "Cluster", "versions": [version],
                "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(),
                    "listKind": format!("{kind}List")}},
        });
        let definition = serde_json::from_value(definition).unwrap();
        definitions.create(&PostParams::default(), &definition).await.unwrap();
        wait_for(&definitions, &name, "the kind is served", |it| {
            kube::runtime::wait::Condition::matches_object(&is_crd_established(), it)
        })
        .await;
    }
}

/// Creates or replaces the only object of a kind of OpenShift.
async fn put(client: &Client, kind: &str, status: Value) {
    let api = Api::<DynamicObject>::all_with(client.clone(), &resource(kind));
    let name = if kind == "ClusterVersion" { "version" } else { label::CLUSTER };
    let object = json!({"apiVersion": "config.openshift.io/v1", "kind": kind,
        "metadata": {"name": name}, "spec": {}, "status": status});
    let params = PatchParams::apply("test").force();
    api.patch(name, &params, &Patch::Apply(object)).await.unwrap();
}

async fn put_platform(client: &Client, platform: &str, topology: &str) {
    let status = json!({"controlPlaneTopology": topology, "platformStatus": {"type": platform}});
    put(client, "Infrastructure", status).await;
}

async fn put_version(client: &Client) {
    let image = "registry.test/release@sha256:used";
    let history = json!([{"state": "Completed", "version": "4.18.3", "image": image}]);
    let status = json!({"desired": {"image": image}, "history": history});
    put(client, "ClusterVersion", status).await;
}

// covers: O39, O40
async fn the_status_follows_the_platform(cluster: &Cluster) {
    let client = &cluster.admin;
    define(client).await;
    put_platform(client, "AWS", "HighlyAvailable").await;
    put_version(client).await;
    let operator = Operator::start(&cluster.own, &config("v1", "4.20.0"));
    let has_images = |it: &MachineConfiguration| {
        it.status.as_ref().is_some_and(|status| status.managed_boot_images_status.is_some())
    };
    let found = published(client, "boot images are managed", has_images).await;
    let status = json!(found.status);
    let managers = &status["managedBootImagesStatus"]["machineManagers"];
    let line = |it: &Value| format!("{}={}", it["resource"], it["selection"]["mode"]);
    let lines: Vec<String> = managers.as_array().unwrap().iter().map(line).collect();
    assert_eq!(lines, ["\"machinesets\"=\"All\"", "\"controlplanemachinesets\"=\"None\""]);
    assert_eq!(
        status["bootImageSkewEnforcementStatus"],
        json!({"mode": "Automatic", "automatic": {"ocpVersion": "4.18.3"}})
    );
    let since = annotation::BOOT_IMAGE_OPTED_IN_AT.get(found.annotations()).unwrap().unwrap();
    assert!(since.starts_with("20") && since.ends_with('Z'), "{since}");

    put_platform(client, "BareMetal", "HighlyAvailable").await;
    let found = published(client, "boot images are not managed", |it| !has_images(it)).await;
    assert_eq!(
        json!(found.status)["bootImageSkewEnforcementStatus"],
        json!({"mode": "None"}),
        "the cluster has no Provisioning"
    );
    operator.stop().await;
    assert_eq!(cluster.denied(), [""; 0]);
}

// covers: O17
async fn the_arbiter_has_a_pool_and_labels_are_restored(cluster: &Cluster) {
    let client = &cluster.admin;
    define(client).await;
    put_platform(client, "None", "HighlyAvailable").await;
    let operator = Operator::start(&cluster.own, &config("v1", "4.20.0"));
    published(client, "it is created", |_| true).await;
    let pools = Api::<MachineConfigPool>::all(client.clone());
    let exists = |it: Option<&MachineConfigPool>| it.is_some();
    wait_for(&pools, "worker", "the last pool", exists).await;
    assert_eq!(pools.get_opt("arbiter").await.unwrap(), None);
    put_platform(client, "None", "HighlyAvailableArbiter").await;
    let arbiter = wait_for(&pools, "arbiter", "the pool", exists).await.unwrap();
    assert_eq!(
        json!(arbiter.labels()),
        json!({label::BUILT_IN_POOL: "", label::REQUIRED_FOR_UPGRADE: "",
            format!("{}arbiter", label::POOL_PREFIX): ""})
    );
    assert_eq!(
        json!(arbiter.spec.machine_config_selector),
        json!({"matchLabels": {label::ROLE: "arbiter"}})
    );
    for (name, required) in [("master", true), ("worker", false), ("arbiter", true)] {
        let own = format!("{}{name}", label::POOL_PREFIX);
        let gone = json!({label::BUILT_IN_POOL: null, own.clone(): "edited",
            label::REQUIRED_FOR_UPGRADE: null, "example.com/kept": "yes"});
        let patch = Patch::Merge(json!({"metadata": {"labels": gone},
            "spec": {"paused": true, "maxUnavailable": 2}}));
        pools.patch(name, &PatchParams::default(), &patch).await.unwrap();
        let is_restored = |it: Option<&MachineConfigPool>| {
            let labels = it.map(|it| it.labels().clone()).unwrap_or_default();
            labels.contains_key(label::BUILT_IN_POOL)
                && labels.get(&own).is_some_and(String::is_empty)
                && labels.contains_key(label::REQUIRED_FOR_UPGRADE) == required
        };
        let found = wait_for(&pools, name, "labels are restored", is_restored).await.unwrap();
        assert_eq!(found.labels().get("example.com/kept").map(String::as_str), Some("yes"));
        assert!(found.spec.paused, "{name}: the spec is the administrator's");
        assert_eq!(json!(found.spec.max_unavailable), json!(2));
    }
    operator.stop().await;
    assert_eq!(cluster.denied(), [""; 0]);
}

/// Waits until a request is admitted. A deleted policy has an effect for some time.
async fn admitted<T>(what: &str, call: impl AsyncFn() -> kube::Result<T>) -> T {
    let waiting = async {
        loop {
            if let Ok(found) = call().await {
                return found;
            }
            tokio::time::sleep(INTERVAL).await;
        }
    };
    tokio::time::timeout(crate::support::TIMEOUT, waiting)
        .await
        .unwrap_or_else(|_| panic!("{what} is not admitted"))
}

/// Policies exist only while their condition holds.
// covers: O21
async fn conditional_policies_come_and_go(cluster: &Cluster) {
    let client = &cluster.admin;
    define(client).await;
    put_platform(client, "AWS", "HighlyAvailable").await;
    put_version(client).await;
    let operator = Operator::start(&cluster.own, &settings(IMAGE));
    published(client, "it is created", |_| true).await;
    let policies = Api::<ValidatingAdmissionPolicy>::all(client.clone());
    let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(client.clone());
    let guard = "machine-configuration-guards";
    wait_for(&policies, guard, "the other policies", |it| it.is_some()).await;

    boot_images(client, &bindings).await;
    streams(client).await;
    releases(client).await;
    operator.stop().await;
    assert_eq!(cluster.denied(), [""; 0]);
}

/// Managed boot images are admitted on AWS and denied on bare metal.
// covers: C33
async fn boot_images(client: &Client, bindings: &Api<ValidatingAdmissionPolicyBinding>) {
    let configurations = Api::<MachineConfiguration>::all(client.clone());
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let manager = |resource: &str| {
        let manager = json!({"resource": resource, "apiGroup": "machine.openshift.io",
            "selection": {"mode": "All"}});
        Patch::Merge(json!({"spec": {"managedBootImages": {"machineManagers": [manager]}}}))
    };
    let (sets, control_plane) = (manager("machinesets"), manager("controlplanemachinesets"));
    let try_sets = async || configurations.patch(label::CLUSTER, &dry, &sets).await;
    let try_plane = async || configurations.patch(label::CLUSTER, &dry, &control_plane).await;
    admitted("boot images on AWS", try_sets).await;
    admitted("boot images of the control plane on AWS", try_plane).await;
    let names = ["managed-bootimages-platform-check", "managed-bootimages-cpms-platform-check"];
    for name in names {
        assert!(bindings.get_opt(&format!("{name}-binding")).await.unwrap().is_none(), "{name}");
    }

    put_platform(client, "VSphere", "HighlyAvailable").await;
    let text = denied("the control plane on vSphere", try_plane).await;
    assert!(text.contains("control plane machineset boot image"), "{text}");
    admitted("boot images on vSphere", try_sets).await;

    put_platform(client, "BareMetal", "HighlyAvailable").await;
    let text = denied("boot images on bare metal", try_sets).await;
    assert!(text.contains("only supported on these platforms"), "{text}");
    let other = Patch::Merge(json!({"spec": {"operatorLogLevel": "Normal"}}));
    configurations.patch(label::CLUSTER, &dry, &other).await.unwrap();

    put_platform(client, "AWS", "HighlyAvailable").await;
    for name in names {
        let binding = format!("{name}-binding");
        wait_for(bindings, &binding, "the policy is removed", |it| it.is_none()).await;
    }
    admitted("boot images on AWS again", try_sets).await;
}

/// The OSImageStream can be deleted without the feature, and not with it.
// covers: C31
async fn streams(client: &Client) {
    let streams = Api::<OSImageStream>::all(client.clone());
    let stream = json!({"metadata": {"name": "cluster"}, "spec": {"defaultStream": "rhel-9"}});
    let stream: OSImageStream = serde_json::from_value(stream).unwrap();
    streams.create(&PostParams::default(), &stream).await.unwrap();
    let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
    streams.delete(label::CLUSTER, &dry).await.unwrap();
    let gates =
        json!({"featureGates": [{"version": "4.20.0", "enabled": [{"name": "OSStreams"}]}]});
    put(client, "FeatureGate", gates).await;
    let text = denied("a deletion", async || streams.delete(label::CLUSTER, &dry).await).await;
    assert!(text.contains("Deletion of OSImageStream"), "{text}");
}

/// An InternalReleaseImage can be deleted unless the cluster runs its release.
// covers: C32
async fn releases(client: &Client) {
    let images = Api::<InternalReleaseImage>::all(client.clone());
    let name = "ocp-release-bundle-4.20.0-x86-64";
    let image = json!({"metadata": {"name": "cluster"}, "spec": {"releases": [{"name": name}]}});
    let image: InternalReleaseImage = serde_json::from_value(image).unwrap();
    images.create(&PostParams::default(), &image).await.unwrap();
    let digest = |digit: &str| format!("sha256:{}", digit.repeat(64));
    let set = async |digit: &str| {
        let image = format!("registry.test/other@{}", digest(digit));
        let status = json!({"releases": [{"name": name, "image": image}]});
        let patch = Patch::Merge(json!({"status": status}));
        images.patch_status(label::CLUSTER, &PatchParams::default(), &patch).await.unwrap();
    };
    let desired = format!("registry.test/release@{}", digest("a"));
    let status = json!({"desired": {"image": desired}, "history": []});
    put(client, "ClusterVersion", status).await;
    set("a").await;
    let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
    let delete = async || images.delete(label::CLUSTER, &dry).await;
    let text = denied("a deletion", delete).await;
    assert!(text.contains("Cannot delete InternalReleaseImage"), "{text}");
    set("b").await;
    admitted("the deletion of an unused release", delete).await;
}
