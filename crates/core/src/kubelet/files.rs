//! The files of a KubeletConfig for one pool.

use mco_api::{KubeletConfig, kubelet_config::KubeletConfigSpec};
use serde_json::Value;

use super::{
    configuration::Configuration,
    consistency, drop_in,
    inputs::{Inputs, delivery, set_tls},
    refusal::{self, Delivery, Refusal},
    tls,
};
use crate::generated::GeneratedFile;

/// Path of the kubelet's configuration.
pub const CONFIGURATION: &str = "/etc/kubernetes/kubelet.conf";

/// Path of the drop-in of the kubelet's unit that sets the log level.
pub const LOGGING: &str = "/etc/systemd/system/kubelet.service.d/20-logging.conf";

/// Path of the settings of the service that reserves resources for the system.
pub const NODE_SIZING: &str = "/etc/node-sizing-enabled.env";

const POD_ENFORCEMENT: &str = "pods";
const SYSTEM_ENFORCEMENTS: [&str; 2] = ["system-reserved", "system-reserved-compressible"];

/// Returns the files of a KubeletConfig for one pool, or the reason why it is refused. `suffix` is
/// that of the generated MachineConfig's name.
pub fn generate(
    config: &KubeletConfig,
    inputs: &Inputs<'_>,
    suffix: &str,
) -> Result<Vec<GeneratedFile>, Refusal> {
    refusal::validate(config)?;
    refusal::check_static_pod_path(config, inputs.pool)?;
    let user = refusal::settings(&config.spec)?;
    refusal::check(&user, delivery(inputs.base))?;
    let parts = parts(config, inputs)?;
    let faults = consistency::faults(&parts.configuration, &user);
    if !faults.is_empty() {
        return Err(Refusal::Faults(faults));
    }
    parts.files(suffix)
}

/// Returns the files of a KubeletConfig that passed all checks, or that would have failed one.
pub fn merge(
    config: &KubeletConfig,
    inputs: &Inputs<'_>,
    suffix: &str,
) -> Result<Vec<GeneratedFile>, Refusal> {
    parts(config, inputs)?.files(suffix)
}

/// A configuration, and the files beside it.
struct Parts {
    configuration: Configuration,
    delivery: Delivery,
    others: Vec<GeneratedFile>,
}

impl Parts {
    fn files(self, suffix: &str) -> Result<Vec<GeneratedFile>, Refusal> {
        match self.delivery {
            Delivery::WholeFile => {
                let text = self.configuration.print().map_err(Refusal::Text)?;
                let mut files = self.others;
                files.push(GeneratedFile::new(CONFIGURATION, text));
                Ok(files)
            }
            Delivery::DropIn => {
                let number = if suffix.is_empty() { "0" } else { suffix };
                drop_in::fragment(&format!("99-mco-{number}.conf"), &self.configuration)
            }
        }
    }
}

fn parts(config: &KubeletConfig, inputs: &Inputs<'_>) -> Result<Parts, Refusal> {
    let user = refusal::settings(&config.spec)?;
    if let Some(base) = inputs.configuration()? {
        return whole(&config.spec, user, base);
    }
    let configuration = drop_in::configuration(&config.spec, user, inputs.pool_name())?;
    Ok(Parts { configuration, delivery: Delivery::DropIn, others: Vec::new() })
}

/// Merges settings over a base. The files are in the reference's order.
fn whole(
    spec: &KubeletConfigSpec,
    mut user: Configuration,
    mut base: Configuration,
) -> Result<Parts, Refusal> {
    if let Some(profile) = &spec.tls_security_profile {
        set_tls(&mut base, &tls::settings(Some(profile)));
    }
    let reserved = Reserved::take(&mut user);
    // Features come from the FeatureGate only.
    user.unset("featureGates");
    // Compat: of all booleans, only this one can be set to false over a base that has true.
    if user.get("protectKernelDefaults") == Some(&Value::Bool(false)) {
        base.unset("protectKernelDefaults");
    }
    base.merge(&user);
    settle_cgroups(&mut base, &user);
    if let Some((reserved, system)) = refusal::differing_cgroups(&base) {
        return Err(Refusal::CgroupsDifferInMerge { reserved, system });
    }
    let mut others = Vec::new();
    others.extend(reserved.file(spec.auto_sizing_reserved));
    if let Some(level) = spec.log_level {
        let text = format!("[Service]\nEnvironment=\"KUBELET_LOG_LEVEL={level}\"\n");
        others.push(GeneratedFile::new(LOGGING, text));
    }
    Ok(Parts { configuration: base, delivery: Delivery::WholeFile, others })
}

/// Drops the cgroup of system daemons where it is not enforced, or cannot be together with CPUs
/// that are reserved for the system.
fn settle_cgroups(merged: &mut Configuration, user: &Configuration) {
    let wanted = user.list("enforceNodeAllocatable");
    let enforced = |list: &[&str]| list.iter().any(|item| SYSTEM_ENFORCEMENTS.contains(item));
    if !wanted.is_empty() && !enforced(&wanted) && user.text("systemReservedCgroup").is_empty() {
        merged.unset("systemReservedCgroup");
    }
    if merged.text("reservedSystemCPUs").is_empty() {
        return;
    }
    merged.unset("systemReservedCgroup");
    let list = merged.list("enforceNodeAllocatable").into_iter();
    let mut kept: Vec<&str> = list.filter(|item| !SYSTEM_ENFORCEMENTS.contains(item)).collect();
    if !kept.contains(&POD_ENFORCEMENT) {
        kept.insert(0, POD_ENFORCEMENT);
    }
    let kept: Vec<String> = kept.into_iter().map(str::to_owned).collect();
    merged.set("enforceNodeAllocatable", kept);
}

/// Reservations for the system that the service of node sizing passes to the kubelet.
#[derive(Default)]
struct Reserved {
    memory: Option<String>,
    cpu: Option<String>,
    storage: Option<String>,
}

impl Reserved {
    /// Takes the reservations out of the settings.
    fn take(user: &mut Configuration) -> Self {
        let mut take = |resource: &str| user.take_entry("systemReserved", resource);
        Self { memory: take("memory"), cpu: take("cpu"), storage: take("ephemeral-storage") }
    }

    /// Returns the file of the service, if there is anything to set.
    fn file(self, auto_sizing: Option<bool>) -> Option<GeneratedFile> {
        let given = self.memory.is_some() || self.cpu.is_some() || self.storage.is_some();
        let enabled = if given { false } else { auto_sizing? };
        let or = |value: Option<String>, default: &str| {
            value.filter(|value| !value.is_empty()).unwrap_or_else(|| default.to_owned())
        };
        let text = format!(
            "NODE_SIZING_ENABLED={enabled}\nSYSTEM_RESERVED_MEMORY={}\nSYSTEM_RESERVED_CPU={}\n\
             SYSTEM_RESERVED_ES={}\n",
            or(self.memory, "1Gi"),
            or(self.cpu, "500m"),
            or(self.storage, "1Gi"),
        );
        Some(GeneratedFile::new(NODE_SIZING, text))
    }
}
