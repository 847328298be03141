//! Reads the objects of a cluster that a takeover depends on.

use anyhow::Context as _;
use http::Request;
use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment},
        coordination::v1::Lease,
        core::v1::Secret,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Client, ResourceExt, api::ObjectMeta};
use mco_api::{GROUP, VERSION, label};
use mco_core::{
    cluster_settings::ClusterSettings,
    takeover::check::{Definition, Management, Snapshot, Workload},
};
use mco_operator::manifests::MANAGED_BY;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{command::uninstall, remote};

/// Kinds that no controller of `mco` reconciles, with the paths of their objects.
const UNSUPPORTED: [(&str, &str); 3] = [
    ("MachineOSConfig", "/apis/machineconfiguration.openshift.io/v1/machineosconfigs"),
    ("InternalReleaseImage", "/apis/machineconfiguration.openshift.io/v1/internalreleaseimages"),
    ("CRIOCredentialProviderConfig", "/apis/config.openshift.io/v1/criocredentialproviderconfigs"),
];

#[derive(Deserialize)]
struct List<T> {
    items: Vec<T>,
}

/// An object of any kind, of which only the metadata is read.
#[derive(Deserialize)]
struct Named {
    metadata: ObjectMeta,
}

/// Reads all objects.
pub(super) async fn snapshot(client: &Client) -> anyhow::Result<Snapshot> {
    let ours = |plural: &str| format!("/apis/{GROUP}/{VERSION}/{plural}");
    let in_namespace = |group: &str, plural: &str| {
        format!("/apis/{group}/namespaces/{}/{plural}", label::NAMESPACE)
    };
    let configurations = "/apis/operator.openshift.io/v1/machineconfigurations";
    let mut snapshot = Snapshot {
        controller_config: named(list(client, &ours("controllerconfigs")).await?, |name| {
            name == label::CONTROLLER_CONFIG
        }),
        pools: list(client, &ours("machineconfigpools")).await?,
        configs: list(client, &ours("machineconfigs")).await?,
        nodes: list(client, "/api/v1/nodes").await?,
        kubelet_configs: list(client, &ours("kubeletconfigs")).await?,
        runtime_configs: list(client, &ours("containerruntimeconfigs")).await?,
        settings: settings(client).await?,
        streams: cluster(list(client, &ours("osimagestreams")).await?),
        machine_configuration: cluster(list(client, configurations).await?),
        leases: list::<Lease>(client, &in_namespace("coordination.k8s.io/v1", "leases")).await?,
        definitions: definitions(client).await?,
        workloads: workloads(client, &in_namespace).await?,
        ..Snapshot::default()
    };
    for (kind, path) in UNSUPPORTED {
        let found = list::<Named>(client, path).await?.into_iter();
        let names = found.map(|found| found.metadata.name.unwrap_or_default());
        snapshot.unsupported.extend(names.map(|name| (kind.to_owned(), name)));
    }
    for name in [label::SERVER_CA, label::SERVER_TLS] {
        let path = format!("/api/v1/namespaces/{}/secrets/{name}", label::NAMESPACE);
        let secret: Option<Secret> = get(client, &path).await?;
        snapshot.certificates.extend(secret.as_ref().and_then(mco_controller::inspect_certificate));
    }
    Ok(snapshot)
}

/// Reads the settings of OpenShift's kinds.
async fn settings(client: &Client) -> anyhow::Result<ClusterSettings> {
    let path = |plural: &str| format!("/apis/config.openshift.io/v1/{plural}");
    let content_source = "/apis/operator.openshift.io/v1alpha1/imagecontentsourcepolicies";
    Ok(ClusterSettings {
        image: cluster(list(client, &path("images")).await?),
        digest_mirror_sets: list(client, &path("imagedigestmirrorsets")).await?,
        tag_mirror_sets: list(client, &path("imagetagmirrorsets")).await?,
        content_source_policies: list(client, content_source).await?,
        cluster_image_policies: list(client, &path("clusterimagepolicies")).await?,
        image_policies: list(client, &path("imagepolicies")).await?,
        node: cluster(list(client, &path("nodes")).await?),
        feature_gate: cluster(list(client, &path("featuregates")).await?),
        api_server: cluster(list(client, &path("apiservers")).await?),
        ..ClusterSettings::default()
    })
}

async fn definitions(client: &Client) -> anyhow::Result<Vec<Definition>> {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let found = list::<CustomResourceDefinition>(client, path).await?;
    let checked = found.iter().filter_map(|found| {
        let usable = mco_operator::check_release_definition(found)?;
        Some(Definition { name: found.name_any(), usable })
    });
    Ok(checked.collect())
}

/// Reads the workloads that `mco` has not installed.
async fn workloads(
    client: &Client,
    path: &impl Fn(&str, &str) -> String,
) -> anyhow::Result<Vec<Workload>> {
    let version: Option<Value> =
        get(client, "/apis/config.openshift.io/v1/clusterversions/version").await?;
    let management = |kind: &str, metadata: &ObjectMeta| {
        let name = metadata.name.as_deref().unwrap_or_default();
        if !mco_operator::is_of_release(metadata) {
            Management::Other
        } else if is_overridden(version.as_ref(), kind, name) {
            Management::Overridden
        } else {
            Management::Release
        }
    };
    let workload = |kind: &str, metadata: &ObjectMeta, replicas: i32| Workload {
        kind: kind.to_owned(),
        name: metadata.name.clone().unwrap_or_default(),
        management: management(kind, metadata),
        replicas,
    };
    let deployments = list::<Deployment>(client, &path("apps/v1", "deployments")).await?;
    let deployments = deployments.iter().filter(|it| !is_own(&it.metadata)).map(|it| {
        let replicas = it.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        workload("Deployment", &it.metadata, replicas)
    });
    let sets = list::<DaemonSet>(client, &path("apps/v1", "daemonsets")).await?;
    let sets = sets.iter().filter(|it| !is_own(&it.metadata));
    let sets = sets.map(|it| {
        let replicas = it.status.as_ref().map_or(0, |status| status.desired_number_scheduled);
        workload("DaemonSet", &it.metadata, replicas)
    });
    Ok(deployments.chain(sets).collect())
}

/// Returns true if the object belongs to an installation of `mco`. Helm replaces the label of its
/// chart's objects, and installs no other operator into the namespace.
pub(crate) fn is_own(metadata: &ObjectMeta) -> bool {
    let label = metadata.labels.as_ref().and_then(|labels| labels.get(MANAGED_BY.0));
    match label.map(String::as_str) {
        Some("Helm") => uninstall::release(metadata).is_some(),
        label => label == Some(MANAGED_BY.1),
    }
}

/// Returns true if the `ClusterVersion` tells its operator to leave an object of the namespace alone.
fn is_overridden(version: Option<&Value>, kind: &str, name: &str) -> bool {
    let overrides = version.and_then(|version| version.pointer("/spec/overrides")?.as_array());
    let is = |entry: &Value, member: &str, value: &str| entry[member].as_str() == Some(value);
    overrides.into_iter().flatten().any(|entry| {
        is(entry, "kind", kind)
            && is(entry, "name", name)
            && is(entry, "namespace", label::NAMESPACE)
            && entry["unmanaged"] == true
    })
}

/// Returns the object `cluster`.
fn cluster<T: ResourceExt>(objects: Vec<T>) -> Option<T> {
    named(objects, |name| name == label::CLUSTER)
}

fn named<T: ResourceExt>(objects: Vec<T>, is: impl Fn(&str) -> bool) -> Option<T> {
    objects.into_iter().find(|object| is(&object.name_any()))
}

/// Reads all objects at a path; none if the API server does not serve the kind.
async fn list<T: DeserializeOwned>(client: &Client, path: &str) -> anyhow::Result<Vec<T>> {
    let found: Option<List<T>> = get(client, path).await?;
    Ok(found.map(|found| found.items).unwrap_or_default())
}

/// Reads the document at a path; `None` if there is none.
async fn get<T: DeserializeOwned>(client: &Client, path: &str) -> anyhow::Result<Option<T>> {
    let request = Request::get(path).body(Vec::new())?;
    match client.request(request).await {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => {
            Err(remote::call_error(error)).with_context(|| format!("failed to read {path}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_of_other_owners_are_told_from_ours() {
        let label = |value: &str| json!({"app.kubernetes.io/managed-by": value});
        let release = json!({"meta.helm.sh/release-name": "mco"});
        for (metadata, want) in [
            (json!({}), false),
            (json!({"labels": label("mco")}), true),
            (json!({"labels": label("Helm"), "annotations": release}), true),
            (json!({"labels": label("Helm")}), false),
            (json!({"annotations": release}), false),
            (json!({"labels": label("other")}), false),
        ] {
            let found: ObjectMeta = serde_json::from_value(metadata.clone()).unwrap();
            assert_eq!(is_own(&found), want, "{metadata}");
        }
    }
}
