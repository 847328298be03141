//! Manifests of all objects that an installation consists of.
//!
//! This is their only source. `mco install`, `deploy/` and the Helm chart have the objects of
//! [`install`]: the kinds, the namespaces and the operator. The operator creates those of
//! [`operands`], stage by stage, and repairs them.

mod admission;
mod monitoring;
mod network;
mod rbac;
mod rules;
mod workload;

use mco_api::{
    annotation::{JoinTokens, Profile},
    label,
};
use mco_core::{
    kubelet::{self, TlsSettings},
    machine_configuration::NORMAL,
    takeover::Order,
};
use serde_json::{Value, json};

/// Image of the workloads if no other is given.
pub const IMAGE: &str = "localhost/mco:latest";

/// Label of the objects that belong to an installation, and its value. An object of the same name
/// without it belongs to another owner and is left as it is.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "mco");

/// Place of the name of the namespace of an installation, in the texts of its objects too. [`placed`]
/// replaces it. Neither names nor images can contain it.
const NAMESPACE: &str = "{own-namespace}";

/// Settings of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Namespace of all namespaced objects but a few roles.
    pub namespace: String,
    /// Image of all processes.
    pub image: String,
    /// Version that the processes report.
    pub release: String,
    /// Contents of base configs; the operator's default if `None`.
    pub profile: Option<Profile>,
    /// Authentication of new machines; the operator's default if `None`.
    pub join_tokens: Option<JoinTokens>,
    /// Verbosity of the processes that the operator deploys.
    pub verbosity: u8,
    /// TLS versions and cipher suites of the processes that the operator deploys.
    pub tls: TlsSettings,
    /// Order about a cluster that another operator runs.
    pub order: Order,
}

impl Parameters {
    /// Returns the settings of an installation of this version from `image`.
    #[must_use]
    pub fn new(image: &str) -> Self {
        Self {
            namespace: label::NAMESPACE.to_owned(),
            image: image.to_owned(),
            release: env!("CARGO_PKG_VERSION").to_owned(),
            profile: None,
            join_tokens: None,
            verbosity: NORMAL,
            tls: kubelet::tls_settings(None),
            order: Order::HandsOff,
        }
    }
}

/// A stage in which the operator creates objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Network policies of the namespace.
    NetworkPolicies,
    /// The controller, and admission policies.
    MachineConfigController,
    /// The daemons.
    MachineConfigDaemon,
    /// The config servers.
    MachineConfigServer,
}

impl Stage {
    /// All stages, in their order. The reference has the daemons before the controller; here a new
    /// controller comes first, because it understands what daemons of both versions report.
    pub const ALL: [Self; 4] = [
        Self::NetworkPolicies,
        Self::MachineConfigController,
        Self::MachineConfigDaemon,
        Self::MachineConfigServer,
    ];

    /// Returns the name of the stage in the reference.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NetworkPolicies => "NetworkPolicies",
            Self::MachineConfigController => "MachineConfigController",
            Self::MachineConfigDaemon => "MachineConfigDaemon",
            Self::MachineConfigServer => "MachineConfigServer",
        }
    }
}

/// A condition of the cluster without which an object does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The boot images of the platform cannot be updated.
    NoBootImages,
    /// The boot images of the control plane cannot be updated on the platform.
    NoControlPlaneBootImages,
    /// The feature `OSStreams` is enabled.
    OsStreams,
    /// The cluster has an InternalReleaseImage, and a `ClusterVersion`.
    InternalRelease,
}

/// Returns the objects that an administrator applies: kinds, namespaces and the operator.
///
/// The cluster of another operator has kinds and namespace, which stay that operator's. The operator
/// creates those that are missing.
#[must_use]
pub fn install(parameters: &Parameters) -> Vec<Value> {
    let mut objects = match parameters.order {
        Order::HandsOff => definitions().into_iter().chain(namespaces(parameters)).collect(),
        Order::TakeOver(_) => Vec::new(),
    };
    objects.extend(operator(parameters));
    objects
}

/// Returns the `CustomResourceDefinitions`.
#[must_use]
pub fn definitions() -> Vec<Value> {
    mco_api::crds().iter().map(|crd| labelled(json!(crd))).collect()
}

/// Returns the namespaces.
#[must_use]
pub fn namespaces(parameters: &Parameters) -> Vec<Value> {
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    // No pod runs beside the join tokens.
    let tokens = namespace(mco_api::join_token::NAMESPACE, &labels);
    vec![installation_namespace(&parameters.namespace), tokens]
}

/// Returns the namespace of an installation. The daemon runs privileged pods in it.
pub(crate) fn installation_namespace(name: &str) -> Value {
    let mut labels = json!({"pod-security.kubernetes.io/enforce": "privileged"});
    if name != label::NAMESPACE {
        labels = with(labels, json!({label::INSTALLATION: ""}));
    }
    namespace(name, &labels)
}

fn namespace(name: &str, labels: &Value) -> Value {
    labelled(json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": labels},
    }))
}

/// Returns the operator: service account, rights and Deployment.
#[must_use]
pub fn operator(parameters: &Parameters) -> Vec<Value> {
    let conditional: Vec<Value> = admission::conditional().into_iter().map(|(_, it)| it).collect();
    let operands = Stage::ALL.iter().flat_map(|stage| of_stage(*stage, parameters));
    let kept: Vec<Value> = operands.chain(definitions()).collect();
    let objects = rbac::operator(&kept, &conditional);
    let objects = objects.into_iter().chain([workload::operator(parameters)]);
    objects.map(|object| finished(object, &parameters.namespace)).collect()
}

/// Returns the objects that the operator creates in a stage, in the order in which it does.
#[must_use]
pub fn operands(stage: Stage, parameters: &Parameters) -> Vec<Value> {
    let objects = of_stage(stage, parameters).into_iter();
    objects.map(|object| finished(object, &parameters.namespace)).collect()
}

fn of_stage(stage: Stage, parameters: &Parameters) -> Vec<Value> {
    let process = |name: &str, further: Vec<Value>, services: Vec<Value>, workload: Value| {
        let objects = rbac::process(name).into_iter().chain(further);
        objects.chain(services).chain([workload]).collect::<Vec<_>>()
    };
    let observed = |name: &str, monitoring: Vec<Value>| {
        [workload::metrics_service(name)].into_iter().chain(monitoring).collect::<Vec<_>>()
    };
    match stage {
        Stage::NetworkPolicies => network::policies(),
        Stage::MachineConfigController => process(
            rules::CONTROLLER_NAME,
            admission::of_controller(),
            observed(rules::CONTROLLER_NAME, monitoring::of_controller()),
            workload::controller(parameters),
        ),
        Stage::MachineConfigDaemon => process(
            rules::DAEMON_NAME,
            admission::of_daemon(),
            observed(rules::DAEMON_NAME, monitoring::of_daemon()),
            workload::daemon(parameters),
        ),
        Stage::MachineConfigServer => process(
            rules::SERVER_NAME,
            rbac::join_tokens(),
            vec![workload::server_service()],
            workload::server(parameters),
        ),
    }
}

/// Returns the objects of all stages.
#[must_use]
pub fn all_operands(parameters: &Parameters) -> Vec<Value> {
    Stage::ALL.iter().flat_map(|stage| operands(*stage, parameters)).collect()
}

/// Returns the objects that exist only under a condition. They belong to the stage of the controller.
#[must_use]
pub fn conditional(namespace: &str) -> Vec<(Condition, Value)> {
    let objects = admission::conditional().into_iter();
    objects.map(|(condition, object)| (condition, finished(object, namespace))).collect()
}

/// Returns objects as one YAML stream.
#[must_use]
pub fn yaml(objects: &[Value]) -> String {
    let texts = objects.iter().filter_map(Value::as_object).map(mco_api::object_yaml);
    texts.collect::<Vec<_>>().join("---\n")
}

/// The name of an object: kind, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectName {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace, if the kind is namespaced.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

impl ObjectName {
    /// Returns the name of an object of this module.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        Self {
            api_version: text("/apiVersion").unwrap_or_default().to_owned(),
            kind: text("/kind").unwrap_or_default().to_owned(),
            namespace: text("/metadata/namespace").map(str::to_owned),
            name: text("/metadata/name").unwrap_or_default().to_owned(),
        }
    }

    /// Returns the API group; empty for the core group.
    #[must_use]
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Returns the plural of the kind, as in URLs and RBAC rules.
    #[must_use]
    pub fn resource(&self) -> String {
        let lower = self.kind.to_lowercase();
        match lower.strip_suffix('y') {
            Some(stem) => format!("{stem}ies"),
            None => format!("{lower}s"),
        }
    }

    /// Returns the name under which a cache has the object.
    #[must_use]
    pub fn key(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name),
            None => self.name.clone(),
        }
    }
}

impl std::fmt::Display for ObjectName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind, self.key())
    }
}

/// Returns an object of an installation in `namespace`.
fn finished(object: Value, namespace: &str) -> Value {
    labelled(placed(object, namespace))
}

/// Replaces [`NAMESPACE`] in all texts of an object.
fn placed(value: Value, namespace: &str) -> Value {
    match value {
        Value::String(text) => Value::String(text.replace(NAMESPACE, namespace)),
        Value::Array(items) => {
            items.into_iter().map(|item| placed(item, namespace)).collect::<Vec<_>>().into()
        }
        Value::Object(members) => {
            let members = members.into_iter();
            let members = members
                .map(|(key, value)| (key.replace(NAMESPACE, namespace), placed(value, namespace)));
            Value::Object(members.collect())
        }
        other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => other,
    }
}

/// Returns the object with the label of the installation.
fn labelled(mut object: Value) -> Value {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    let labels = metadata.map(|metadata| metadata.entry("labels").or_insert_with(|| json!({})));
    if let Some(labels) = labels.and_then(Value::as_object_mut) {
        let (key, value) = MANAGED_BY;
        labels.insert(key.to_owned(), json!(value));
    }
    object
}

/// Returns an object with more members; those that it has already are replaced.
fn with(mut object: Value, more: Value) -> Value {
    if let (Some(members), Value::Object(more)) = (object.as_object_mut(), more) {
        members.extend(more);
    }
    object
}

/// Returns true if the metadata has the label of the installation.
pub(crate) fn is_ours(labels: Option<&std::collections::BTreeMap<String, String>>) -> bool {
    let (key, value) = MANAGED_BY;
    labels.and_then(|labels| labels.get(key)).is_some_and(|found| found == value)
}

/// Returns the selector of the objects of the installation.
pub(crate) fn selector() -> String {
    let (key, value) = MANAGED_BY;
    format!("{key}={value}")
}

#[cfg(test)]
mod tests;
