//! Services of a machine outside its directory tree: units, the boot loader, packages, the reboot.

mod boxed;

pub use mco_core::lifecycle::CheckResult;

use crate::{root::RootError, unit::UnitError};

/// Facts about a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// Id of the current boot.
    pub boot_id: String,
    /// Booted OS image, if the system is an image.
    pub booted_image: Option<String>,
    /// Kernel arguments of the current boot.
    pub kernel_arguments: Vec<String>,
    /// FIPS mode of the kernel, if known.
    pub kernel_fips: Option<bool>,
}

/// A failed call to the operating system.
#[derive(Debug, thiserror::Error)]
pub enum SystemError {
    /// A unit could not be enabled or disabled.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// A command failed.
    #[error("error running {command}: {fault}")]
    Command {
        /// The command.
        command: String,
        /// The output or error of the command.
        fault: String,
    },
    /// The machine has no tool for it.
    #[error("this machine cannot {what}: it has neither rpm-ostree nor bootc")]
    Unable {
        /// The attempted action.
        what: String,
    },
    /// The operating system cannot be changed as required.
    #[error("{what}")]
    Os {
        /// The fault, in the reference's words.
        what: String,
    },
    /// The action needs a running machine.
    #[error("this machine cannot {what} while it does not run")]
    NotRunning {
        /// The attempted action.
        what: String,
    },
    /// A file could not be read or written.
    #[error(transparent)]
    Root(#[from] RootError),
}

impl SystemError {
    /// Returns true if the disk caused the failure.
    #[must_use]
    pub fn is_disk(&self) -> bool {
        matches!(self, Self::Root(_) | Self::Unit(UnitError::Root(_)))
    }
}

/// The result of looking up a path in the packages of the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packaged {
    /// A package owns the path.
    Yes,
    /// No package owns the path.
    No,
    /// The system keeps no list of packages.
    Unknown,
}

/// The role of a machine, as far as the operating system cares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MachineRole {
    /// The machine is part of the control plane.
    ControlPlane,
    /// The machine runs workloads.
    #[default]
    Worker,
}

/// The result of restoring a staged deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restored {
    /// The booted deployment is the previous one, and so is the next.
    Done,
    /// The machine has booted the update; another reboot completes the restoration.
    NeedsReboot,
}

/// The services of a machine. Calls block, and repeating one changes nothing.
pub trait System: Send {
    /// Returns facts about the machine.
    fn facts(&self) -> Result<HostFacts, SystemError>;
    /// Looks up a path in the packages of the operating system.
    fn packaged(&self, path: &str) -> Result<Packaged, SystemError>;
    /// Returns the state of a unit file, in systemd's words.
    fn unit_state(&self, unit: &str) -> Result<String, SystemError>;
    /// Returns true if the machine has a unit of this name.
    fn has_unit(&self, unit: &str) -> Result<bool, SystemError>;
    /// Enables a unit.
    fn enable(&mut self, unit: &str) -> Result<(), SystemError>;
    /// Disables a unit.
    fn disable(&mut self, unit: &str) -> Result<(), SystemError>;
    /// Enables or disables a unit according to the presets.
    fn preset(&mut self, unit: &str) -> Result<(), SystemError>;
    /// Runs `systemctl daemon-reload`.
    fn reload_systemd(&mut self) -> Result<(), SystemError>;
    /// Reloads a service.
    fn reload(&mut self, service: &str) -> Result<(), SystemError>;
    /// Restarts a service.
    fn restart(&mut self, service: &str) -> Result<(), SystemError>;
    /// Returns the encrypted password of a user; none if the user or the password is unknown.
    fn password(&self, user: &str) -> Result<Option<String>, SystemError>;
    /// Sets the encrypted password of a user.
    fn set_password(&mut self, user: &str, hash: &str) -> Result<(), SystemError>;
    /// Stages an OS image for the next boot.
    fn stage_os(&mut self, image: &str) -> Result<(), SystemError>;
    /// Stages kernel arguments: removes one list and adds the other.
    fn stage_kernel_arguments(
        &mut self,
        remove: &[String],
        add: &[String],
    ) -> Result<(), SystemError>;
    /// Stages a kernel type.
    fn stage_kernel(&mut self, kernel: &str) -> Result<(), SystemError>;
    /// Stages extensions: removes one list and adds the other.
    fn stage_extensions(&mut self, remove: &[String], add: &[String]) -> Result<(), SystemError>;
    /// Returns an opaque description of the deployments; none if nothing can be staged.
    fn staged(&self) -> Result<Option<String>, SystemError>;
    /// Returns true if a deployment is staged that only a reboot activates.
    fn has_staged(&self) -> Result<bool, SystemError> {
        Ok(false)
    }
    /// Returns true if the machine boots with this kernel argument next, or does not tell.
    fn boots_with(&self, _: &str) -> Result<bool, SystemError> {
        Ok(true)
    }
    /// Restores the deployments that [`System::staged`] described.
    fn restore_staged(&mut self, staged: &str) -> Result<Restored, SystemError>;
    /// Prepares the machine at a start of the daemon.
    fn prepare(&mut self, _: MachineRole) -> Result<(), SystemError> {
        Ok(())
    }
    /// Returns the error of the last deployment's finalization, if it failed.
    fn finalization_fault(&self) -> Result<Option<String>, SystemError> {
        Ok(None)
    }
    /// Provides the packages of this image for what is staged next.
    fn provide_packages(&mut self, _: &str) -> Result<(), SystemError> {
        Ok(())
    }
    /// Removes the provided packages.
    fn withdraw_packages(&mut self) -> Result<(), SystemError> {
        Ok(())
    }
    /// Fails if packages of these extensions are not installed.
    fn check_extensions(&self, _: &[String]) -> Result<(), SystemError> {
        Ok(())
    }
    /// Checks the machine's kubelet, if the machine is to run one.
    fn check_kubelet(&self) -> CheckResult {
        CheckResult::Skipped
    }
    /// Runs the administrator's checks on the machine.
    fn run_checks(&self) -> CheckResult {
        CheckResult::Skipped
    }
    /// Starts a reboot; returns before the machine goes down.
    fn reboot(&mut self, why: &str) -> Result<(), SystemError>;
}
