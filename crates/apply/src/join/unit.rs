//! The unit that continues a join after a boot, and the hold on the kubelet until the config is
//! complete.

use mco_host::{Host, Root, System, unit};

use super::{
    JoinError, JoinRecord, JoinStage,
    record::{DOCUMENT, FOLDER, save},
};
use crate::program::{PROGRAM, Program};

/// Name of the unit.
pub const UNIT: &str = "mco-join.service";
const UNIT_PATH: &str = "/etc/systemd/system/mco-join.service";
const PARENT: &str = "/var/lib/machine-config-daemon";
/// Directory of the program.
const PROGRAM_FOLDER: &str = "/var/lib/machine-config-daemon/join/program";
/// Exists while the kubelet must not start.
const HOLD: &str = "/var/lib/machine-config-daemon/join/hold";
const HOLD_FOLDER: &str = "/etc/systemd/system/kubelet.service.d";
const HOLD_DROPIN: &str = "/etc/systemd/system/kubelet.service.d/00-mco-join.conf";

/// Exit code of a join that the config server refused.
pub const REFUSED: u8 = 3;

fn text(program: &Program) -> String {
    format!(
        "\
[Unit]
Description=Continue to join this machine to its cluster
Wants=network-online.target
After=network-online.target containerd.service crio.service
Before=kubelet.service
StartLimitIntervalSec=0
RequiresMountsFor={FOLDER}
ConditionPathExists={PROGRAM_FOLDER}/{PROGRAM}

[Service]
Type=exec
ExecStart={}
Restart=on-failure
RestartSec=10
# The config server refused the machine, and would again.
RestartPreventExitStatus={REFUSED}

[Install]
WantedBy=multi-user.target
",
        program.command(PROGRAM_FOLDER, "join --continue")
    )
}

/// Installs the unit, which starts at the next boot only.
pub fn install(root: &Root, program: &Program) -> Result<(), JoinError> {
    program.install(root, PROGRAM_FOLDER)?;
    let text = text(program);
    if root.read(UNIT_PATH)?.as_deref() != Some(text.as_bytes()) {
        root.write(UNIT_PATH, text.as_bytes(), 0o644)?;
    }
    Ok(unit::enable(root, UNIT)?)
}

/// Keeps the kubelet from starting, also at the next boot.
pub fn hold<S: System>(host: &mut Host<S>) -> Result<(), JoinError> {
    host.root.write(HOLD, b"", 0o600)?;
    let text = format!("[Unit]\nConditionPathExists=!{HOLD}\n");
    if host.root.read(HOLD_DROPIN)?.as_deref() != Some(text.as_bytes()) {
        host.root.write(HOLD_DROPIN, text.as_bytes(), 0o644)?;
        host.system.reload_systemd()?;
    }
    Ok(())
}

/// Lets the kubelet start.
pub fn release(root: &Root) -> Result<(), JoinError> {
    // The drop-in first: without it the marker has no effect, whenever the power fails.
    root.remove(HOLD_DROPIN)?;
    root.remove_empty_directory(HOLD_FOLDER)?;
    root.remove(HOLD)?;
    Ok(())
}

/// Removes all but the record of a machine that has joined, or all of a join that was cancelled.
pub fn finish<S: System>(host: &mut Host<S>, joined: Option<&JoinRecord>) -> Result<(), JoinError> {
    let root = &host.root;
    release(root)?;
    if let Some(record) = joined {
        let record = JoinRecord { stage: JoinStage::Joined, token: None, ..record.clone() };
        save(root, &record)?;
    }
    if root.exists(UNIT_PATH)? {
        // Disabled first: a crash in between must not leave a dangling link.
        unit::disable(root, UNIT)?;
        root.remove(UNIT_PATH)?;
    }
    root.remove(DOCUMENT)?;
    if root.exists(PROGRAM_FOLDER)? {
        root.remove_tree(PROGRAM_FOLDER)?;
    }
    if joined.is_none() && root.exists(FOLDER)? {
        root.remove_tree(FOLDER)?;
        root.remove_empty_directory(PARENT)?;
    }
    Ok(host.system.reload_systemd()?)
}
