//! The operating system itself: what is booted, and what will be at the next boot.
//!
//! Each kind of system is driven by its own commands, which run through one door, so that a stand-in can
//! take their place. Nothing here changes the running system: everything is staged.

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
    system::{Duty, Staged, SystemError},
};

pub use arguments::words;
pub use extension::{is_extension, packages};
pub use release::OsRelease;

/// Runs commands of a machine.
pub trait CommandRunner {
    /// What the command printed; an error unless it succeeded.
    fn run(&self, command: &[&str]) -> Result<String, SystemError>;

    /// Lets time pass before something is tried again.
    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// The pause after the first failure; twice as long after each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// Tries so often; what went wrong at last otherwise.
fn repeat(
    runner: &dyn CommandRunner,
    tries: u32,
    work: impl Fn() -> Result<(), SystemError>,
) -> Result<(), SystemError> {
    let mut pause = FIRST_PAUSE;
    for attempt in 1..tries {
        let Err(error) = work() else { return Ok(()) };
        warn!(attempt, %error, "Trying again");
        runner.pause(pause);
        pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
    }
    work()
}

/// How the operating system of a machine is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// By rpm-ostree.
    RpmOstree,
    /// By bootc.
    Bootc,
    /// Not at all: files and units only.
    None,
}

impl Backend {
    /// The kind of system below `root`. One that has both is driven by rpm-ostree, which can do more.
    pub fn detect(root: &Root) -> Result<Self, RootError> {
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

    /// The image that is booted, where there is one.
    pub fn booted_image(self, runner: &dyn CommandRunner) -> Result<Option<String>, SystemError> {
        match self {
            Self::RpmOstree => Ok(ostree::status(runner)?.booted()?.image()),
            Self::Bootc => bootc::booted(runner),
            Self::None => Ok(None),
        }
    }

    /// Has this image booted next.
    pub fn stage_os(
        self,
        root: &Root,
        runner: &dyn CommandRunner,
        image: &str,
    ) -> Result<(), SystemError> {
        // The secrets may have changed since the machine started.
        auth::link(root, self)?;
        match self {
            Self::RpmOstree => ostree::rebase(root, runner, image),
            Self::Bootc => bootc::switch(runner, image),
            Self::None => Err(unable(&format!("boot the image {image}"))),
        }
    }

    /// Does what the system needs whenever its daemon starts.
    pub fn prepare(
        self,
        root: &Root,
        runner: &dyn CommandRunner,
        duty: Duty,
    ) -> Result<(), SystemError> {
        // Without it images that need no credentials can still be pulled.
        if let Err(error) = auth::link(root, self) {
            warn!(%error, "The operating system has no credentials to pull images with");
        }
        match self {
            Self::RpmOstree => {
                repository::withdraw(root, runner)?;
                storage::forbid(root, runner)?;
                nics::persist(root, runner)?;
                ostree::sync_objects(runner, duty)
            }
            Self::Bootc | Self::None => Ok(()),
        }
    }

    /// Has the second list of kernel arguments in place of the first at the next boot.
    pub fn stage_kernel_arguments(
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

    /// Has this kernel booted next.
    pub fn stage_kernel(self, runner: &dyn CommandRunner, kernel: &str) -> Result<(), SystemError> {
        match self {
            Self::RpmOstree => ostree::kernel(runner, kernel),
            Self::Bootc => Err(not_by_bootc("the kernel type")),
            Self::None => Err(unable(&format!("boot the {kernel} kernel"))),
        }
    }

    /// Has these extensions, and none of the others that we know, at the next boot.
    pub fn stage_extensions(
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

    /// What is booted now and next, in words of our own.
    pub fn staged(self, runner: &dyn CommandRunner) -> Result<Option<String>, SystemError> {
        match self {
            Self::RpmOstree => Ok(Some(ostree::status(runner)?.booted()?.checksum.clone())),
            Self::Bootc => bootc::booted(runner),
            Self::None => Ok(None),
        }
    }

    /// Drops what was staged since [`Backend::staged`] gave these words.
    pub fn restage(self, runner: &dyn CommandRunner, before: &str) -> Result<Staged, SystemError> {
        match self {
            Self::RpmOstree => ostree::go_back(runner, before),
            Self::Bootc => bootc::go_back(runner, before),
            Self::None => Ok(Staged::Back),
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

/// What a command printed is not what it should be.
fn garbled(command: &str, error: &serde_json::Error) -> SystemError {
    SystemError::Command { command: command.to_owned(), fault: error.to_string() }
}

#[cfg(test)]
mod tests;
