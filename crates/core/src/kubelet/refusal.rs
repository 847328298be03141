//! Checks of a KubeletConfig: the reference's, and those that a kubelet makes when it starts.

use mco_api::{KubeletConfig, MachineConfigPool, kubelet_config::KubeletConfigSpec};
use serde_json::{Map, Value};

use super::{
    configuration::{Configuration, DecodeError},
    fields::{self, Field, Kind, Presence, ROOT},
};
use crate::goyaml;

/// The reason why a KubeletConfig is not applied.
///
/// Compat: the texts up to `CgroupsDifferInMerge` are the reference's
/// (pkg/controller/kubelet-config/helpers.go).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The log level is out of range.
    #[error("KubeletConfig's LogLevel is not valid [0,10]: {0}")]
    LogLevel(i32),
    /// The settings are no `KubeletConfiguration`.
    #[error("KubeletConfig could not be unmarshalled, err: {0}")]
    Decode(DecodeError),
    /// A field is set that belongs to the cluster.
    #[error("KubeletConfiguration: {field} is not allowed to be set, but contains: {value}")]
    Forbidden {
        /// Name of the field.
        field: &'static str,
        /// Its value.
        value: String,
    },
    /// Reservations are both given and to be derived from the size of the node.
    #[error("KubeletConfiguration: autoSizingReserved and systemdReserved cannot be set together")]
    ReservedTwice,
    /// The two cgroups of system daemons differ.
    #[error(
        "KubeletConfiguration: systemReservedCgroup ({reserved}) must match systemCgroups ({system})"
    )]
    CgroupsDiffer {
        /// Value of `systemReservedCgroup`.
        reserved: String,
        /// Value of `systemCgroups`.
        system: String,
    },
    /// The path of static pods is set for a pool of the control plane.
    #[error(
        "KubeletConfiguration: staticPodPath is not allowed to be set for control plane pool {0:?}"
    )]
    StaticPodPathOfControlPlane(String),
    /// The path of static pods is not empty.
    #[error(
        "KubeletConfiguration: staticPodPath must be empty for pool {pool:?}, but contains: {value}"
    )]
    StaticPodPath {
        /// Name of the pool.
        pool: String,
        /// The path.
        value: String,
    },
    /// The two cgroups of system daemons differ after merging.
    #[error(
        "invalid merged configuration: systemReservedCgroup ({reserved}) must match systemCgroups ({system})"
    )]
    CgroupsDifferInMerge {
        /// Value of `systemReservedCgroup`.
        reserved: String,
        /// Value of `systemCgroups`.
        system: String,
    },
    /// A field does not exist, or has a value with which a kubelet does not start.
    #[error("KubeletConfiguration: {}", .0.join("; "))]
    Faults(Vec<String>),
    /// No service on the nodes derives reservations from their size.
    #[error(
        "autoSizingReserved is true, and the nodes of pool {0:?} have no service that derives \
         reservations from their size: set kubeletConfig.systemReserved instead"
    )]
    AutoSizing(String),
    /// The base file of the pool cannot be decoded.
    #[error("{path} of MachineConfig {config} could not be decoded, err: {fault}")]
    Base {
        /// Path of the file.
        path: &'static str,
        /// Name of the MachineConfig.
        config: String,
        /// The fault.
        fault: DecodeError,
    },
    /// A text cannot be written as YAML.
    #[error("KubeletConfiguration: {0}")]
    Text(goyaml::UnreadableText),
}

/// Way in which the settings reach a kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The whole configuration file is replaced: the base configs of the cluster contain it.
    WholeFile,
    /// A fragment is added to a configuration that another program owns, such as kubeadm.
    DropIn,
}

/// Decodes the settings of a KubeletConfig.
pub(super) fn settings(spec: &KubeletConfigSpec) -> Result<Configuration, Refusal> {
    match &spec.kubelet_config {
        Some(raw) => Configuration::from_user(raw.get()).map_err(Refusal::Decode),
        None => Ok(Configuration::default()),
    }
}

/// Checks the settings by the reference's rules, which do not depend on the pool.
pub fn validate(config: &KubeletConfig) -> Result<(), Refusal> {
    let spec = &config.spec;
    if let Some(level) = spec.log_level.filter(|level| !(0..=10).contains(level)) {
        return Err(Refusal::LogLevel(level));
    }
    let user = settings(spec)?;
    if let Some((field, value)) = forbidden(&user) {
        return Err(Refusal::Forbidden { field, value });
    }
    let reserved = user.get("systemReserved").and_then(Value::as_object);
    if reserved.is_some_and(|reserved| !reserved.is_empty())
        && spec.auto_sizing_reserved == Some(true)
    {
        return Err(Refusal::ReservedTwice);
    }
    match differing_cgroups(&user) {
        Some((reserved, system)) => Err(Refusal::CgroupsDiffer { reserved, system }),
        None => Ok(()),
    }
}

/// Returns the first field that belongs to the cluster, with its value as Go prints it.
fn forbidden(user: &Configuration) -> Option<(&'static str, String)> {
    let text = |field: &'static str| Some((field, user.text(field).to_owned()));
    let is_set = |(_, value): &(&str, String)| !value.is_empty();
    let dns = user.list("clusterDNS");
    let gates = user.get("featureGates").and_then(Value::as_object);
    let swap = user.get("memorySwap").and_then(|swap| swap.get("swapBehavior"));
    text("cgroupDriver")
        .filter(is_set)
        .or_else(|| (!dns.is_empty()).then(|| ("clusterDNS", format!("[{}]", dns.join(" ")))))
        .or_else(|| text("clusterDomain").filter(is_set))
        .or_else(|| gates.filter(|gates| !gates.is_empty()).map(|m| ("featureGates", go_map(m))))
        .or_else(|| user.get("failSwapOn").map(|value| ("failSwapOn", value.to_string())))
        .or_else(|| Some(("swapBehavior", swap?.as_str()?.to_owned())).filter(is_set))
}

/// Prints a map like Go.
fn go_map(map: &Map<String, Value>) -> String {
    let mut entries: Vec<String> =
        map.iter().map(|(key, value)| format!("{key}:{value}")).collect();
    entries.sort();
    format!("map[{}]", entries.join(" "))
}

/// Returns the two cgroups of system daemons if both are set and differ.
pub(super) fn differing_cgroups(config: &Configuration) -> Option<(String, String)> {
    let (reserved, system) = (config.text("systemReservedCgroup"), config.text("systemCgroups"));
    let differ = !reserved.is_empty() && !system.is_empty() && reserved != system;
    differ.then(|| (reserved.to_owned(), system.to_owned()))
}

/// Checks the path of static pods: nodes of the control plane run their API server from it.
pub fn check_static_pod_path(
    config: &KubeletConfig,
    pool: &MachineConfigPool,
) -> Result<(), Refusal> {
    let user = settings(&config.spec)?;
    let Some(path) = user.get("staticPodPath") else { return Ok(()) };
    let name = pool.metadata.name.clone().unwrap_or_default();
    if is_control_plane(pool) {
        return Err(Refusal::StaticPodPathOfControlPlane(name));
    }
    match path.as_str().unwrap_or_default() {
        "" => Ok(()),
        value => Err(Refusal::StaticPodPath { pool: name, value: value.to_owned() }),
    }
}

const MASTER: &str = "node-role.kubernetes.io/master";

/// Returns true for a pool of the control plane, by its name or by the nodes that it selects.
fn is_control_plane(pool: &MachineConfigPool) -> bool {
    if matches!(pool.metadata.name.as_deref(), Some("master" | "arbiter")) {
        return true;
    }
    let Some(selector) = &pool.spec.node_selector else { return false };
    let by_label = selector.match_labels.as_ref().is_some_and(|labels| labels.contains_key(MASTER));
    let mut expressions = selector.match_expressions.iter().flatten();
    by_label
        || expressions.any(|expression| {
            expression.key == MASTER && matches!(expression.operator.as_str(), "Exists" | "In")
        })
}

/// Checks that a kubelet would start with the settings. The reference applies them in any case.
pub(super) fn check(user: &Configuration, delivery: Delivery) -> Result<(), Refusal> {
    let mut faults: Vec<String> = user.unknown().iter().map(|path| unknown(path)).collect();
    collect(ROOT, "", user.fields(), delivery, &mut faults);
    if faults.is_empty() { Ok(()) } else { Err(Refusal::Faults(faults)) }
}

fn collect(
    fields: &'static [Field],
    path: &str,
    set: &Map<String, Value>,
    delivery: Delivery,
    faults: &mut Vec<String>,
) {
    for (name, value) in set {
        let Some(field) = fields::find(fields, name) else { continue };
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match (field.kind, value) {
            (Kind::Struct(inner), Value::Object(set)) => {
                collect(inner, &path, set, delivery, faults);
            }
            (Kind::StructList(inner), Value::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    let Value::Object(set) = item else { continue };
                    let path = format!("{path}[{index}]");
                    collect(inner, &path, set, Delivery::DropIn, faults);
                    faults.extend(missing(inner, &path, set));
                }
            }
            // In a whole file such a zero means the value of the base.
            (kind, value)
                if delivery == Delivery::WholeFile
                    && field.presence != Presence::Optional
                    && super::configuration::is_zero(kind, value) => {}
            (_, value) => faults.extend(field.rule.fault(&path, value)),
        }
    }
}

/// Returns the faults of texts that an item of a list must have and does not have.
fn missing(fields: &'static [Field], path: &str, set: &Map<String, Value>) -> Vec<String> {
    let is_missing = |field: &&Field| {
        matches!(field.kind, Kind::Text)
            && field.presence == Presence::Always
            && !set.contains_key(field.name)
    };
    let empty = Value::String(String::new());
    let missing = fields.iter().filter(is_missing);
    missing
        .filter_map(|field| field.rule.fault(&format!("{path}.{}", field.name), &empty))
        .collect()
}

/// Names an unknown field and the known one that is nearest to it.
fn unknown(path: &str) -> String {
    let mut fields = ROOT;
    let mut parents = "";
    let mut rest = path;
    while let Some((parent, name)) = rest.split_once('.') {
        let parent = parent.split('[').next().unwrap_or(parent);
        let Some(Kind::Struct(inner) | Kind::StructList(inner)) =
            fields::find(fields, parent).map(|field| field.kind)
        else {
            break;
        };
        (fields, rest) = (inner, name);
        parents = path.strip_suffix(rest).unwrap_or_default();
    }
    let distances = fields.iter().map(|field| (distance(field.name, rest), field.name));
    match distances.min().filter(|(distance, _)| *distance <= MAX_DISTANCE) {
        Some((_, nearest)) => {
            format!("the field {path} does not exist, did you mean {parents}{nearest}?")
        }
        None => format!("the field {path} does not exist"),
    }
}

/// Number of edits up to which another name is suggested.
const MAX_DISTANCE: usize = 3;

/// Returns the number of letters to add, drop or replace; case does not count.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (at, letter) in left.to_lowercase().chars().enumerate() {
        let mut next = vec![at + 1];
        for ((other, diagonal), above) in right.iter().zip(&row).zip(row.iter().skip(1)) {
            let before = next.last().copied().unwrap_or_default();
            let replaced = diagonal + usize::from(letter != *other);
            next.push(replaced.min(before + 1).min(above + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}
