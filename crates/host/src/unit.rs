//! Units of a machine whose systemd is not asked: which start at boot is a matter of links.
//!
//! The links are those that `systemctl --root` makes: for each name in `WantedBy=` and `RequiredBy=`
//! one in that unit's folder, for each `Alias=` one beside the unit, and the same for the units in
//! `Also=`.

mod install;
mod preset;

use crate::root::{Root, RootError};

use install::Install;

/// Where links and units of the administrator are.
const OWN: &str = "/etc/systemd/system";

/// Where unit files are looked for, first match first.
const SEARCH: [&str; 5] = [
    OWN,
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

const FOLDERS: [&str; 3] = [".wants", ".requires", ".upholds"];

/// As many units as `Also=` may lead through.
const MAX_ALSO: usize = 64;

/// Why a unit cannot be set to start at boot.
#[derive(Debug, thiserror::Error)]
pub enum UnitError {
    /// There is no such unit.
    #[error("Failed to {verb} unit, unit {unit} does not exist.")]
    Missing {
        /// What was asked for.
        verb: &'static str,
        /// The unit.
        unit: String,
    },
    /// The unit must not start at all.
    #[error("Failed to {verb} unit: Unit file {path} is masked.")]
    Masked {
        /// What was asked for.
        verb: &'static str,
        /// The unit file.
        path: String,
    },
    /// The tree cannot be read or written.
    #[error(transparent)]
    Root(#[from] RootError),
}

/// A unit file that was found.
struct Found {
    path: String,
    install: Install,
}

enum Lookup {
    Missing,
    Masked(String),
    Found(Found),
}

/// Makes a unit start at boot, by no other links than those its file asks for.
pub fn enable(root: &Root, unit: &str) -> Result<(), UnitError> {
    let mut wanted = Vec::new();
    let mut pending = vec![unit.to_owned()];
    let mut seen = Vec::new();
    while let Some(unit) = pending.pop() {
        if seen.contains(&unit) || seen.len() > MAX_ALSO {
            continue;
        }
        let found = match lookup(root, &unit)? {
            Lookup::Missing if seen.is_empty() => {
                return Err(UnitError::Missing { verb: "enable", unit });
            }
            Lookup::Masked(path) if seen.is_empty() => {
                return Err(UnitError::Masked { verb: "enable", path });
            }
            // As systemctl does for the units that only `Also=` names.
            Lookup::Missing | Lookup::Masked(_) => continue,
            Lookup::Found(found) => found,
        };
        wanted
            .extend(found.install.links(&unit).into_iter().map(|link| (link, found.path.clone())));
        pending.extend(found.install.also.iter().cloned());
        seen.push(unit);
    }
    // New links first: a crash in between leaves a link too many and never a unit that is off.
    for (link, target) in &wanted {
        root.link(target, &format!("{OWN}/{link}"))?;
    }
    for link in links_to(root, unit)? {
        if !wanted.iter().any(|(kept, _)| *kept == link) {
            unlink(root, &link)?;
        }
    }
    Ok(())
}

/// Makes a unit, and those its file names in `Also=`, not start at boot.
pub fn disable(root: &Root, unit: &str) -> Result<(), UnitError> {
    let also = match lookup(root, unit)? {
        Lookup::Found(found) => found.install.also,
        Lookup::Missing | Lookup::Masked(_) => Vec::new(),
    };
    for unit in std::iter::once(unit.to_owned()).chain(also) {
        for link in links_to(root, &unit)? {
            unlink(root, &link)?;
        }
    }
    Ok(())
}

/// Makes a unit start at boot or not, as the operating system's presets say.
pub fn preset(root: &Root, unit: &str) -> Result<(), UnitError> {
    match lookup(root, unit)? {
        Lookup::Missing => Err(UnitError::Missing { verb: "preset", unit: unit.to_owned() }),
        Lookup::Masked(path) => Err(UnitError::Masked { verb: "preset", path }),
        Lookup::Found(_) if preset::enables(root, unit)? => enable(root, unit),
        Lookup::Found(_) => disable(root, unit),
    }
}

/// Whether a unit starts at boot, in systemd's words.
pub fn state(root: &Root, unit: &str) -> Result<&'static str, UnitError> {
    let found = match lookup(root, unit)? {
        Lookup::Missing => return Ok("not-found"),
        Lookup::Masked(path) if path.starts_with("/run") => return Ok("masked-runtime"),
        Lookup::Masked(_) => return Ok("masked"),
        Lookup::Found(found) => found,
    };
    Ok(if !links_to(root, unit)?.is_empty() {
        "enabled"
    } else if !found.install.links(unit).is_empty() {
        "disabled"
    } else if found.install.also.is_empty() {
        "static"
    } else {
        "indirect"
    })
}

/// Whether a unit file of this name is there, masked or not.
pub fn exists(root: &Root, unit: &str) -> Result<bool, UnitError> {
    Ok(!matches!(lookup(root, unit)?, Lookup::Missing))
}

/// The paths of all links by which a unit starts at boot.
pub fn links(root: &Root, unit: &str) -> Result<Vec<String>, RootError> {
    Ok(links_to(root, unit)?.into_iter().map(|link| format!("{OWN}/{link}")).collect())
}

/// The paths of all folders that are there for such links.
pub fn folders(root: &Root) -> Result<Vec<String>, RootError> {
    let names = root.list(OWN)?.into_iter();
    let is_folder = |name: &String| FOLDERS.iter().any(|suffix| name.ends_with(suffix));
    Ok(names.filter(is_folder).map(|name| format!("{OWN}/{name}")).collect())
}

/// The units that are switched on and off along with one, going by the text of its file.
#[must_use]
pub fn companions(unit: &str, text: &str) -> Vec<String> {
    let install = Install::parse(text);
    let links = install.links(unit);
    let instances = links.iter().filter_map(|link| link.rsplit('/').next().map(str::to_owned));
    install.also.iter().cloned().chain(instances.filter(|name| name != unit)).collect()
}

/// The text of the file that a unit is made from, if there is one and it is not masked.
pub fn text(root: &Root, unit: &str) -> Result<Option<String>, RootError> {
    match lookup(root, unit)? {
        Lookup::Missing | Lookup::Masked(_) => Ok(None),
        Lookup::Found(found) => {
            let bytes = root.read(&found.path)?.unwrap_or_default();
            Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
        }
    }
}

/// Takes away what a crash in the middle of making a link for the unit left behind.
pub fn sweep(root: &Root, unit: &str) -> Result<(), RootError> {
    for name in root.list(OWN)? {
        if FOLDERS.iter().any(|suffix| name.ends_with(suffix)) {
            root.sweep(&format!("{OWN}/{name}/{unit}"))?;
        }
    }
    root.sweep(&format!("{OWN}/{unit}"))?;
    Ok(())
}

fn lookup(root: &Root, unit: &str) -> Result<Lookup, RootError> {
    for name in install::file_names(unit) {
        for folder in SEARCH {
            let path = format!("{folder}/{name}");
            if root.destination(&path)?.as_deref() == Some("/dev/null") {
                return Ok(Lookup::Masked(path));
            }
            if let Some(bytes) = root.read(&path)? {
                let install = Install::parse(&String::from_utf8_lossy(&bytes));
                return Ok(Lookup::Found(Found { path, install }));
            }
        }
    }
    Ok(Lookup::Missing)
}

/// The links by which a unit starts at boot, relative to the folder of units.
fn links_to(root: &Root, unit: &str) -> Result<Vec<String>, RootError> {
    let files = install::file_names(unit);
    let leads_here = |target: &str| {
        let last = target.rsplit('/').next().unwrap_or(target);
        target != "/dev/null" && (last == unit || files.iter().any(|file| file == last))
    };
    let mut links = Vec::new();
    for name in root.list(OWN)? {
        let path = format!("{OWN}/{name}");
        if FOLDERS.iter().any(|suffix| name.ends_with(suffix)) {
            for link in root.list(&path)? {
                let target = root.read_link(&format!("{path}/{link}"))?;
                // A template has many instances, each with its own links.
                let is_other_instance = link != unit && link.contains('@') && unit.contains('@');
                if link == unit || (target.is_some_and(|t| leads_here(&t)) && !is_other_instance) {
                    links.push(format!("{name}/{link}"));
                }
            }
        } else if name != unit && !name.contains('@') {
            let target = root.read_link(&path)?;
            if target.is_some_and(|target| leads_here(&target)) {
                links.push(name);
            }
        }
    }
    Ok(links)
}

fn unlink(root: &Root, link: &str) -> Result<(), RootError> {
    root.remove(&format!("{OWN}/{link}"))?;
    if let Some((folder, _)) = link.split_once('/') {
        root.remove_empty_directory(&format!("{OWN}/{folder}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
