//! The operating system: the booted deployment and the staged one.
//!
//! Each kind of system is driven by its own commands, which run through one trait, so that tests
//! can replace them. Nothing here changes the running system: everything is staged.

mod arguments;
pub(crate) mod auth;
mod bootc;
mod bootupd;
pub(crate) mod extension;
pub(crate) mod finalize;
pub(crate) mod loader;
pub(crate) mod nics;
mod ostree;
mod release;
pub(crate) mod repository;
mod storage;
pub(crate) mod trust;

use std::time::Duration;

use tracing::warn;

use crate::{
    root::{Root, RootError},
    system::{MachineRole, Restored, SystemError},
};

pub use arguments::words;
pub use extension::{is_extension, packages};
pub use release::OsRelease;

/// Runs commands of a machine.
pub trait CommandRunner {
    /// Runs a command and returns its output; fails unless it exits with 0.
    fn run(&self, command: &[&str]) -> Result<String, SystemError>;

    /// Sleeps before a retry.
    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// Pause after the first failure; twice as long after each further one.
const INITIAL_BACKOFF: Duration = Duration::from_secs(5);
const MAX_BACKOFF: Duration = Duration::from_mins(1);

/// Retries work; returns the last error after `attempts` attempts.
fn retry(
    runner: &dyn CommandRunner,
    attempts: u32,
    work: impl Fn() -> Result<(), SystemError>,
) -> Result<(), SystemError> {
    let mut pause = INITIAL_BACKOFF;
    for attempt in 1..attempts {
        let Err(error) = work() else { return Ok(()) };
        warn!(attempt, %error, "Retrying");
        runner.pause(pause);
        pause = pause.saturating_mul(2).min(MAX_BACKOFF);
    }
    work()
}

/// The tool that changes the operating system of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    /// rpm-ostree.
    RpmOstree,
    /// bootc.
    Bootc,
    /// None: only files and units can be changed.
    None,
}

impl Backend {
    /// Detects the tool of the system below `root`. A system with both uses rpm-ostree, which can
    /// do more.
    pub(crate) fn detect(root: &Root) -> Result<Self, RootError> {
        if !root.exists("/run/ostree-booted")? {
            return Ok(Self::None);
        }
        Ok(if root.exists("/usr/bin/rpm-ostree")? {
            Self::RpmOstree
        } else if root.exists("/usr/bin/bootc")? {
            Self::Bootc
        } else {
            Self::None
        })
    }

    /// Returns the booted image, if the system is an image.
    pub(crate) fn booted_image(
        self,
        runner: &dyn CommandRunner,
    ) -> Result<Option<String>, SystemError> {
        match self {
            Self::RpmOstree => Ok(ostree::status(runner)?.booted()?.image()),
            Self::Bootc => bootc::booted_image(runner),
            Self::None => Ok(None),
        }
    }

    /// Stages an image for the next boot.
    pub(crate) fn stage_os(
        self,
        root: &Root,
        runner: &dyn CommandRunner,
        image: &str,
    ) -> Result<(), SystemError> {
        // A config without an image has no opinion.
        if image.is_empty() {
            return Ok(());
        }
        // The pull secrets may have changed since the daemon started.
        auth::link(root, self)?;
        match self {
            Self::RpmOstree => ostree::rebase(root, runner, image),
            Self::Bootc => bootc::switch(runner, image),
            Self::None => Err(unable(&format!("boot the image {image}"))),
        }
    }

    /// Prepares the system at a start of the daemon.
    pub(crate) fn prepare(
        self,
        root: &Root,
        runner: &dyn CommandRunner,
        role: MachineRole,
    ) -> Result<(), SystemError> {
        // Public images can be pulled without credentials.
        if let Err(error) = auth::link(root, self) {
            warn!(%error, "Failed to link the pull secret for OS images");
        }
        match self {
            Self::RpmOstree => {
                repository::withdraw(root, runner)?;
                storage::forbid(root, runner)?;
                nics::persist(root, runner)?;
                ostree::sync_objects(runner, role)
            }
            Self::Bootc | Self::None => Ok(()),
        }
    }

    /// Stages kernel arguments: removes one list and adds the other.
    pub(crate) fn stage_kernel_arguments(
        self,
        runner: &dyn CommandRunner,
        remove: &[String],
        add: &[String],
    ) -> Result<(), SystemError> {
        match self {
            Self::RpmOstree => ostree::kernel_arguments(runner, remove, add),
            Self::Bootc => Err(not_by_bootc("kernel arguments")),
            Self::None => {
                let change = [("remove", remove), ("add", add)];
                let words = change.iter().filter(|(_, list)| !list.is_empty());
                let words: Vec<String> =
                    words.map(|(verb, list)| format!("{verb} {}", list.join(" "))).collect();
                Err(unable(&format!("change kernel arguments ({})", words.join(", "))))
            }
        }
    }

    /// Stages a kernel type.
    pub(crate) fn stage_kernel(
        self,
        runner: &dyn CommandRunner,
        kernel: &str,
    ) -> Result<(), SystemError> {
        match self {
            Self::RpmOstree => ostree::kernel(runner, kernel),
            Self::Bootc => Err(not_by_bootc("the kernel type")),
            Self::None => Err(unable(&format!("boot the {kernel} kernel"))),
        }
    }

    /// Stages exactly these of the known extensions.
    pub(crate) fn stage_extensions(
        self,
        runner: &dyn CommandRunner,
        extensions: &[String],
    ) -> Result<(), SystemError> {
        match self {
            Self::RpmOstree => ostree::extensions(runner, extensions),
            Self::Bootc => Err(not_by_bootc("extensions")),
            Self::None => Err(unable(&format!("change extensions (to {})", extensions.join(" ")))),
        }
    }

    /// Returns an opaque description of the booted deployment, for [`Backend::restage`].
    pub(crate) fn staged(self, runner: &dyn CommandRunner) -> Result<Option<String>, SystemError> {
        match self {
            Self::RpmOstree => Ok(Some(ostree::status(runner)?.booted()?.id.clone())),
            Self::Bootc => bootc::booted_deployment(runner),
            Self::None => Ok(None),
        }
    }

    /// Returns true if a deployment is staged.
    pub(crate) fn has_staged(self, runner: &dyn CommandRunner) -> Result<bool, SystemError> {
        match self {
            Self::RpmOstree => ostree::has_staged(runner),
            Self::Bootc => bootc::has_staged(runner),
            Self::None => Ok(false),
        }
    }

    /// Drops everything staged since [`Backend::staged`] returned `before`.
    pub(crate) fn restage(
        self,
        runner: &dyn CommandRunner,
        before: &str,
    ) -> Result<Restored, SystemError> {
        match self {
            Self::RpmOstree => ostree::restore(runner, before),
            Self::Bootc => bootc::restore(runner, before),
            Self::None => Ok(Restored::Done),
        }
    }
}

fn unable(what: &str) -> SystemError {
    SystemError::Unable { what: what.to_owned() }
}

fn not_by_bootc(what: &str) -> SystemError {
    SystemError::Command {
        command: "bootc".to_owned(),
        fault: format!("{what} cannot be changed by bootc; build them into the image"),
    }
}

/// Wraps a parse error of a command's output.
fn parse_error(command: &str, error: &serde_json::Error) -> SystemError {
    SystemError::Command { command: command.to_owned(), fault: error.to_string() }
}

#[cfg(test)]
mod tests;
