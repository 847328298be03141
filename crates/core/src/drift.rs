//! Whether a disk is as a config says.
//!
//! [`expected`] lists what must be looked at, in the order of the config; the daemon looks, and
//! [`compare`] judges. The first difference is the one reported.
//!
//! Compat: what is compared, and the wording, are the reference's (`pkg/daemon/on_disk_validation.go`).
//! Beyond that owners are compared where the config names them; where it does not, whoever owns a file
//! is none of its business. Labels, keys and units without contents are not compared.

mod mode;
mod owner;

use mco_ignition::content::ContentError;

pub use self::{
    mode::Mode,
    owner::{Account, Found, Owned, Owner},
};
use crate::machine::{self, Machine};

/// Something on the disk to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Where it is, or the name of a unit for [`Want::Enabled`].
    pub path: String,
    /// What it should be.
    pub want: Want,
}

/// What should be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    /// A file with these permissions and contents.
    File {
        /// Permissions.
        mode: u32,
        /// Contents.
        contents: Vec<u8>,
        /// Who owns it.
        owner: Owner,
    },
    /// An empty file, or none.
    EmptyOrAbsent,
    /// A link that leads nowhere.
    Masked,
    /// A unit that starts at boot, or does not.
    Enabled(bool),
    /// Nothing can be said, because the config itself cannot be applied.
    Unusable(Unusable),
}

/// Why a part of a config cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The file is to be added to.
    #[error("found an append section when checking files. Append is not supported")]
    Append,
    /// The contents cannot be decoded.
    #[error("couldn't decode file {path:?}: {source}")]
    Contents {
        /// The file.
        path: String,
        /// Why not.
        source: ContentError,
    },
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// Nothing.
    Missing,
    /// Something with this mode, and contents if it is a plain file.
    Present {
        /// Permissions and kind, as the machine has them.
        mode: Mode,
        /// Contents.
        contents: Vec<u8>,
        /// Who owns it; `None` where that means nothing, as for files that nobody can give away.
        owner: Option<Owned>,
    },
    /// Where the path leads in the end, for [`Want::Masked`].
    LeadsTo(String),
    /// What systemd says of the unit, for [`Want::Enabled`].
    Enablement(String),
    /// It cannot be looked at.
    Unreadable(String),
}

/// One difference between disk and config.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Drift {
    /// The file has other contents.
    #[error("content mismatch for file {0:?}")]
    Contents(String),
    /// The file has other permissions, or is none.
    #[error("mode mismatch for file: {path:?}; expected: {want}; received: {found}")]
    Mode {
        /// The file.
        path: String,
        /// As it should be.
        want: Mode,
        /// As it is.
        found: Mode,
    },
    /// The file belongs to somebody else.
    #[error("owner mismatch for file: {path:?}; expected: {want}; received: {found}")]
    Owner {
        /// The file.
        path: String,
        /// As it should be: user and group.
        want: String,
        /// As it is.
        found: String,
    },
    /// The file is not there, or cannot be looked at.
    #[error("could not stat file {path:?}: lstat {path}: {fault}")]
    Stat {
        /// The file.
        path: String,
        /// Why not.
        fault: String,
    },
    /// The unit should be masked and there is nothing.
    #[error(
        "state validation: error while evaluation symlink for path {path:?}: lstat {path}: {fault}"
    )]
    MaskMissing {
        /// The unit file.
        path: String,
        /// Why not.
        fault: String,
    },
    /// The unit should be masked and is not.
    #[error(
        "state validation: invalid unit masked setting. path: {path:?}; expected: /dev/null; received: {found}"
    )]
    NotMasked {
        /// The unit file.
        path: String,
        /// Where it leads.
        found: String,
    },
    /// The unit starts at boot and should not, or the other way round.
    #[error("unit {unit:?} expected enabled={want}, but systemd reports {found:?}")]
    Enablement {
        /// The unit.
        unit: String,
        /// As it should be.
        want: bool,
        /// As it is.
        found: String,
    },
    /// The config cannot be compared.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// The node booted another image.
    #[error("expected target osImageURL {want:?}, have {found:?}")]
    OsImage {
        /// The image of the config.
        want: String,
        /// The booted image.
        found: String,
    },
    /// The node booted without some kernel arguments.
    #[error("missing expected kernel arguments: [{}]", .0.join(" "))]
    KernelArguments(Vec<String>),
}

/// Files that follow the cluster and no config.
pub const IGNORED: [&str; 3] = [
    "/etc/kubernetes/kubelet-ca.crt",
    "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem",
    "/etc/mco/internal-registry-pull-secret.json",
];

/// What to look at for a config: files, then units, each in the config's order.
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
        // A template itself is never on; its instances are.
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

/// Judges what was found; none is good.
#[must_use]
pub fn compare(expected: &Expected, observed: &Observed) -> Option<Drift> {
    let path = || expected.path.clone();
    let stat = |fault: &str| Some(Drift::Stat { path: path(), fault: fault.to_owned() });
    match (&expected.want, observed) {
        (Want::Unusable(unusable), _) => Some(Drift::Unusable(unusable.clone())),
        (Want::EmptyOrAbsent, Observed::Missing) => None,
        (Want::EmptyOrAbsent, found) => file(&expected.path, machine::DEFAULT_MODE, b"", found),
        (Want::File { mode, contents, owner }, found) => {
            file(&expected.path, *mode, contents, found)
                .or_else(|| belongs(&expected.path, owner, found))
        }
        (Want::Masked, Observed::LeadsTo(found)) if found == "/dev/null" => None,
        (Want::Masked, Observed::LeadsTo(found)) => {
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
        (Want::Enabled(_), Observed::Unreadable(fault)) => stat(fault),
        // The daemon never answers these questions with those answers.
        (Want::Masked, Observed::Enablement(_))
        | (Want::Enabled(_), Observed::Missing | Observed::Present { .. } | Observed::LeadsTo(_)) => {
            None
        }
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
        Observed::Present { .. } | Observed::LeadsTo(_) | Observed::Enablement(_) => None,
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

/// Judges what the node booted; none is good.
#[must_use]
pub fn compare_system(
    machine: &Machine,
    booted_image: Option<&str>,
    kernel_arguments: &[String],
) -> Option<Drift> {
    if let Some(found) = booted_image.filter(|found| *found != machine.spec.os_image_url) {
        let want = machine.spec.os_image_url.clone();
        return Some(Drift::OsImage { want, found: found.to_owned() });
    }
    let tokens = machine.spec.kernel_arguments.iter().flat_map(|text| text.split_whitespace());
    let missing: Vec<String> = tokens
        .filter(|token| !kernel_arguments.iter().any(|found| found == token))
        .map(str::to_owned)
        .collect();
    (!missing.is_empty()).then_some(Drift::KernelArguments(missing))
}

#[cfg(test)]
mod tests;
