//! An operand as the operator sees it: its metadata, and a summary of its pods if it has any.

use std::{borrow::Cow, collections::BTreeMap, fmt, marker::PhantomData};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use mco_cluster::Object;
use serde::Deserialize;
use serde_json::json;

use crate::manifests;

/// An object of kind `K`, without the members that the operator does not read.
pub(crate) struct Observed<K> {
    pub(crate) metadata: ObjectMeta,
    pub(crate) pods: Pods,
    kind: PhantomData<fn() -> K>,
}

/// State of the pods of a Deployment or DaemonSet; zero for other kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pods {
    /// Image of the first container, and the release that it reports.
    pub(crate) version: (String, String),
    /// Generation that the numbers are about.
    pub(crate) observed_generation: i64,
    pub(crate) replicas: i32,
    pub(crate) updated: i32,
    pub(crate) ready: i32,
    pub(crate) unavailable: i32,
}

/// The version of an object that was applied. Another one means that another manager changed the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    uid: Option<String>,
    /// Generation, which changes with the specification; the resource version for kinds without one.
    version: String,
    /// Labels, with which the generation does not change. One of them tells that the object is ours.
    labels: BTreeMap<String, String>,
}

impl<K> Observed<K> {
    /// Returns the version of the object.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let generation = self.metadata.generation.filter(|found| *found > 0);
        let version = match generation {
            Some(generation) => format!("generation {generation}"),
            None => self.metadata.resource_version.clone().unwrap_or_default(),
        };
        let labels = self.metadata.labels.clone().unwrap_or_default();
        Fingerprint { uid: self.metadata.uid.clone(), version, labels }
    }

    /// Returns true if the object belongs to this installation.
    pub(crate) fn is_ours(&self) -> bool {
        manifests::is_ours(self.metadata.labels.as_ref())
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Raw {
    metadata: ObjectMeta,
    spec: Option<RawSpec>,
    status: Option<RawStatus>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawSpec {
    template: RawTemplate,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawTemplate {
    spec: RawPod,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawPod {
    containers: Vec<RawContainer>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawContainer {
    image: String,
    env: Vec<RawVariable>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawVariable {
    name: String,
    value: String,
}

/// Members of the status of a Deployment and of a DaemonSet.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawStatus {
    observed_generation: i64,
    replicas: i32,
    updated_replicas: i32,
    ready_replicas: i32,
    unavailable_replicas: i32,
    desired_number_scheduled: i32,
    updated_number_scheduled: i32,
    number_ready: i32,
    number_unavailable: i32,
}

/// Returns the state of the pods of a workload.
fn pods(spec: RawSpec, status: &RawStatus) -> Pods {
    let container = spec.template.spec.containers.into_iter().next().unwrap_or_default();
    let release = container.env.into_iter().find(|found| found.name == "RELEASE_VERSION");
    Pods {
        version: (container.image, release.map(|found| found.value).unwrap_or_default()),
        observed_generation: status.observed_generation,
        // A kind has one of both members, and the other one is zero.
        replicas: status.replicas + status.desired_number_scheduled,
        updated: status.updated_replicas + status.updated_number_scheduled,
        ready: status.ready_replicas + status.number_ready,
        unavailable: status.unavailable_replicas + status.number_unavailable,
    }
}

impl<K: Resource<DynamicType = ()> + 'static> Object for Observed<K> {
    fn decode(json: &str) -> serde_json::Result<Self> {
        let mut raw: Raw = serde_json::from_str(json)?;
        raw.metadata.managed_fields = None;
        let pods = pods(raw.spec.unwrap_or_default(), &raw.status.unwrap_or_default());
        Ok(Self { metadata: raw.metadata, pods, kind: PhantomData })
    }

    fn encode(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&json!({"metadata": self.metadata}))
    }
}

impl<K: Resource<DynamicType = ()>> Resource for Observed<K> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&()).into_owned().into()
    }

    fn group((): &()) -> Cow<'_, str> {
        K::group(&()).into_owned().into()
    }

    fn version((): &()) -> Cow<'_, str> {
        K::version(&()).into_owned().into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&()).into_owned().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl<K> Clone for Observed<K> {
    fn clone(&self) -> Self {
        Self { metadata: self.metadata.clone(), pods: self.pods.clone(), kind: PhantomData }
    }
}

impl<K> fmt::Debug for Observed<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observed").field("name", &self.metadata.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::{apps::v1::Deployment, rbac::v1::ClusterRole};

    use super::*;

    #[test]
    fn the_version_of_a_workload_is_that_of_its_specification() {
        let object = |generation: i64, version: &str, ready: i32| {
            let text = json!({
                "metadata": {"uid": "u", "generation": generation, "resourceVersion": version,
                    "labels": {"app.kubernetes.io/managed-by": "mco"}},
                "spec": {"template": {"spec": {"containers": [{"image": "a",
                    "env": [{"name": "RELEASE_VERSION", "value": "1"}]}]}}},
                "status": {"observedGeneration": 2, "replicas": 1, "readyReplicas": ready},
            });
            Observed::<Deployment>::decode(&text.to_string()).unwrap()
        };
        let found = object(2, "10", 0);
        assert_eq!(found.fingerprint(), object(2, "11", 1).fingerprint());
        assert_ne!(found.fingerprint(), object(3, "12", 1).fingerprint());
        assert_eq!(found.pods.version, ("a".to_owned(), "1".to_owned()));
        assert_eq!(object(2, "11", 1).pods.ready, 1);
        let mut edited = object(2, "10", 0);
        edited.metadata.labels.as_mut().unwrap().insert("k8s-app".to_owned(), "a".to_owned());
        assert_ne!(found.fingerprint(), edited.fingerprint(), "labels have no generation");
    }

    #[test]
    fn the_version_of_an_object_without_generation_is_its_resource_version() {
        let object = |version: &str| {
            let text = json!({"metadata": {"uid": "u", "resourceVersion": version}, "rules": []});
            Observed::<ClusterRole>::decode(&text.to_string()).unwrap()
        };
        assert_eq!(object("1").fingerprint(), object("1").fingerprint());
        assert_ne!(object("1").fingerprint(), object("2").fingerprint());
    }
}
