//! Settings of the whole cluster that MachineConfigs are generated from: OpenShift's kinds, or the same
//! kinds as YAML documents in the ConfigMap `cluster-settings` on a cluster that does not have them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube_core::{Resource, ResourceExt};
use mco_api::{
    label,
    openshift::{
        APIServer, ClusterImagePolicy, DNS, FeatureGate, Image, ImageContentSourcePolicy,
        ImageDigestMirrorSet, ImagePolicy, ImageTagMirrorSet, Infrastructure, Network, Node, Proxy,
    },
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::yaml::{self, YamlError};

/// Name of the ConfigMap, in the namespace of the operator.
pub const CONFIG_MAP: &str = "cluster-settings";

/// Settings of the whole cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterSettings {
    /// Settings for registries.
    pub image: Option<Image>,
    /// Mirrors by digest, ordered by name.
    pub digest_mirror_sets: Vec<ImageDigestMirrorSet>,
    /// Mirrors by tag, ordered by name.
    pub tag_mirror_sets: Vec<ImageTagMirrorSet>,
    /// Mirrors by digest in their older form, ordered by name.
    pub content_source_policies: Vec<ImageContentSourcePolicy>,
    /// Signature policies of the cluster, ordered by name.
    pub cluster_image_policies: Vec<ClusterImagePolicy>,
    /// Signature policies of namespaces, ordered by namespace and name.
    pub image_policies: Vec<ImagePolicy>,
    /// Settings of nodes.
    pub node: Option<Node>,
    /// Features.
    pub feature_gate: Option<FeatureGate>,
    /// Settings of the API server.
    pub api_server: Option<APIServer>,
    /// Platform of the cluster.
    pub infrastructure: Option<Infrastructure>,
    /// Network of the cluster.
    pub network: Option<Network>,
    /// Proxy of the cluster.
    pub proxy: Option<Proxy>,
    /// DNS names of the cluster.
    pub dns: Option<DNS>,
}

/// A fault in the settings. `place` is the document: its key in the ConfigMap, or its file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// A value of the ConfigMap is not YAML.
    #[error("{place}")]
    Syntax {
        /// The value.
        place: String,
        /// Syntax error.
        source: YamlError,
    },
    /// A document is of another kind.
    #[error(
        "{place}: unknown kind {kind:?} of apiVersion {version:?}; known are {}",
        KINDS.join(", ")
    )]
    Kind {
        /// The document.
        place: String,
        /// API version of the document.
        version: String,
        /// Kind of the document.
        kind: String,
    },
    /// A document has a member of the wrong type.
    #[error("{place} ({kind}): {fault}")]
    Member {
        /// The document.
        place: String,
        /// Kind of the document.
        kind: String,
        /// Description without values.
        fault: String,
    },
    /// Two documents have the same kind and name.
    #[error("{place}: a second {kind} {name:?}; remove one of them")]
    Duplicate {
        /// The document.
        place: String,
        /// Kind of the document.
        kind: String,
        /// Name of the object.
        name: String,
    },
    /// A kind of which only the object `cluster` is read has another name.
    #[error("{place}: {kind} {name:?} has no effect; its name must be {:?}", label::CLUSTER)]
    NotCluster {
        /// The document.
        place: String,
        /// Kind of the document.
        kind: String,
        /// Name of the object.
        name: String,
    },
}

const KINDS: [&str; 13] = [
    "APIServer",
    "ClusterImagePolicy",
    "DNS",
    "FeatureGate",
    "Image",
    "ImageContentSourcePolicy",
    "ImageDigestMirrorSet",
    "ImagePolicy",
    "ImageTagMirrorSet",
    "Infrastructure",
    "Network",
    "Node",
    "Proxy",
];

impl ClusterSettings {
    /// Reads the settings from the values of the ConfigMap. Any fault rejects all of them: settings that
    /// are applied in part would change nodes twice.
    pub fn from_config_map(map: &ConfigMap) -> Result<Self, SettingsError> {
        let empty = BTreeMap::new();
        let mut settings = Self::default();
        for (key, text) in map.data.as_ref().unwrap_or(&empty) {
            let value = format!("ConfigMap {CONFIG_MAP}, key {key:?}");
            let documents = yaml::documents(text)
                .map_err(|source| SettingsError::Syntax { place: value.clone(), source })?;
            for (index, document) in documents.into_iter().enumerate() {
                let place = Place(format!("{value}, document {}", index + 1));
                settings.add(&place, document)?;
            }
        }
        settings.sort();
        Ok(settings)
    }

    fn add(&mut self, place: &Place, document: Value) -> Result<(), SettingsError> {
        let member =
            |name: &str| document.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (version, kind) = (member("apiVersion"), member("kind"));
        match kind.as_str() {
            "APIServer" => place.only(&mut self.api_server, &version, document),
            "ClusterImagePolicy" => place.one(&mut self.cluster_image_policies, &version, document),
            "DNS" => place.only(&mut self.dns, &version, document),
            "FeatureGate" => place.only(&mut self.feature_gate, &version, document),
            "Image" => place.only(&mut self.image, &version, document),
            "ImageContentSourcePolicy" => {
                place.one(&mut self.content_source_policies, &version, document)
            }
            "ImageDigestMirrorSet" => place.one(&mut self.digest_mirror_sets, &version, document),
            "ImagePolicy" => place.one(&mut self.image_policies, &version, document),
            "ImageTagMirrorSet" => place.one(&mut self.tag_mirror_sets, &version, document),
            "Infrastructure" => place.only(&mut self.infrastructure, &version, document),
            "Network" => place.only(&mut self.network, &version, document),
            "Node" => place.only(&mut self.node, &version, document),
            "Proxy" => place.only(&mut self.proxy, &version, document),
            _ => Err(place.unknown(&version, &kind)),
        }
    }

    /// Adds an object to the settings if it is of one of their kinds; returns true if it is.
    ///
    /// For manifests that are not in the ConfigMap.
    pub fn add_manifest(&mut self, source: &str, document: &Value) -> Result<bool, SettingsError> {
        let kind = document.get("kind").and_then(Value::as_str).unwrap_or_default();
        let version = document.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        let group = version.split_once('/').map_or("", |(group, _)| group);
        if !group.ends_with(".openshift.io") || !KINDS.contains(&kind) {
            return Ok(false);
        }
        self.add(&Place(source.to_owned()), document.clone())?;
        self.sort();
        Ok(true)
    }

    fn sort(&mut self) {
        fn by_name<K: Resource<DynamicType = ()>>(objects: &mut [K]) {
            objects.sort_by_key(|object| (object.namespace(), object.name_any()));
        }
        by_name(&mut self.digest_mirror_sets);
        by_name(&mut self.tag_mirror_sets);
        by_name(&mut self.content_source_policies);
        by_name(&mut self.cluster_image_policies);
        by_name(&mut self.image_policies);
    }
}

/// The place of a document, for messages.
struct Place(String);

impl Place {
    fn decode<K>(&self, version: &str, document: Value) -> Result<K, SettingsError>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let kind = K::kind(&()).into_owned();
        if K::api_version(&()) != version {
            return Err(self.unknown(version, &kind));
        }
        serde_json::from_value(document).map_err(|error| SettingsError::Member {
            place: self.0.clone(),
            kind,
            fault: fault(&error),
        })
    }

    fn only<K>(
        &self,
        to: &mut Option<K>,
        version: &str,
        document: Value,
    ) -> Result<(), SettingsError>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let object: K = self.decode(version, document)?;
        let place = self.0.clone();
        let (kind, name) = (K::kind(&()).into_owned(), object.name_any());
        if name != label::CLUSTER {
            return Err(SettingsError::NotCluster { place, kind, name });
        }
        if to.is_some() {
            return Err(SettingsError::Duplicate { place, kind, name });
        }
        *to = Some(object);
        Ok(())
    }

    fn one<K>(&self, to: &mut Vec<K>, version: &str, document: Value) -> Result<(), SettingsError>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let object: K = self.decode(version, document)?;
        let id = |object: &K| (object.namespace(), object.name_any());
        if to.iter().any(|known| id(known) == id(&object)) {
            return Err(SettingsError::Duplicate {
                place: self.0.clone(),
                kind: K::kind(&()).into_owned(),
                name: object.name_any(),
            });
        }
        to.push(object);
        Ok(())
    }

    fn unknown(&self, version: &str, kind: &str) -> SettingsError {
        SettingsError::Kind {
            place: self.0.clone(),
            version: version.to_owned(),
            kind: kind.to_owned(),
        }
    }
}

/// Describes a decoding error without the value, which may be a secret.
fn fault(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.split_once(", expected ") {
        Some((_, expected)) => format!("a member has the wrong type, expected {expected}"),
        None if text.starts_with("missing field") => text,
        None => "a member has the wrong type or value".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ClusterSettings, SettingsError> {
        ClusterSettings::from_config_map(&ConfigMap {
            data: Some([("settings.yaml".to_owned(), text.to_owned())].into()),
            ..ConfigMap::default()
        })
    }

    #[test]
    fn documents_of_the_config_map_are_the_settings() {
        let mirrors = |name: &str| {
            format!(
                "---\napiVersion: config.openshift.io/v1\nkind: ImageDigestMirrorSet\n\
                 metadata: {{name: {name}}}\nspec: {{}}\n"
            )
        };
        let node = "---\napiVersion: config.openshift.io/v1\nkind: Node\nmetadata: {name: cluster}\n\
                    spec: {workerLatencyProfile: LowUpdateSlowReaction}\n";
        let settings = read(&format!("{}{}{node}", mirrors("b"), mirrors("a"))).unwrap();
        let names: Vec<_> = settings.digest_mirror_sets.iter().map(ResourceExt::name_any).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(settings.node.unwrap().spec.worker_latency_profile, "LowUpdateSlowReaction");
        assert_eq!(settings.image, None);
        assert_eq!(read("").unwrap(), ClusterSettings::default());
    }

    #[test]
    fn a_fault_names_key_and_document() {
        let object = |version: &str, kind: &str, name: &str| {
            format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: {name}}}\n")
        };
        let node = object("config.openshift.io/v1", "Node", "cluster");
        let cases = [
            ("a: [".to_owned(), "ConfigMap cluster-settings, key \"settings.yaml\""),
            (
                object("v1", "Secret", "a"),
                "document 1: unknown kind \"Secret\" of apiVersion \"v1\"",
            ),
            (object("config.openshift.io/v2", "Node", "cluster"), "unknown kind \"Node\""),
            (object("config.openshift.io/v1", "Node", "other"), "Node \"other\" has no effect"),
            (format!("{node}---\n{node}"), "document 2: a second Node \"cluster\""),
            (format!("{node}spec: {{cgroupMode: [hunter2]}}\n"), "document 1 (Node): a member has"),
        ];
        for (text, expected) in cases {
            let error = read(&text).expect_err(&text).to_string();
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
