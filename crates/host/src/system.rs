//! What cannot be done inside a directory: services, the boot loader, packages, the reboot.

mod boxed;

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
    /// The operating system cannot be what it should be.
    #[error("{what}")]
    Os {
        /// What is wrong, in the reference's words.
        what: String,
    },
    /// The machine does not run, and this takes one that does.
    #[error("this machine cannot {what} while it does not run")]
    NotRunning {
        /// What was asked for.
        what: String,
    },
    /// The tree could not be read or written.
    #[error(transparent)]
    Root(#[from] RootError),
}

impl SystemError {
    /// Whether the disk is to blame, and not what was asked for.
    #[must_use]
    pub fn is_disk(&self) -> bool {
        matches!(self, Self::Root(_) | Self::Unit(UnitError::Root(_)))
    }
}

/// Whether a package of the operating system claims a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packaged {
    /// One does.
    Yes,
    /// None does.
    No,
    /// Nobody can tell: the system keeps no list of packages.
    Unknown,
}

/// What a machine answers when it is asked whether something of it is well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is.
    Yes,
    /// It is not, and why.
    No(String),
    /// The machine has no such thing.
    NotAsked,
}

/// What a machine is for, as far as the operating system cares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Duty {
    /// It holds a part of the cluster itself.
    ControlPlane,
    /// It does the cluster's work.
    #[default]
    Worker,
}

/// What going back to something staged before came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Staged {
    /// The present boot is that of before, and so is the next.
    Back,
    /// The machine has booted since; it is back after another boot.
    AtNextBoot,
}

/// The services of a machine. Calls block, and twice is the same as once.
pub trait System: Send {
    /// What the machine tells about itself.
    fn facts(&self) -> Result<HostFacts, SystemError>;
    /// Whether a package of the operating system claims the path.
    fn packaged(&self, path: &str) -> Result<Packaged, SystemError>;
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
    /// The encrypted password of a user; none if there is no such user, or nobody can tell.
    fn password(&self, user: &str) -> Result<Option<String>, SystemError>;
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
    /// What will be booted next, in words of this system's own; none where nothing can be staged.
    fn staged(&self) -> Result<Option<String>, SystemError>;
    /// Has booted next what was to be when [`System::staged`] gave these words.
    fn restage(&mut self, staged: &str) -> Result<Staged, SystemError>;
    /// Does what the machine needs whenever its daemon starts.
    fn prepare(&mut self, _: Duty) -> Result<(), SystemError> {
        Ok(())
    }
    /// Why what was staged last did not come up, where the end of the last boot tells.
    fn finalization_fault(&self) -> Result<Option<String>, SystemError> {
        Ok(None)
    }
    /// Has the packages of this image at hand for what is staged next.
    fn provide_packages(&mut self, _: &str) -> Result<(), SystemError> {
        Ok(())
    }
    /// Takes them away again.
    fn withdraw_packages(&mut self) -> Result<(), SystemError> {
        Ok(())
    }
    /// Refuses a machine that has not booted with all packages of these extensions.
    fn check_extensions(&self, _: &[String]) -> Result<(), SystemError> {
        Ok(())
    }
    /// Whether the machine's kubelet is well, where the machine is to run one.
    fn kubelet(&self) -> Answer {
        Answer::NotAsked
    }
    /// Whether the checks that people put on the machine pass.
    fn checks(&self) -> Answer {
        Answer::NotAsked
    }
    /// Starts a reboot; the machine goes on for a while.
    fn reboot(&mut self, why: &str) -> Result<(), SystemError>;
}
