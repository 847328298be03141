//! What cannot be done inside a directory: services, the boot loader, packages, the reboot.

use crate::{root::RootError, unit::UnitError};

/// What a machine tells about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// Changes with every boot and with nothing else.
    pub boot_id: String,
    /// The booted operating system image, where the system is made from one.
    pub booted_image: Option<String>,
    /// Kernel arguments of the present boot.
    pub kernel_arguments: Vec<String>,
    /// Whether the kernel runs in FIPS mode, where it tells.
    pub kernel_fips: Option<bool>,
}

/// Why the system did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum SystemError {
    /// A unit could not be set to start at boot, or not to.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// A command failed.
    #[error("error running {command}: {fault}")]
    Command {
        /// The command.
        command: String,
        /// What it said.
        fault: String,
    },
    /// The machine has no means to do it.
    #[error("this machine cannot {what}: it has neither rpm-ostree nor bootc")]
    Unable {
        /// What was asked for.
        what: String,
    },
    /// The tree could not be read or written.
    #[error(transparent)]
    Root(#[from] RootError),
}

/// The services of a machine. Calls block, and twice is the same as once.
pub trait System: Send {
    /// What the machine tells about itself.
    fn facts(&self) -> Result<HostFacts, SystemError>;
    /// Whether a package of the operating system claims the path.
    fn is_packaged(&self, path: &str) -> Result<bool, SystemError>;
    /// Whether a unit starts at boot, in systemd's words.
    fn unit_state(&self, unit: &str) -> Result<String, SystemError>;
    /// Whether the machine has a unit of this name.
    fn has_unit(&self, unit: &str) -> Result<bool, SystemError>;
    /// Makes a unit start at boot.
    fn enable(&mut self, unit: &str) -> Result<(), SystemError>;
    /// Makes a unit not start at boot.
    fn disable(&mut self, unit: &str) -> Result<(), SystemError>;
    /// Makes a unit start at boot or not, as the operating system has it.
    fn preset(&mut self, unit: &str) -> Result<(), SystemError>;
    /// Makes systemd read its units again.
    fn reload_systemd(&mut self) -> Result<(), SystemError>;
    /// Reloads a service.
    fn reload(&mut self, service: &str) -> Result<(), SystemError>;
    /// Restarts a service.
    fn restart(&mut self, service: &str) -> Result<(), SystemError>;
    /// Sets the encrypted password of a user.
    fn set_password(&mut self, user: &str, hash: &str) -> Result<(), SystemError>;
    /// Has this image booted next.
    fn stage_os(&mut self, image: &str) -> Result<(), SystemError>;
    /// Has the second list of kernel arguments in place of the first at the next boot.
    fn stage_kernel_arguments(
        &mut self,
        remove: &[String],
        add: &[String],
    ) -> Result<(), SystemError>;
    /// Has this kernel booted next.
    fn stage_kernel(&mut self, kernel: &str) -> Result<(), SystemError>;
    /// Has the second list of extensions in place of the first at the next boot.
    fn stage_extensions(&mut self, remove: &[String], add: &[String]) -> Result<(), SystemError>;
    /// Starts a reboot; the machine goes on for a while.
    fn reboot(&mut self, why: &str) -> Result<(), SystemError>;
}
