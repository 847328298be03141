//! The inputs that all generated configurations of a pool share: base file, TLS profile, features
//! and latency profile of the cluster.

use mco_api::{MachineConfig, MachineConfigPool, openshift::cluster::Feature};
use serde_json::{Map, Value};

use super::{
    configuration::{Configuration, DecodeError},
    files::CONFIGURATION,
    node_config::LatencyProfile,
    refusal::{Delivery, Refusal},
    tls,
};
use crate::{cluster_settings::ClusterSettings, generated};

/// Everything beside a KubeletConfig that the kubelets of a pool depend on.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The pool.
    pub pool: &'a MachineConfigPool,
    /// The MachineConfig [`base_name`], if it exists.
    pub base: Option<&'a MachineConfig>,
    /// Settings of the cluster.
    pub settings: &'a ClusterSettings,
    /// Version of the cluster, for its features.
    pub version: &'a str,
    /// Latency profile that applies, which may differ from the one in the settings.
    pub latency: LatencyProfile,
}

/// Returns the name of the MachineConfig that contains the base file of a pool. Custom pools use
/// that of the workers.
#[must_use]
pub fn base_name(pool: &str) -> String {
    match pool {
        "master" | "arbiter" => format!("01-{pool}-kubelet"),
        _ => "01-worker-kubelet".to_owned(),
    }
}

/// Returns the way in which settings reach the kubelets of a pool with this base.
#[must_use]
pub fn delivery(base: Option<&MachineConfig>) -> Delivery {
    match base.and_then(|base| generated::file_of(base, CONFIGURATION)) {
        Some(_) => Delivery::WholeFile,
        None => Delivery::DropIn,
    }
}

impl Inputs<'_> {
    pub(super) fn pool_name(&self) -> &str {
        self.pool.metadata.name.as_deref().unwrap_or_default()
    }

    /// Returns the base with the settings of the cluster; `None` if there is no base file.
    pub(super) fn configuration(&self) -> Result<Option<Configuration>, Refusal> {
        let Some(base) = self.base else { return Ok(None) };
        let Some(contents) = generated::file_of(base, CONFIGURATION) else { return Ok(None) };
        let text = String::from_utf8_lossy(&contents);
        let mut configuration =
            Configuration::from_file(&text).map_err(|fault| self.base(fault))?;
        self.add_settings(&mut configuration);
        Ok(Some(configuration))
    }

    fn base(&self, fault: DecodeError) -> Refusal {
        let config = base_name(self.pool_name());
        Refusal::Base { path: CONFIGURATION, config, fault }
    }

    fn add_settings(&self, configuration: &mut Configuration) {
        if let Some(server) = &self.settings.api_server {
            let profile = server.spec.tls_security_profile.as_ref();
            set_tls(configuration, &tls::settings(profile));
        }
        if let Some(gates) = self.feature_gates() {
            configuration.add_entries("featureGates", gates);
        }
        if let Some(frequency) = self.latency_frequency() {
            configuration.set("nodeStatusUpdateFrequency", frequency);
        }
    }

    /// Returns the features of the cluster, `None` without a `FeatureGate`.
    pub(super) fn feature_gates(&self) -> Option<Map<String, Value>> {
        let gate = self.settings.feature_gate.as_ref()?;
        let versions = gate.status.feature_gates.as_slice();
        let of_version = versions.iter().find(|one| one.version == self.version);
        let mut gates = Map::new();
        if let Some(features) = of_version.or(versions.first()) {
            let names = |features: &[Feature]| -> Vec<String> {
                features.iter().map(|feature| feature.name.clone()).collect()
            };
            insert(&mut gates, &names(&features.enabled), true);
            insert(&mut gates, &names(&features.disabled), false);
        } else if let Some(custom) = &gate.spec.custom_no_upgrade {
            insert(&mut gates, &custom.enabled, true);
            insert(&mut gates, &custom.disabled, false);
        }
        Some(gates)
    }

    /// Returns the frequency of the latency profile, which applies to the pool `worker` only.
    pub(super) fn latency_frequency(&self) -> Option<&'static str> {
        if self.pool_name() == "worker" { self.latency.frequency() } else { None }
    }
}

fn insert(gates: &mut Map<String, Value>, names: &[String], on: bool) {
    gates.extend(names.iter().map(|name| (name.clone(), on.into())));
}

/// Sets the TLS settings of a profile.
pub(super) fn set_tls(configuration: &mut Configuration, settings: &tls::TlsSettings) {
    configuration.set("tlsMinVersion", settings.min_version.clone());
    configuration.set("tlsCipherSuites", settings.ciphers.clone());
}
