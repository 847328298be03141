//! Settings of kubelets: the files that KubeletConfigs, features and the settings of nodes become.
//!
//! The base of a pool is the file `/etc/kubernetes/kubelet.conf` in its MachineConfig
//! `01-<role>-kubelet`. Where it exists, every generated MachineConfig contains the whole file:
//! base, settings of the cluster, settings of the KubeletConfig. The file of the MachineConfig whose
//! name sorts last wins. Where it does not exist, another program such as kubeadm owns the
//! configuration, and the settings become fragments that the kubelet merges into it; see
//! [`drop_in`].

mod configuration;
mod consistency;
pub mod drop_in;
mod duration;
mod fields;
mod files;
mod inputs;
mod node_config;
mod ownership;
mod plan;
mod refusal;
mod rule;
mod status;
#[cfg(test)]
mod tests;
mod tls;

pub use self::{
    configuration::DecodeError,
    duration::DurationError,
    files::{CONFIGURATION, LOGGING, NODE_SIZING, generate, merge},
    inputs::{Inputs, base_name, delivery},
    node_config::{
        LatencyProfile, NodeConfigError, applied_latency, features, is_transition_allowed,
        latency_profile, node_config,
    },
    ownership::{Origin, is_own, is_own_finalizer, orphans},
    plan::{KubeletPlan, PlanError, plan},
    refusal::{Delivery, Refusal, check_static_pod_path, validate},
    status::{Progress, conditions, is_reported, progress},
    tls::{TlsSettings, settings as tls_settings},
};
