//! The MachineConfigs of the cluster's settings: `97-<pool>-generated-kubelet` of the settings of
//! nodes, `98-<pool>-generated-kubelet` of the features.
//!
//! A cluster without these settings has none of them: they would restart nodes for nothing.

use mco_api::{MachineConfig, MachineConfigSpec, openshift::Node};
use serde_json::Value;

use super::{
    configuration::Configuration,
    drop_in, duration,
    files::CONFIGURATION,
    inputs::{Inputs, set_tls},
    refusal::Refusal,
    tls,
};
use crate::generated::{self, GeneratedFile};

/// The reason why the settings of nodes are not applied.
///
/// Compat: the texts of the first two are the reference's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeConfigError {
    /// The latency profile does not exist.
    #[error(
        "unknown worker latency profile type found {0}, failed to update the original kubelet configuration"
    )]
    LatencyProfile(String),
    /// The version of control groups does not exist.
    #[error("unknown cgroup mode found {0}, failed to update the machine config resource")]
    CgroupMode(String),
    /// The file of the kubelet cannot be generated.
    #[error(transparent)]
    File(#[from] Refusal),
}

/// Reaction time to workers that cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LatencyProfile {
    /// No profile: the base decides.
    #[default]
    Unset,
    /// The usual reaction time.
    Default,
    /// A longer one.
    Medium,
    /// The longest one.
    Low,
}

impl LatencyProfile {
    /// Returns the frequency at which kubelets report the status of their node.
    pub(super) const fn frequency(self) -> Option<&'static str> {
        match self {
            Self::Unset => None,
            Self::Default => Some("10s"),
            Self::Medium => Some("20s"),
            Self::Low => Some("1m0s"),
        }
    }

    /// Returns the name of the profile in the Node.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unset => "",
            Self::Default => "Default",
            Self::Medium => "MediumUpdateAverageReaction",
            Self::Low => "LowUpdateSlowReaction",
        }
    }
}

/// Returns the latency profile of a Node.
pub fn latency_profile(node: Option<&Node>) -> Result<LatencyProfile, NodeConfigError> {
    let name = node.map(|node| node.spec.worker_latency_profile.as_str()).unwrap_or_default();
    let all = [
        LatencyProfile::Unset,
        LatencyProfile::Default,
        LatencyProfile::Medium,
        LatencyProfile::Low,
    ];
    all.into_iter()
        .find(|profile| profile.as_str() == name)
        .ok_or_else(|| NodeConfigError::LatencyProfile(name.to_owned()))
}

/// Returns true unless the change of the profile skips the one in between, which would make healthy
/// nodes look unreachable.
#[must_use]
pub const fn is_transition_allowed(from: LatencyProfile, to: LatencyProfile) -> bool {
    use LatencyProfile::{Default, Low, Unset};
    !matches!((from, to), (Unset | Default, Low) | (Low, Unset | Default))
}

/// Returns the latency profile that `97-worker-generated-kubelet` applies; `None` if it applies
/// none, and every profile may follow.
#[must_use]
pub fn applied_latency(config: Option<&MachineConfig>) -> Option<LatencyProfile> {
    let config = config?;
    let paths = [CONFIGURATION.to_owned(), format!("{}/{NODE_FRAGMENT}", drop_in::FOLDER)];
    let text = paths.iter().find_map(|path| generated::file_of(config, path))?;
    let fields = drop_in::fields_of(&String::from_utf8_lossy(&text))?;
    let frequency = fields.get("nodeStatusUpdateFrequency").and_then(Value::as_str)?;
    let frequency = duration::format(duration::parse(frequency).ok()?);
    let known = [LatencyProfile::Default, LatencyProfile::Medium, LatencyProfile::Low];
    known.into_iter().find(|profile| profile.frequency() == Some(frequency.as_str()))
}

const NODE_FRAGMENT: &str = "97-mco-node.conf";
const FEATURE_FRAGMENT: &str = "98-mco-features.conf";

/// Kernel arguments of version 2 of control groups.
const CGROUP_V2: [&str; 2] = ["systemd.unified_cgroup_hierarchy=1", "cgroup_no_v1=\"all\""];

/// Returns the MachineConfig of the settings of nodes for one pool; `None` if there is nothing to
/// set.
///
/// Where a whole file is generated, the TLS profile of the API server is in the base already.
/// Elsewhere it is a setting of nodes.
pub fn node_config(inputs: &Inputs<'_>) -> Result<Option<MachineConfigSpec>, NodeConfigError> {
    let node = inputs.settings.node.as_ref();
    let mode = node.map(|node| node.spec.cgroup_mode.as_str()).unwrap_or_default();
    if !matches!(mode, "" | "v2") {
        return Err(NodeConfigError::CgroupMode(mode.to_owned()));
    }
    let (files, is_whole) = match inputs.configuration()? {
        Some(_) if node.is_none() => return Ok(None),
        Some(configuration) => (vec![whole(&configuration)?], true),
        None => (node_fragment(inputs)?, false),
    };
    let mut spec = generated::spec(&files);
    // Nodes that another program set up have a version of control groups already.
    if has_kernel_arguments(inputs) && (is_whole || !mode.is_empty()) {
        spec.kernel_arguments = CGROUP_V2.map(str::to_owned).to_vec();
    }
    let is_empty = files.is_empty() && spec.kernel_arguments.is_empty();
    Ok((!is_empty).then_some(spec))
}

fn node_fragment(inputs: &Inputs<'_>) -> Result<Vec<GeneratedFile>, Refusal> {
    let mut fields = Configuration::default();
    if let Some(frequency) = inputs.latency_frequency() {
        fields.set("nodeStatusUpdateFrequency", frequency);
    }
    let server = inputs.settings.api_server.as_ref();
    if let Some(profile) = server.and_then(|server| server.spec.tls_security_profile.as_ref()) {
        set_tls(&mut fields, &tls::settings(Some(profile)));
    }
    drop_in::fragment(NODE_FRAGMENT, &fields)
}

/// Returns true for the pools whose nodes no other pool configures.
fn has_kernel_arguments(inputs: &Inputs<'_>) -> bool {
    matches!(inputs.pool_name(), "worker" | "master" | "arbiter")
}

/// Returns the MachineConfig of the features for one pool; `None` if there is nothing to set.
pub fn features(inputs: &Inputs<'_>) -> Result<Option<MachineConfigSpec>, Refusal> {
    let Some(gates) = inputs.feature_gates() else { return Ok(None) };
    if let Some(configuration) = inputs.configuration()? {
        return Ok(Some(generated::spec(&[whole(&configuration)?])));
    }
    let mut fields = Configuration::default();
    if !gates.is_empty() {
        fields.add_entries("featureGates", gates);
    }
    let files = drop_in::fragment(FEATURE_FRAGMENT, &fields)?;
    Ok((!files.is_empty()).then(|| generated::spec(&files)))
}

fn whole(configuration: &Configuration) -> Result<GeneratedFile, Refusal> {
    let text = configuration.print().map_err(Refusal::Text)?;
    Ok(GeneratedFile::new(CONFIGURATION, text))
}
