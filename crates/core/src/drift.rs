//! Comparison of the disk with a config.
//!
//! [`expected`] lists the paths and units to inspect, in the order of the config; the daemon
//! inspects them, and [`compare`] compares. The first difference is reported.
//!
//! Compat: the compared properties and the wording are the reference's
//! (`pkg/daemon/on_disk_validation.go`). In addition, owners are compared if the config names them;
//! otherwise any owner is accepted. SELinux labels, SSH keys and units without contents are not
//! compared.

mod adoption;
mod mode;
mod owner;
mod reported;

use mco_api::MachineConfigSpec;
use mco_ignition::content::ContentError;

pub use self::{
    adoption::{Adoption, Difference, adopt},
    mode::Mode,
    owner::{Account, FoundAccount, FoundOwner, Owner},
    reported::ReportedDrift,
};
use crate::machine::{self, Machine};

/// An expectation about a path or unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Path, or name of the unit for [`Want::Enabled`].
    pub path: String,
    /// Expected state.
    pub want: Want,
}

/// The expected state of a path or unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    /// A file with these permissions and contents.
    File {
        /// Permissions.
        mode: u32,
        /// Contents.
        contents: Vec<u8>,
        /// Expected owner.
        owner: Owner,
    },
    /// An empty file, or none.
    EmptyOrAbsent,
    /// A link to `/dev/null`.
    Masked,
    /// A unit that is enabled, or disabled.
    Enabled(bool),
    /// A part of the config that cannot be applied, and so not compared.
    Unusable(Unusable),
}

/// The reason why a part of a config cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The file has an append section.
    #[error("found an append section when checking files. Append is not supported")]
    Append,
    /// The contents cannot be decoded.
    #[error("couldn't decode file {path:?}: {source}")]
    Contents {
        /// Path of the file.
        path: String,
        /// Decoding error.
        source: ContentError,
    },
}

/// The observed state of a path or unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// The path does not exist.
    Missing,
    /// The path exists; the contents are those of a regular file.
    Present {
        /// File type and permissions.
        mode: Mode,
        /// Contents.
        contents: Vec<u8>,
        /// Owner; `None` on a filesystem where ownership cannot be changed.
        owner: Option<FoundOwner>,
    },
    /// Final target of the path's symbolic links, for [`Want::Masked`].
    Link(String),
    /// Enablement state reported by systemd, for [`Want::Enabled`].
    Enablement(String),
    /// The path cannot be read.
    Unreadable(String),
}

/// A difference between disk and config.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Drift {
    /// The contents differ.
    #[error("content mismatch for file {0:?}")]
    Contents(String),
    /// The permissions or the file type differ.
    #[error("mode mismatch for file: {path:?}; expected: {want}; received: {found}")]
    Mode {
        /// Path of the file.
        path: String,
        /// Expected mode.
        want: Mode,
        /// Observed mode.
        found: Mode,
    },
    /// The owner differs.
    #[error("owner mismatch for file: {path:?}; expected: {want}; received: {found}")]
    Owner {
        /// Path of the file.
        path: String,
        /// Expected user and group.
        want: String,
        /// Observed user and group.
        found: String,
    },
    /// The file does not exist or cannot be read.
    #[error("could not stat file {path:?}: lstat {path}: {fault}")]
    Stat {
        /// Path of the file.
        path: String,
        /// Error of the system call.
        fault: String,
    },
    /// The unit should be masked and its path does not exist.
    #[error(
        "state validation: error while evaluation symlink for path {path:?}: lstat {path}: {fault}"
    )]
    MaskMissing {
        /// Path of the unit file.
        path: String,
        /// Error of the system call.
        fault: String,
    },
    /// The unit should be masked and is not.
    #[error(
        "state validation: invalid unit masked setting. path: {path:?}; expected: /dev/null; received: {found}"
    )]
    NotMasked {
        /// Path of the unit file.
        path: String,
        /// Target of the path.
        found: String,
    },
    /// The unit is enabled and should not be, or the reverse.
    #[error("unit {unit:?} expected enabled={want}, but systemd reports {found:?}")]
    Enablement {
        /// Name of the unit.
        unit: String,
        /// Expected state.
        want: bool,
        /// State reported by systemd.
        found: String,
    },
    /// The config cannot be compared.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// The node booted another image.
    #[error("expected target osImageURL {want:?}, have {found:?}")]
    OsImage {
        /// Image of the config.
        want: String,
        /// Booted image.
        found: String,
    },
    /// The node booted without these kernel arguments.
    #[error("missing expected kernel arguments: [{}]", .0.join(" "))]
    KernelArguments(Vec<String>),
}

/// Files that follow the cluster and not the config.
pub const IGNORED: [&str; 3] = [
    "/etc/kubernetes/kubelet-ca.crt",
    "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem",
    "/etc/mco/internal-registry-pull-secret.json",
];

/// Lists the expectations of a config: files, then units, each in the order of the config.
#[must_use]
pub fn expected(machine: &Machine) -> Vec<Expected> {
    let mut list = Vec::new();
    for file in &machine.config.storage.files {
        if IGNORED.contains(&file.path.as_str()) {
            continue;
        }
        let path = file.path.clone();
        let want = if file.append.is_empty() {
            match machine::contents(file) {
                Ok(contents) => {
                    Want::File { mode: machine::mode(file), contents, owner: Owner::of(file) }
                }
                Err(source) => Want::Unusable(Unusable::Contents { path: path.clone(), source }),
            }
        } else {
            Want::Unusable(Unusable::Append)
        };
        list.push(Expected { path, want });
    }
    for unit in &machine.config.systemd.units {
        for dropin in &unit.dropins {
            let path = machine::dropin_path(&unit.name, &dropin.name);
            let want = match dropin.contents.as_deref() {
                None | Some("") => Want::EmptyOrAbsent,
                Some(text) => plain(text),
            };
            list.push(Expected { path, want });
        }
        let Some(text) = unit.contents.as_deref().filter(|text| !text.is_empty()) else { continue };
        let path = machine::unit_path(&unit.name);
        if unit.mask == Some(true) {
            list.push(Expected { path, want: Want::Masked });
            continue;
        }
        list.push(Expected { path, want: plain(text) });
        // A template itself is never enabled; its instances are.
        if let Some(enabled) = unit.enabled.filter(|_| !unit.name.contains("@.")) {
            list.push(Expected { path: unit.name.clone(), want: Want::Enabled(enabled) });
        }
    }
    list
}

fn plain(text: &str) -> Want {
    let (mode, contents) = (machine::DEFAULT_MODE, text.as_bytes().to_vec());
    Want::File { mode, contents, owner: Owner::default() }
}

/// Compares an observation with its expectation; returns the difference, if any.
#[must_use]
pub fn compare(expected: &Expected, observed: &Observed) -> Option<Drift> {
    let path = || expected.path.clone();
    match (&expected.want, observed) {
        (Want::Unusable(unusable), _) => Some(Drift::Unusable(unusable.clone())),
        (Want::EmptyOrAbsent, found) if *found != Observed::Missing => {
            file(&expected.path, machine::DEFAULT_MODE, b"", found)
        }
        (Want::File { mode, contents, owner }, found) => {
            file(&expected.path, *mode, contents, found)
                .or_else(|| belongs(&expected.path, owner, found))
        }
        (Want::Masked, Observed::Link(found)) if found == "/dev/null" => None,
        (Want::Masked, Observed::Link(found)) => {
            Some(Drift::NotMasked { path: path(), found: found.clone() })
        }
        (Want::Masked, Observed::Present { .. }) => {
            Some(Drift::NotMasked { path: path(), found: path() })
        }
        (Want::Masked, Observed::Missing) => {
            Some(Drift::MaskMissing { path: path(), fault: ABSENT.to_owned() })
        }
        (Want::Masked, Observed::Unreadable(fault)) => {
            Some(Drift::MaskMissing { path: path(), fault: fault.clone() })
        }
        (Want::Enabled(want), Observed::Enablement(found)) => {
            let wrong: &[&str] = if *want {
                &["disabled", "masked", "masked-runtime", "not-found"]
            } else {
                &["enabled", "enabled-runtime"]
            };
            let is_wrong = wrong.contains(&found.as_str());
            is_wrong.then(|| Drift::Enablement { unit: path(), want: *want, found: found.clone() })
        }
        // If systemd does not answer, nothing is known about the unit. The daemon never makes the
        // other observations for these expectations.
        (Want::EmptyOrAbsent, _)
        | (Want::Masked, Observed::Enablement(_))
        | (
            Want::Enabled(_),
            Observed::Unreadable(_)
            | Observed::Missing
            | Observed::Present { .. }
            | Observed::Link(_),
        ) => None,
    }
}

const ABSENT: &str = "no such file or directory";

fn file(path: &str, want: u32, contents: &[u8], observed: &Observed) -> Option<Drift> {
    let stat = |fault: &str| Drift::Stat { path: path.to_owned(), fault: fault.to_owned() };
    match observed {
        Observed::Missing => Some(stat(ABSENT)),
        Observed::Unreadable(fault) => Some(stat(fault)),
        Observed::Present { mode, .. } if *mode != Mode::file(want) => {
            Some(Drift::Mode { path: path.to_owned(), want: Mode::file(want), found: *mode })
        }
        Observed::Present { contents: found, .. } if found != contents => {
            Some(Drift::Contents(path.to_owned()))
        }
        Observed::Present { .. } | Observed::Link(_) | Observed::Enablement(_) => None,
    }
}

fn belongs(path: &str, want: &Owner, observed: &Observed) -> Option<Drift> {
    let Observed::Present { owner: Some(found), .. } = observed else { return None };
    if want.is_met(found) {
        return None;
    }
    let (want, found) = (want.to_string(), found.to_string());
    Some(Drift::Owner { path: path.to_owned(), want, found })
}

/// Compares the booted image and kernel arguments with the config; returns the difference, if any.
#[must_use]
pub fn compare_system(
    spec: &MachineConfigSpec,
    booted_image: Option<&str>,
    kernel_arguments: &[String],
) -> Option<Drift> {
    // A config without an image has no opinion.
    let wanted = spec.os_image_url.as_str();
    if let Some(found) = booted_image.filter(|found| !wanted.is_empty() && *found != wanted) {
        let want = spec.os_image_url.clone();
        return Some(Drift::OsImage { want, found: found.to_owned() });
    }
    let tokens = spec.kernel_arguments.iter().flat_map(|text| text.split_whitespace());
    let missing: Vec<String> = tokens
        .filter(|token| !kernel_arguments.iter().any(|found| found == token))
        .map(str::to_owned)
        .collect();
    (!missing.is_empty()).then_some(Drift::KernelArguments(missing))
}

#[cfg(test)]
mod tests;
