//! Lists the effects of a takeover before it is ordered: what it changes, what it keeps, and what
//! forbids it.
//!
//! A takeover is harmless if the same objects give the same names: then nothing is rendered anew and
//! no node is updated. The check computes all that the controller would generate and render, and
//! compares it with the objects of the cluster.

mod names;
mod surroundings;
#[cfg(test)]
mod tests;

use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Node},
    jiff::Timestamp,
};
use mco_api::{
    ContainerRuntimeConfig, ControllerConfig, KubeletConfig, MachineConfig, MachineConfigPool,
    MachineConfiguration, OSImageStream, annotation, label,
};
use serde::Serialize;

use super::{AdoptedBuild, BASE_CONFIGS, Facts, Order, Runner, admit, runner};
use crate::{cluster_settings::ClusterSettings, render::Build};

/// The objects of a cluster that a takeover depends on.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The ControllerConfig.
    pub controller_config: Option<ControllerConfig>,
    /// All pools.
    pub pools: Vec<MachineConfigPool>,
    /// All MachineConfigs.
    pub configs: Vec<MachineConfig>,
    /// All nodes.
    pub nodes: Vec<Node>,
    /// All KubeletConfigs.
    pub kubelet_configs: Vec<KubeletConfig>,
    /// All ContainerRuntimeConfigs.
    pub runtime_configs: Vec<ContainerRuntimeConfig>,
    /// Settings of the cluster.
    pub settings: ClusterSettings,
    /// The OSImageStream of the cluster.
    pub streams: Option<OSImageStream>,
    /// The MachineConfiguration of the cluster.
    pub machine_configuration: Option<MachineConfiguration>,
    /// Kind and name of objects that need a controller which `mco` does not have.
    pub unsupported: Vec<(String, String)>,
    /// Leases in the namespace of the operator.
    pub leases: Vec<Lease>,
    /// Workloads in the namespace of the operator.
    pub workloads: Vec<Workload>,
    /// `CustomResourceDefinitions` of the release.
    pub definitions: Vec<Definition>,
    /// Secrets of the config server.
    pub certificates: Vec<Certificate>,
}

/// A Deployment or DaemonSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// Relation to the operator that installs the release.
    pub management: Management,
    /// Number of pods that it is to have.
    pub replicas: i32,
}

/// The relation of an object to the operator that installs the release of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Management {
    /// The object is part of the release, and restored if it is changed.
    Release,
    /// The object is part of the release, and left alone by an override of the `ClusterVersion`.
    Overridden,
    /// The object is not part of the release.
    Other,
}

/// A `CustomResourceDefinition` that another owner installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Name of the definition.
    pub name: String,
    /// Members that its schema lacks, or the reason why its kind cannot be used.
    pub usable: Result<Vec<String>, String>,
}

/// A Secret of the config server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Name of the Secret.
    pub name: String,
    /// Issuer of the certificate.
    pub issuer: String,
    /// End of its validity.
    pub not_after: Timestamp,
    /// Use of the key in the Secret.
    pub key: KeyUse,
}

/// The use that the controller has for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyUse {
    /// The controller can sign with it.
    Usable,
    /// The controller cannot read it.
    Unreadable,
}

/// The effect that a finding has on a takeover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// A takeover would do harm.
    Forbids,
    /// A takeover changes something.
    Changes,
    /// A takeover leaves something as it is.
    Keeps,
}

/// A finding of the check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Effect on a takeover.
    pub effect: Effect,
    /// Kind and name of the object, as `Kind/name`.
    pub object: String,
    /// One sentence.
    pub text: String,
    /// The way out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// The result of the check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Build that a takeover adopts, as `VERSION-HASH`.
    pub build: Option<String>,
    /// Findings, those that forbid a takeover first.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Returns the number of findings with this effect.
    #[must_use]
    pub fn count(&self, effect: Effect) -> usize {
        self.findings.iter().filter(|finding| finding.effect == effect).count()
    }
}

/// Findings that are being collected.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, effect: Effect, object: impl Into<String>, text: impl Into<String>) {
        let (object, text) = (object.into(), text.into());
        self.0.push(Finding { effect, object, text, fix: None });
    }

    fn fix(&mut self, fix: impl Into<String>) {
        if let Some(last) = self.0.last_mut() {
            last.fix = Some(fix.into());
        }
    }
}

/// Checks what a takeover with the build `adopt` would change; `own` is the build of this program.
#[must_use]
pub fn check(snapshot: &Snapshot, own: &Build, adopt: &AdoptedBuild, now: Timestamp) -> Report {
    let mut findings = Findings::default();
    let base: Vec<_> = snapshot
        .configs
        .iter()
        .filter(|config| {
            config.metadata.name.as_deref().is_some_and(|it| BASE_CONFIGS.contains(&it))
        })
        .map(|config| config.metadata.clone())
        .collect();
    let controller_config = snapshot.controller_config.as_ref();
    let facts = Facts {
        controller_config: controller_config.map(|config| &config.metadata),
        base_configs: &base,
    };
    let object = format!("ControllerConfig/{}", label::CONTROLLER_CONFIG);
    match runner(facts, own) {
        Runner::Ours => {
            findings.add(Effect::Keeps, object, "no other operator runs the cluster");
            return Report { build: None, findings: findings.0 };
        }
        Runner::Another(evidence) => findings.add(Effect::Keeps, &object, evidence.to_string()),
    }
    let build = match admit(facts, own, &Order::TakeOver(adopt.clone())) {
        Ok(permit) => Some(permit.build),
        Err(refusal) => {
            findings.add(Effect::Forbids, object, refusal.to_string());
            None
        }
    };
    if let (Some(build), Some(controller_config)) = (&build, controller_config) {
        check_build(snapshot, controller_config, build, &mut findings);
        names::check(snapshot, controller_config, build, &mut findings);
    }
    surroundings::check(snapshot, now, &mut findings);
    findings.0.sort_by_key(|finding| finding.effect);
    let build = build.map(|build| format!("{}-{}", build.version, build.hash));
    Report { build, findings: findings.0 }
}

/// Checks that all generated objects name the adopted build.
fn check_build(
    snapshot: &Snapshot,
    controller_config: &ControllerConfig,
    build: &Build,
    findings: &mut Findings,
) {
    let value = |annotations: Option<&std::collections::BTreeMap<String, String>>, key: &str| {
        annotations.and_then(|found| found.get(key)).cloned().unwrap_or_default()
    };
    let key = annotation::GENERATED_BY_VERSION.name();
    let version = value(controller_config.metadata.annotations.as_ref(), key);
    if version != build.version {
        let object = format!("ControllerConfig/{}", label::CONTROLLER_CONFIG);
        let text =
            format!("it is of version {version}, not {}: no pool is rendered", build.version);
        findings.add(Effect::Forbids, object, text);
        findings.fix("adopt the build of the cluster with --adopt-build=auto");
    }
    let key = annotation::GENERATED_BY_CONTROLLER_VERSION.name();
    for config in &snapshot.configs {
        let name = config.metadata.name.as_deref().unwrap_or_default();
        let hash = value(config.metadata.annotations.as_ref(), key);
        let is_input = !name.starts_with(mco_api::name::RENDERED_PREFIX);
        if is_input && !hash.is_empty() && hash != build.hash {
            let text = format!("it was generated by build {hash}, not {}", build.hash);
            findings.add(Effect::Forbids, format!("MachineConfig/{name}"), text);
            findings.fix("wait until the other operator has generated it anew, then check again");
        }
    }
}
