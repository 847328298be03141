//! Provisions a bare machine as the installer's first boot does.

mod complete;

use std::collections::BTreeMap;

use mco_api::{MachineConfig, RenderedName, annotation};
use mco_core::{
    machine::Machine,
    plan::{self, ApplyMode, Circumstances, default_policies},
};
use mco_host::{Host, System};

pub(crate) use self::complete::present;
pub use self::complete::{Completed, FirstBootError, complete};

use crate::{
    ParsedConfig, disk,
    execute::{self, ExecuteError},
};

/// Applies a config to a machine that has none, and writes the annotations that the node gets when
/// it joins.
///
/// The machine must reboot to run the config's operating system. A machine that has a config is
/// left unchanged.
pub fn provision<S: System>(
    host: &mut Host<S>,
    config: &MachineConfig,
) -> Result<(), ExecuteError> {
    if disk::current_config(&host.root)?.is_some() {
        return Ok(());
    }
    let target = ParsedConfig::read(config.clone())?;
    let name = config.metadata.name.clone().unwrap_or_default();
    let blank = Machine::blank();
    let at = Circumstances { mode: ApplyMode::FirstBoot, ..Circumstances::default() };
    let plan = plan::node(&blank, &target.machine, &default_policies(), &at)
        .map_err(|refusal| ExecuteError::Undone(refusal.to_string()))?;
    if let Ok(name) = name.parse::<RenderedName>() {
        let mut annotations = BTreeMap::new();
        annotation::CURRENT_CONFIG.set(&mut annotations, &name);
        annotation::DESIRED_CONFIG.set(&mut annotations, &name);
        annotation::STATE.set(&mut annotations, &annotation::DaemonState::Done);
        let bytes = serde_json::to_vec(&annotations).expect("text is JSON");
        host.root.write(disk::INITIAL_ANNOTATIONS, &bytes, 0o644).map_err(disk::DiskError::from)?;
    }
    let bare = ParsedConfig::read(MachineConfig::new(&blank.name, blank.spec))?;
    execute::begin(host, &bare, &target, plan, &mut |_| {})?;
    Ok(())
}

/// Stages the OS image of the config that a machine joins with, if another one is booted; returns
/// true if the machine must reboot into it.
pub fn pivot<S: System>(host: &mut Host<S>, machine: &Machine) -> Result<bool, ExecuteError> {
    let wanted = machine.spec.os_image_url.as_str();
    let booted = host.system.facts()?.booted_image.unwrap_or_default();
    if wanted.is_empty() || booted.is_empty() || booted == wanted {
        return Ok(false);
    }
    tracing::info!("Bootstrap pivot required to: {wanted}");
    host.system.stage_os(wanted)?;
    Ok(true)
}
