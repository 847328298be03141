//! A machine with a running systemd.
//!
//! Files are changed in the tree; units are managed by systemd over the machine's own message bus.
//! Commands of the machine run as transient units of its systemd, not as child processes: with the
//! machine's own libraries, in its own namespaces, with an entry in its own journal, and they
//! outlive a daemon that is killed.

mod bus;
mod command;

use std::{path::Path, sync::OnceLock};

use mco_core::machine::{UNIT_TYPES, is_one_field};
use tracing::info;

use self::bus::{Bus, BusError, Output, TransientUnit};
use crate::{
    account, kubelet,
    os::{Backend, CommandRunner, OsRelease, extension, finalize, loader, nics, repository, trust},
    package,
    root::{Root, RootError},
    system::{CheckResult, HostFacts, MachineRole, Packaged, Restored, System, SystemError},
    tpm, unit,
};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const KERNEL_ARGUMENTS: &str = "/proc/cmdline";
const KERNEL_FIPS: &str = "/proc/sys/crypto/fips_enabled";
const UNIT_EXISTS: &str = "org.freedesktop.systemd1.UnitExists";

/// Directory of the administrator's health checks: programs that exit with 0 if the machine is
/// healthy.
pub const CHECKS: &str = "/etc/machine-config-daemon/checks.d";
/// Timeout of a check in seconds.
const CHECK_LIMIT: &str = "60";

/// A machine with a running systemd, below a directory.
#[derive(Debug)]
pub struct SystemdSystem {
    root: Root,
    bus: Bus,
    /// True if unit files may have changed since systemd last read them.
    stale: bool,
    os: Backend,
    image: OnceLock<Option<String>>,
    /// The booted deployment.
    booted: OnceLock<Option<String>>,
    /// Set once no command of an earlier process runs.
    orphans_awaited: OnceLock<()>,
}

impl SystemdSystem {
    /// Returns true if the machine below `root` runs systemd.
    pub fn runs_in(root: &Root) -> Result<bool, RootError> {
        // The check of sd_booted(3).
        Ok(root.stat("/run/systemd/system")?.is_some_and(|found| found.is_directory()))
    }

    /// Opens the machine whose root is mounted at `path`.
    pub fn open(path: &Path) -> Result<Self, SystemError> {
        let root = Root::open(path)?;
        let bus = Bus::new(path).map_err(|error| failed("start", &error))?;
        // An earlier process may have crashed between a change and the reload.
        let os = Backend::detect(&root)?;
        let (image, booted, orphans_awaited) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Ok(Self { root, bus, stale: true, os, image, booted, orphans_awaited })
    }

    /// Cached: it changes with a reboot only.
    fn booted_image(&self) -> Result<Option<String>, SystemError> {
        if let Some(image) = self.image.get() {
            return Ok(image.clone());
        }
        let image = self.os.booted_image(self)?;
        Ok(self.image.get_or_init(|| image).clone())
    }

    /// Keeps the names of network interfaces across a new major version of the operating system.
    pub fn persist_nics(&self) -> Result<(), SystemError> {
        nics::persist(&self.root, self)
    }

    /// Returns the SHA-256 of the TPM's public endorsement key in hexadecimal; none if the machine has no
    /// TPM or no tpm2-tools.
    pub fn endorsement_key(&self) -> Result<Option<String>, SystemError> {
        tpm::endorsement_key(&self.root, self)
    }

    /// Returns the last lines of the journal of these units, oldest first.
    pub fn journal(&self, units: &[&str], lines: u32) -> Result<Vec<String>, SystemError> {
        let lines = lines.to_string();
        let mut command =
            vec!["/usr/bin/journalctl", "--quiet", "--no-pager", "--output=short-iso", "--lines"];
        command.push(&lines);
        for unit in units {
            command.extend(["--unit", unit]);
        }
        Ok(self.command(&command, b"")?.lines().map(str::to_owned).collect())
    }

    fn text(&self, path: &str) -> Result<Option<String>, SystemError> {
        let bytes = self.root.read(path)?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()))
    }

    fn job(&mut self, verb: &str, method: &str, service: &str) -> Result<(), SystemError> {
        if self.stale {
            self.reload_systemd()?;
        }
        let done = self.bus.job(method, &full_name(service));
        done.map_err(|error| failed(&format!("systemctl {verb} {service}"), &error))
    }

    /// Waits for commands that an earlier process started and that outlived it: two of them must not
    /// change the operating system at the same time. Done once, before the first command.
    fn await_orphans(&self, command: &[&str]) -> Result<(), SystemError> {
        if self.orphans_awaited.get().is_some() {
            return Ok(());
        }
        let (pattern, own) = (command::PATTERN, command::process_token());
        let left = self.bus.await_units(pattern, own, command::LONG_LIMIT);
        let left = left.map_err(|error| failed(&command.join(" "), &error))?;
        if !left.is_empty() {
            let what = format!(
                "commands of an earlier process do not end ({}); look at them with systemctl status, \
                 and stop them with systemctl stop",
                left.join(" ")
            );
            return Err(SystemError::Os { what });
        }
        self.orphans_awaited.get_or_init(|| ());
        Ok(())
    }

    fn command(&self, command: &[&str], input: &[u8]) -> Result<String, SystemError> {
        self.await_orphans(command)?;
        let shown = command.join(" ");
        let task = TransientUnit {
            unit: &command::unit_name(command),
            description: &format!("machine-config-daemon: {shown}"),
            command,
            after: &[],
            limit: Some(command::limit(command)),
        };
        info!("Running: {shown}");
        let output = self.bus.run(&task, input).map_err(|error| failed(&shown, &error))?;
        if output.status == 0 {
            return Ok(output.text);
        }
        Err(SystemError::Command { command: shown, fault: failure_text(&output) })
    }
}

impl CommandRunner for SystemdSystem {
    fn run(&self, command: &[&str]) -> Result<String, SystemError> {
        self.command(command, b"")
    }
}

impl System for SystemdSystem {
    fn facts(&self) -> Result<HostFacts, SystemError> {
        let boot_id = self.text(BOOT_ID)?.filter(|id| !id.is_empty());
        let arguments = self.text(KERNEL_ARGUMENTS)?.unwrap_or_default();
        Ok(HostFacts {
            boot_id: boot_id.ok_or_else(|| SystemError::Command {
                command: format!("read {BOOT_ID}"),
                fault: "the machine's /proc is not there".to_owned(),
            })?,
            booted_image: self.booted_image()?,
            kernel_arguments: arguments.split_whitespace().map(str::to_owned).collect(),
            kernel_fips: self.text(KERNEL_FIPS)?.map(|text| text == "1"),
        })
    }

    fn packaged(&self, path: &str) -> Result<Packaged, SystemError> {
        if self.root.exists("/usr/bin/rpm")? {
            return match self.command(&["/usr/bin/rpm", "-qf", path], b"") {
                Ok(_) => Ok(Packaged::Yes),
                // rpm's exit status if no package owns the path.
                Err(SystemError::Command { fault, .. }) if fault.ends_with("exit status 1") => {
                    Ok(Packaged::No)
                }
                Err(error) => Err(error),
            };
        }
        Ok(package::by_dpkg_lists(&self.root, path)?)
    }

    fn unit_state(&self, unit: &str) -> Result<String, SystemError> {
        match self.bus.query("GetUnitFileState", &full_name(unit)) {
            Ok(state) if state.is_empty() => Ok("not-found".to_owned()),
            Ok(state) => Ok(state),
            // Read from the tree for units that systemd has not loaded yet or does not have, and
            // while the bus does not answer, which says nothing about the unit.
            Err(BusError::Refused { .. } | BusError::Connect { .. } | BusError::Lost(_)) => {
                Ok(unit::state(&self.root, unit)?.to_owned())
            }
            Err(error) => Err(failed(&format!("systemctl is-enabled {unit}"), &error)),
        }
    }

    fn has_unit(&self, unit: &str) -> Result<bool, SystemError> {
        // Units of generators have no file in the usual directories.
        let is_instance = unit::name::kind(unit) == Some(unit::name::Kind::Instance);
        Ok(unit::exists(&self.root, unit)?
            || (!is_instance && self.bus.query("GetUnitFileState", &full_name(unit)).is_ok()))
    }

    fn enable(&mut self, unit: &str) -> Result<(), SystemError> {
        let units = [full_name(unit)];
        self.stale = true;
        unit::enable_by(&self.root, unit, || {
            let done = self.bus.call("EnableUnitFiles", &(&units[..], false, true));
            done.map_err(|error| failed(&format!("systemctl enable {unit}"), &error))
        })?;
        Ok(unit::sync_links(&self.root)?)
    }

    fn disable(&mut self, unit: &str) -> Result<(), SystemError> {
        let units = [full_name(unit)];
        self.stale = true;
        let done = self.bus.call("DisableUnitFiles", &(&units[..], false));
        done.map_err(|error| failed(&format!("systemctl disable {unit}"), &error))?;
        Ok(unit::sync_links(&self.root)?)
    }

    fn preset(&mut self, unit: &str) -> Result<(), SystemError> {
        let units = [full_name(unit)];
        self.stale = true;
        let done = self.bus.call("PresetUnitFiles", &(&units[..], false, true));
        done.map_err(|error| failed(&format!("systemctl preset {unit}"), &error))?;
        Ok(unit::sync_links(&self.root)?)
    }

    fn reload_systemd(&mut self) -> Result<(), SystemError> {
        let done = self.bus.call("Reload", &());
        done.map_err(|error| failed("systemctl daemon-reload", &error))?;
        self.stale = false;
        Ok(())
    }

    fn reload(&mut self, service: &str) -> Result<(), SystemError> {
        self.job("reload", "ReloadUnit", service)
    }

    fn restart(&mut self, service: &str) -> Result<(), SystemError> {
        let done = self.job("restart", "RestartUnit", service);
        match (&done, trust::tool(&self.root, service)?) {
            (Err(error), Some(tool)) => {
                info!(service, %error, tool, "Failed to restart service; running its replacement");
                self.command(&[tool], b"").map(drop)
            }
            (Ok(()), _) | (Err(_), None) => done,
        }
    }

    fn password(&self, user: &str) -> Result<Option<String>, SystemError> {
        Ok(account::password(&self.root, user)?)
    }

    fn set_password(&mut self, user: &str, hash: &str) -> Result<(), SystemError> {
        if self.password(user)?.as_deref() == Some(hash) {
            return Ok(());
        }
        // A line break would set the password of another user.
        if !is_one_field(hash) {
            let what = format!("the password hash of {user} contains a colon or a line break");
            return Err(SystemError::Os { what });
        }
        // On standard input, so that neither the journal nor the list of processes shows it.
        self.command(
            &["/usr/sbin/chpasswd", "--encrypted"],
            format!("{user}:{hash}\n").as_bytes(),
        )?;
        info!("Password has been configured");
        Ok(())
    }

    fn stage_os(&mut self, image: &str) -> Result<(), SystemError> {
        self.os.stage_os(&self.root, self, image)
    }

    fn stage_kernel_arguments(
        &mut self,
        remove: &[String],
        add: &[String],
    ) -> Result<(), SystemError> {
        match self.os {
            Backend::None => loader::stage(&self.root, self, remove, add),
            Backend::RpmOstree | Backend::Bootc => {
                self.os.stage_kernel_arguments(self, remove, add)
            }
        }
    }

    fn stage_kernel(&mut self, kernel: &str) -> Result<(), SystemError> {
        self.os.stage_kernel(self, kernel)
    }

    fn stage_extensions(&mut self, _: &[String], add: &[String]) -> Result<(), SystemError> {
        self.os.stage_extensions(self, add)
    }

    fn staged(&self) -> Result<Option<String>, SystemError> {
        match self.os {
            Backend::None => loader::staged(&self.root),
            Backend::RpmOstree | Backend::Bootc => {
                // Cached: it changes with a reboot only.
                if let Some(booted) = self.booted.get() {
                    return Ok(booted.clone());
                }
                let booted = self.os.staged(self)?;
                Ok(self.booted.get_or_init(|| booted).clone())
            }
        }
    }

    fn has_staged(&self) -> Result<bool, SystemError> {
        self.os.has_staged(self)
    }

    fn boots_with(&self, argument: &str) -> Result<bool, SystemError> {
        match self.os {
            Backend::None => loader::boots_with(&self.root, argument),
            Backend::RpmOstree | Backend::Bootc => Ok(true),
        }
    }

    fn restore_staged(&mut self, staged: &str) -> Result<Restored, SystemError> {
        match self.os {
            Backend::None => loader::restage(&self.root, self, staged),
            Backend::RpmOstree | Backend::Bootc => self.os.restage(self, staged),
        }
    }

    fn prepare(&mut self, role: MachineRole) -> Result<(), SystemError> {
        self.os.prepare(&self.root, self, role)
    }

    fn finalization_fault(&self) -> Result<Option<String>, SystemError> {
        match self.os {
            Backend::RpmOstree | Backend::Bootc => finalize::fault(self),
            Backend::None => Ok(None),
        }
    }

    fn provide_packages(&mut self, image: &str) -> Result<(), SystemError> {
        match self.os {
            Backend::RpmOstree => repository::provide(&self.root, self, image),
            Backend::Bootc | Backend::None => Ok(()),
        }
    }

    fn withdraw_packages(&mut self) -> Result<(), SystemError> {
        match self.os {
            Backend::RpmOstree => repository::withdraw(&self.root, self),
            Backend::Bootc | Backend::None => Ok(()),
        }
    }

    fn check_extensions(&self, extensions: &[String]) -> Result<(), SystemError> {
        let release = OsRelease::read(&self.root)?.unwrap_or_default();
        match self.os {
            Backend::RpmOstree if release.is_el_coreos() => extension::verify(self, extensions),
            Backend::RpmOstree | Backend::Bootc | Backend::None => Ok(()),
        }
    }

    fn check_kubelet(&self) -> CheckResult {
        for unit in kubelet::UNITS {
            match self.unit_state(unit) {
                Ok(state) if state.starts_with("enabled") => {
                    return kubelet::check(kubelet::HEALTH);
                }
                Ok(_) => {}
                Err(error) => return CheckResult::Failed(error.to_string()),
            }
        }
        CheckResult::Skipped
    }

    fn run_checks(&self) -> CheckResult {
        let names = match self.root.list(CHECKS) {
            Ok(names) if names.is_empty() => return CheckResult::Skipped,
            Ok(names) => names,
            Err(error) => return CheckResult::Failed(error.to_string()),
        };
        for name in names {
            let path = format!("{CHECKS}/{name}");
            if let Err(error) = self.command(&["/usr/bin/timeout", CHECK_LIMIT, &path], b"") {
                return CheckResult::Failed(error.to_string());
            }
        }
        CheckResult::Passed
    }

    fn reboot(&mut self, why: &str) -> Result<(), SystemError> {
        // The reboot must not start before the staged deployment is finalized.
        let staged = unit::exists(&self.root, finalize::UNIT)?;
        let finalize: &[&str] = if staged { &[finalize::UNIT] } else { &[] };
        let task = TransientUnit {
            unit: command::REBOOT_UNIT,
            description: &format!("machine-config-daemon: {why}"),
            command: &["/bin/sh", "-c", "systemctl reboot"],
            after: finalize,
            limit: Some(command::REBOOT_LIMIT),
        };
        let started = match self.bus.start(&task) {
            // An earlier attempt hangs, so that it says nothing about this one.
            Err(BusError::Refused { name, .. }) if name == UNIT_EXISTS => {
                self.bus.start(&TransientUnit { unit: &command::next_reboot_unit(), ..task })
            }
            started => started,
        };
        started.map_err(|error| failed("systemctl reboot", &error))
    }
}

/// Longest error output that is reported; the end of it, which has the reason.
const MAX_STDERR: usize = 1024;

/// Describes the failure of a command by its error output and exit status.
fn failure_text(output: &Output) -> String {
    let output_text = [output.stderr.trim(), output.text.trim()];
    let output_text = output_text.into_iter().find(|text| !text.is_empty()).unwrap_or_default();
    let status = format!("exit status {}", output.status);
    if output_text.is_empty() {
        return status;
    }
    let cut = output_text.chars().count().saturating_sub(MAX_STDERR);
    let tail: String = output_text.chars().skip(cut).collect();
    let omitted = if cut == 0 { String::new() } else { format!("[{cut} chars before] ") };
    format!("{omitted}{tail}: {status}")
}

fn full_name(unit: &str) -> String {
    match unit.rsplit_once('.') {
        Some((_, kind)) if UNIT_TYPES.contains(&kind) => unit.to_owned(),
        _ => format!("{unit}.service"),
    }
}

fn failed(command: &str, error: &dyn std::error::Error) -> SystemError {
    let mut fault = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        fault = format!("{fault}: {inner}");
        cause = inner.source();
    }
    SystemError::Command { command: command.to_owned(), fault }
}

#[cfg(test)]
mod tests;
