//! Provisions a bare machine as the installer's first boot does.

mod complete;

use std::collections::BTreeMap;

use mco_api::{MachineConfig, RenderedName, annotation};
use mco_core::{
    machine::Machine,
    plan::{self, ApplyMode, Circumstances, default_policies},
};
use mco_host::{Host, HostFacts, System, SystemError};
use serde::{Deserialize, Serialize};

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

/// Record of the image that a machine was told to reboot into before it joins.
pub(crate) const PIVOT: &str = "/var/lib/machine-config-daemon/mco-pivot.json";

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pivot {
    image: String,
    boot_id: String,
}

/// Stages the OS image of the config that a machine joins with, if another one is booted; returns
/// true if the machine must reboot into it.
///
/// Fails if the machine rebooted for this image before and booted another: it would reboot for ever.
pub fn pivot<S: System>(host: &mut Host<S>, machine: &Machine) -> Result<bool, ExecuteError> {
    let image = machine.spec.os_image_url.clone();
    let HostFacts { boot_id, booted_image, .. } = host.system.facts()?;
    let booted = booted_image.unwrap_or_default();
    if image.is_empty() || booted.is_empty() || booted == image {
        host.root.remove(PIVOT).map_err(disk::DiskError::from)?;
        return Ok(false);
    }
    let before: Option<Pivot> = disk::undamaged(disk::parsed(&host.root, PIVOT))?;
    if before.is_some_and(|before| before.image == image && before.boot_id != boot_id) {
        let what = format!(
            "the machine rebooted into {image} and booted {booted}: look at its boot loader, and run \
             `mco node force` to stage the image again"
        );
        return Err(SystemError::Os { what }.into());
    }
    tracing::info!("Bootstrap pivot required to: {image}");
    host.system.stage_os(&image)?;
    disk::write(&host.root, PIVOT, &Pivot { image, boot_id })?;
    Ok(true)
}
