//! Completes the installation of a machine before its kubelet starts: the operating system, kernel
//! arguments, kernel and extensions that Ignition cannot set.
//!
//! Compat: file names, the comparison and the texts are the reference's (`pkg/daemon/daemon.go`,
//! `RunFirstbootCompleteMachineconfig`). Different: if the complete config is on the disk, it is
//! recorded instead of the one without files, so that its files are not forgotten later.

use mco_api::MachineConfig;
use mco_core::{
    machine::Machine,
    plan::{self, ApplyMode, Circumstances, default_policies},
};
use mco_host::{Host, Restored, RootError, System, SystemError, os};
use tracing::info;

use crate::{
    ParsedConfig,
    disk::{self, DiskError},
    execute::{self, ExecuteError},
    ledger,
};

/// The result of completing an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completed {
    /// There is no config to complete.
    Nothing,
    /// The machine already matches this config and needs no reboot.
    Matches(String),
    /// The machine reboots into this config.
    Rebooting(String),
}

/// A failed completion.
#[derive(Debug, thiserror::Error)]
pub enum FirstBootError {
    /// The file is no MachineConfig.
    #[error("failed to parse {path}")]
    Parse {
        /// Path of the file.
        path: String,
        /// The parse error.
        source: serde_json::Error,
    },
    /// The config cannot be planned.
    #[error(transparent)]
    Refused(#[from] plan::Refusal),
    /// The config could not be applied.
    #[error(transparent)]
    Execute(#[from] ExecuteError),
    /// The daemon's own files cannot be read or written.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A call to the operating system failed.
    #[error(transparent)]
    System(#[from] SystemError),
    /// A file cannot be read or written.
    #[error(transparent)]
    Root(#[from] RootError),
}

/// Completes the installation with the config in `path`.
pub fn complete<S: System>(host: &mut Host<S>, path: &str) -> Result<Completed, FirstBootError> {
    let Some(bytes) = host.root.read(path)? else { return Ok(Completed::Nothing) };
    let target: MachineConfig = serde_json::from_slice(&bytes)
        .map_err(|source| FirstBootError::Parse { path: path.to_owned(), source })?;
    let name = target.metadata.name.clone().unwrap_or_default();
    // An interrupted update must not be mixed with this one.
    if let Some((update, progress)) = ledger::open(&host.root).map_err(ExecuteError::from)?
        && execute::roll_back(host, &update, &progress)? == Restored::NeedsReboot
    {
        // The machine has booted a part of it. Completed from there, it would go back later.
        execute::reboot_because(host, &format!("Going back to complete {name} again"))?;
        return Ok(Completed::Rebooting(name));
    }
    let source = ParsedConfig::read(present(host, &target)?)?;
    let target = ParsedConfig::read(target)?;
    let (from, to) = (&source.machine, &target.machine);
    let at = Circumstances { mode: ApplyMode::FirstBoot, ..Circumstances::default() };
    let plan = plan::node(from, to, &default_policies(), &at)?;
    if plan.diff.is_empty() {
        info!("No changes from {} to {name}", from.name);
        info!("skipping reboot since no changes were detected from {} to {name}", from.name);
        // Left by an attempt that ended before it recorded the complete config.
        if disk::current_name(&host.root)?.as_ref() == Some(&name) {
            record_installed(host, &target)?;
        }
        host.root.remove(path)?;
        return Ok(Completed::Matches(name));
    }
    info!("Changes detected from {} to {name}: {}", from.name, plan.diff.system().join(", "));
    execute::begin(host, &source, &target, plan, &mut |_| {})?;
    record_installed(host, &target)?;
    let done = format!("{path}.bak");
    host.root.rename(path, &done)?;
    let why = format!("Completing firstboot provisioning to {name}");
    if let Err(error) = execute::reboot_because(host, &why) {
        // Without the reboot nothing is complete, so that a retry must find the file.
        host.root.rename(&done, path)?;
        return Err(error.into());
    }
    Ok(Completed::Rebooting(name))
}

/// Records the complete config instead of the one without files.
fn record_installed<S: System>(host: &Host<S>, target: &ParsedConfig) -> Result<(), DiskError> {
    let ParsedConfig { object, machine } = target;
    match disk::installed_config(&host.root)? {
        Some(whole) if whole.metadata.name == object.metadata.name => {
            disk::record_config(&host.root, &whole)
        }
        // The daemon records the cluster's config once it has verified the disk against it.
        _ if object.spec.config.is_none() || machine.config == Machine::blank().config => {
            disk::forget_config(&host.root)
        }
        _ => Ok(()),
    }
}

/// Returns the parts of the config that the machine already has.
pub(crate) fn present<S: System>(
    host: &Host<S>,
    target: &MachineConfig,
) -> Result<MachineConfig, FirstBootError> {
    let facts = host.system.facts()?;
    let mut spec = Machine::blank().spec;
    spec.os_image_url = facts.booted_image.unwrap_or_default();
    spec.fips = facts.kernel_fips.unwrap_or(target.spec.fips);
    // Compat: in the order of the command line, and an entry of several words never matches.
    let wanted = &target.spec.kernel_arguments;
    let booted = os::words(&[facts.kernel_arguments.join(" ")]);
    spec.kernel_arguments = booted.into_iter().filter(|word| wanted.contains(word)).collect();
    Ok(MachineConfig::new(&Machine::blank().name, spec))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mco_host::{
        Root, SimulatedSystem,
        fault::{Fault, Faults},
    };
    use serde_json::json;

    use super::*;
    use crate::disk::ENCAPSULATED;

    const DONE: &str = "/etc/ignition-machine-config-encapsulated.json.bak";

    fn machine() -> (tempfile::TempDir, Host<SimulatedSystem>) {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        SimulatedSystem::write_base_files(&root).unwrap();
        let mut system = SimulatedSystem::open(&root).unwrap();
        system.stage_os("image-1").unwrap();
        system.stage_kernel_arguments(&[], &["quiet".to_owned()]).unwrap();
        system.boot().unwrap();
        (folder, Host { root, system })
    }

    fn lay_down(host: &Host<SimulatedSystem>, path: &str, spec: &serde_json::Value) {
        let config = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": "rendered-worker-1"}, "spec": spec
        });
        host.root.write(path, config.to_string().as_bytes(), 0o600).unwrap();
    }

    // covers: C18
    #[test]
    fn a_machine_that_has_everything_does_not_reboot() {
        let (_folder, mut host) = machine();
        assert_eq!(complete(&mut host, ENCAPSULATED).unwrap(), Completed::Nothing);
        lay_down(
            &host,
            ENCAPSULATED,
            &json!({"osImageURL": "image-1", "kernelArguments": ["quiet"]}),
        );
        let done = complete(&mut host, ENCAPSULATED).unwrap();
        assert_eq!(done, Completed::Matches("rendered-worker-1".to_owned()));
        assert!(!host.root.exists(ENCAPSULATED).unwrap());
        assert!(!host.system.wants_reboot());
        // With another file than the default, that file is removed.
        lay_down(
            &host,
            "/etc/mco/machineconfig-revert.json",
            &json!({"osImageURL": "image-1", "kernelArguments": ["quiet"]}),
        );
        complete(&mut host, "/etc/mco/machineconfig-revert.json").unwrap();
        assert!(!host.root.exists("/etc/mco/machineconfig-revert.json").unwrap());
    }

    // covers: C19
    #[test]
    fn the_operating_system_is_complete_before_the_kubelet_starts() {
        let (_folder, mut host) = machine();
        let spec = json!({
            "osImageURL": "image-2", "kernelArguments": ["quiet", "nosmt"],
            "kernelType": "realtime", "extensions": ["usbguard"]
        });
        lay_down(&host, ENCAPSULATED, &spec);
        let mut whole = spec.clone();
        whole["config"] = json!({
            "ignition": {"version": "3.5.0"},
            "storage": {"files": [{"path": "/etc/a", "contents": {"source": "data:,1"}}]}
        });
        lay_down(&host, disk::INSTALLED, &whole);
        let done = complete(&mut host, ENCAPSULATED).unwrap();
        assert_eq!(done, Completed::Rebooting("rendered-worker-1".to_owned()));
        assert!(host.root.exists(DONE).unwrap() && !host.root.exists(ENCAPSULATED).unwrap());
        let calls = host.system.call_log().calls().split_off(2).join("; ");
        assert_eq!(
            calls,
            "stage-os image-2; stage-kargs -[quiet] +[quiet nosmt]; stage-kernel realtime; \
             stage-extensions -[] +[usbguard]; reboot"
        );
        host.system.boot().unwrap();
        let facts = host.system.facts().unwrap();
        assert_eq!(facts.booted_image.as_deref(), Some("image-2"));
        assert_eq!(facts.kernel_arguments, ["quiet", "nosmt"]);
        let record = disk::current_config(&host.root).unwrap().unwrap();
        assert!(record.spec.config.is_some(), "recorded with its files");
    }

    // covers: C20
    #[test]
    fn a_failed_completion_is_rolled_back_and_can_be_retried() {
        let (_folder, mut host) = machine();
        lay_down(&host, ENCAPSULATED, &json!({"osImageURL": "image-2"}));
        for call in ["stage-os image-2", "reboot"] {
            host.system.call_log().fail(call);
            assert!(complete(&mut host, ENCAPSULATED).is_err());
            assert!(host.root.exists(ENCAPSULATED).unwrap(), "{call}: a retry must find it");
            host.system.call_log().succeed(call);
        }
        let done = complete(&mut host, ENCAPSULATED).unwrap();
        assert_eq!(done, Completed::Rebooting("rendered-worker-1".to_owned()));
        assert_eq!(disk::current_config(&host.root).unwrap(), None, "it had no files to record");
        host.root.write(ENCAPSULATED, b"{", 0o600).unwrap();
        let error = complete(&mut host, ENCAPSULATED).unwrap_err();
        assert_eq!(error.to_string(), format!("failed to parse {ENCAPSULATED}"));
    }

    // covers: C20
    #[test]
    fn a_machine_that_crashes_at_any_change_and_reboots_ends_with_its_system() {
        for number in 1.. {
            let (folder, Host { root, system }) = machine();
            let faults = Arc::new(Faults::at(number, Fault::Crash));
            let mut host = Host { root: root.with_faults(Arc::clone(&faults)), system };
            let plain = Root::open(folder.path()).unwrap();
            let config = json!({"apiVersion": "machineconfiguration.openshift.io/v1",
                "kind": "MachineConfig", "metadata": {"name": "rendered-worker-1"},
                "spec": {"osImageURL": "image-2"}});
            plain.write(ENCAPSULATED, config.to_string().as_bytes(), 0o600).unwrap();
            drop(complete(&mut host, ENCAPSULATED));
            let Some(failed) = faults.failed() else {
                assert!(number > 10, "{number} changes");
                return;
            };
            // The administrator reboots the machine, which boots what is staged.
            let system = SimulatedSystem::open(&plain).unwrap();
            let mut host = Host { root: plain, system };
            host.system.boot().unwrap();
            let mut attempts = 0;
            while host.root.exists(ENCAPSULATED).unwrap() {
                attempts += 1;
                assert!(attempts < 5, "{failed}");
                complete(&mut host, ENCAPSULATED).unwrap();
                if host.system.wants_reboot() {
                    host.system.boot().unwrap();
                }
            }
            let record = disk::current_name(&host.root).unwrap();
            assert_eq!(record, None, "{failed}: a config without files is on record");
            for _ in 0..2 {
                let facts = host.system.facts().unwrap();
                assert_eq!(facts.booted_image.as_deref(), Some("image-2"), "{failed}");
                host.system.boot().unwrap();
            }
        }
    }

    // covers: C25
    #[test]
    fn a_machine_that_joins_with_another_image_pivots() {
        let (_folder, mut host) = machine();
        let mut config = Machine::blank();
        config.spec.os_image_url = "image-1".to_owned();
        assert!(!super::super::pivot(&mut host, &config).unwrap());
        config.spec.os_image_url = "image-2".to_owned();
        let before = host.system.staged().unwrap().unwrap();
        for _ in 0..2 {
            assert!(super::super::pivot(&mut host, &config).unwrap(), "until it reboots");
        }
        // The staged deployment is lost.
        host.system.restore_staged(&before).unwrap();
        host.system.boot().unwrap();
        let error = super::super::pivot(&mut host, &config).unwrap_err().to_string();
        assert!(
            error.starts_with("the machine rebooted into image-2 and booted image-1"),
            "{error}"
        );
        host.system.stage_os("image-2").unwrap();
        host.system.boot().unwrap();
        assert!(!super::super::pivot(&mut host, &config).unwrap());
        assert!(!host.root.exists(super::super::PIVOT).unwrap());
    }
}
