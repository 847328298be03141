//! Enables, disables and inspects units without a running systemd: by links in the tree.
//!
//! The links are those that `systemctl --root` creates: for each name in `WantedBy=` and
//! `RequiredBy=` one in that unit's directory, for each `Alias=` one beside the unit, and the same
//! for the units in `Also=`.

mod install;
mod lines;
pub(crate) mod name;
mod preset;
mod tree;

use std::collections::{BTreeMap, VecDeque};

use mco_ignition::config;

use crate::root::{Root, RootError};

use self::{
    install::Install,
    name::{Kind, last},
};

pub(crate) use self::tree::PlannedTree;
pub use self::{install::LinkError, tree::UnitTree};

/// Directory of links and of the administrator's units.
const ETC: &str = "/etc/systemd/system";

/// Search path of unit files; the first match counts.
const SEARCH: [&str; 5] = [
    ETC,
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

const LINK_DIRECTORIES: [&str; 3] = [".wants", ".requires", ".upholds"];

/// Limit of units that `Also=` may lead through.
const MAX_ALSO: usize = 64;

/// Limit of aliases that may lead to one another.
const MAX_ALIASES: usize = 8;

/// A failure to enable, disable or preset a unit.
#[derive(Debug, thiserror::Error)]
pub enum UnitError {
    /// The unit does not exist.
    #[error("Failed to {verb} unit, unit {unit} does not exist.")]
    Missing {
        /// The attempted action.
        verb: &'static str,
        /// The unit.
        unit: String,
    },
    /// The unit is masked.
    #[error("Failed to {verb} unit, unit {path} is masked.")]
    Masked {
        /// The attempted action.
        verb: &'static str,
        /// The unit file.
        path: String,
    },
    /// The unit file asks for invalid links.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    InvalidLinks(Vec<LinkError>),
    /// A file cannot be read or written.
    #[error(transparent)]
    Root(#[from] RootError),
}

/// A unit file.
struct UnitFile {
    /// Name of the unit, after resolving aliases.
    name: String,
    path: String,
    install: Install,
}

enum Lookup {
    Missing,
    Masked(String),
    Found(Box<UnitFile>),
}

/// The treatment of invalid links that a unit file asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnInvalidLink {
    Fail,
    Skip,
}

/// The treatment of the link of another unit in the place of an alias.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnOtherLink {
    Fail,
    Replace,
}

/// Enables a unit with exactly the links that its file asks for.
///
/// The link of another unit in the place of an alias is a conflict, as for `systemctl enable`.
pub fn enable(root: &impl UnitTree, unit: &str) -> Result<(), UnitError> {
    enable_with(root, unit, OnInvalidLink::Fail, OnOtherLink::Fail)
}

/// Like [`enable`], but replaces the link of another unit in the place of an alias, as a running
/// systemd does for the daemon.
pub(crate) fn enable_replacing(root: &impl UnitTree, unit: &str) -> Result<(), UnitError> {
    enable_with(root, unit, OnInvalidLink::Fail, OnOtherLink::Replace)
}

fn enable_with(
    root: &impl UnitTree,
    unit: &str,
    on_invalid: OnInvalidLink,
    on_other: OnOtherLink,
) -> Result<(), UnitError> {
    let wanted = wanted_links(root, unit, on_other)?;
    if on_invalid == OnInvalidLink::Fail && !wanted.invalid.is_empty() {
        return Err(UnitError::InvalidLinks(wanted.invalid));
    }
    // New links first: a crash in between leaves a link too many and never a disabled unit.
    for (link, target) in &wanted.links {
        let path = format!("{ETC}/{link}");
        if !is_same_unit_link(root, &path, target)? {
            root.link(target, &path)?;
        }
    }
    for link in obsolete_links(root, &wanted)? {
        unlink(root, &link)?;
    }
    Ok(())
}

/// Enables a unit by `enable`, which calls systemd, and removes links that the unit's files asked
/// for earlier.
///
/// systemd decides which links there are: it is called again after a removal, and creates the
/// removed link again if it wants it.
pub(crate) fn enable_by<E: From<RootError>>(
    root: &Root,
    unit: &str,
    mut enable: impl FnMut() -> Result<(), E>,
) -> Result<(), E> {
    let before = links_to(root, unit)?;
    enable()?;
    let obsolete = match wanted_links(root, unit, OnOtherLink::Replace) {
        Ok(wanted) if wanted.invalid.is_empty() => obsolete_links(root, &wanted)?,
        Err(UnitError::Root(error)) => return Err(error.into()),
        // systemd accepts it; there is no telling which links are obsolete.
        Ok(_) | Err(_) => Vec::new(),
    };
    let mut has_removed = false;
    // Links that systemd has just created are not obsolete.
    for link in obsolete.iter().filter(|link| before.contains(link)) {
        unlink(root, link)?;
        has_removed = true;
    }
    if has_removed { enable() } else { Ok(()) }
}

/// The links that the files of a unit ask for.
struct WantedLinks {
    /// Name of the unit, after resolving aliases.
    name: String,
    /// Each link, relative to the directory of units, with its target.
    links: Vec<(String, String)>,
    invalid: Vec<LinkError>,
}

fn wanted_links(
    root: &impl UnitTree,
    unit: &str,
    on_other: OnOtherLink,
) -> Result<WantedLinks, UnitError> {
    let mut wanted = Vec::new();
    let mut invalid = Vec::new();
    let mut pending = VecDeque::from([unit.to_owned()]);
    let mut seen = Vec::new();
    let mut first = None;
    while let Some(unit) = pending.pop_front() {
        if seen.contains(&unit) || seen.len() > MAX_ALSO {
            continue;
        }
        let found = match lookup(root, &unit)? {
            Lookup::Missing if first.is_none() => {
                return Err(UnitError::Missing { verb: "enable", unit });
            }
            Lookup::Masked(path) if first.is_none() => {
                return Err(UnitError::Masked { verb: "enable", path });
            }
            // As systemctl does for units that only `Also=` names.
            Lookup::Missing | Lookup::Masked(_) => continue,
            Lookup::Found(found) => found,
        };
        if first.is_none() && found.name != unit && name::kind(&unit) != Some(Kind::Instance) {
            return Err(UnitError::InvalidLinks(vec![LinkError::Linked(unit)]));
        }
        seen.push(unit);
        match found.install.invalid {
            Some(invalid) if first.is_none() => return Err(UnitError::InvalidLinks(vec![invalid])),
            Some(_) => continue,
            None => {}
        }
        // Compat: the first setting that asks for a link decides: if one of its links is invalid, the
        // unit cannot be enabled, and invalid links of later settings do not count.
        let mut is_decided = false;
        for mut links in found.install.links(&found.name) {
            for alias in std::mem::take(&mut links.aliases) {
                match alias_conflict(root, &alias, &found.path, on_other)? {
                    Some(conflict) => links.invalid.push(conflict),
                    None => links.wanted.push(alias),
                }
            }
            if !is_decided {
                is_decided = !links.invalid.is_empty() || !links.wanted.is_empty();
                invalid.append(&mut links.invalid);
            }
            wanted.extend(links.wanted.into_iter().map(|link| (link, found.path.clone())));
        }
        pending.extend(found.install.also);
        first.get_or_insert(found.name);
    }
    let name = first.unwrap_or_else(|| unit.to_owned());
    Ok(WantedLinks { name, links: wanted, invalid })
}

/// Returns the links of a unit that its files do not ask for any longer.
fn obsolete_links(root: &impl UnitTree, wanted: &WantedLinks) -> Result<Vec<String>, RootError> {
    let unit = wanted.name.as_str();
    let is_obsolete = |link: &String| {
        // A template has many instances, and each of them is enabled by itself.
        let is_instance = name::kind(unit) == Some(Kind::Template)
            && name::kind(last(link)) == Some(Kind::Instance);
        !is_instance && !wanted.links.iter().any(|(kept, _)| kept == link)
    };
    Ok(links_to(root, unit)?.into_iter().filter(is_obsolete).collect())
}

/// Returns true if a link already leads to the same unit in another directory of system units.
fn is_same_unit_link(root: &impl UnitTree, path: &str, target: &str) -> Result<bool, RootError> {
    let present = root.read_link(path)?.unwrap_or_default();
    let is_system = |path: &str| path.contains("lib/systemd/system/");
    Ok(is_system(&present) && is_system(target) && last(&present) == last(target))
}

/// Returns the conflict of an alias with an existing file, if any.
fn alias_conflict(
    root: &impl UnitTree,
    alias: &str,
    path: &str,
    on_other: OnOtherLink,
) -> Result<Option<LinkError>, RootError> {
    let at = format!("{ETC}/{alias}");
    if !root.is_present(&at)? {
        return Ok(None);
    }
    let target = root.read_link(&at)?;
    // A link to the unit's file in another directory is an old link of the unit.
    let is_replaced =
        |target: &String| on_other == OnOtherLink::Replace || last(target) == last(path);
    if target.as_ref().is_some_and(is_replaced) {
        return Ok(None);
    }
    Ok(Some(LinkError::Exists { path: at, target }))
}

/// Disables a unit and those that its file names in `Also=`.
///
/// A masked unit keeps its links, as with systemctl.
pub fn disable(root: &impl UnitTree, unit: &str) -> Result<(), UnitError> {
    let mut pending = VecDeque::from([unit.to_owned()]);
    let mut seen = Vec::new();
    while let Some(unit) = pending.pop_front() {
        if seen.contains(&unit) || seen.len() > MAX_ALSO {
            continue;
        }
        let name = match lookup(root, &unit)? {
            Lookup::Masked(_) => continue,
            Lookup::Missing => unit.clone(),
            Lookup::Found(found) => {
                pending.extend(found.install.also);
                found.name
            }
        };
        seen.push(unit);
        remove_links(root, &name)?;
    }
    Ok(())
}

fn remove_links(root: &impl UnitTree, unit: &str) -> Result<(), UnitError> {
    for link in links_to(root, unit)? {
        unlink(root, &link)?;
    }
    Ok(())
}

/// Removes the links of a unit that does not exist any longer.
pub(crate) fn remove_dangling_links(root: &impl UnitTree, unit: &str) -> Result<(), RootError> {
    for link in links_to(root, unit)? {
        // An instance of a template may have a file of its own.
        if matches!(lookup(root, last(&link))?, Lookup::Missing) {
            unlink(root, &link)?;
        }
    }
    Ok(())
}

/// Enables or disables a unit according to the operating system's presets.
///
/// Does nothing for a masked unit or an alias, as systemctl does.
pub fn preset(root: &impl UnitTree, unit: &str) -> Result<(), UnitError> {
    match lookup(root, unit)? {
        Lookup::Missing => Err(UnitError::Missing { verb: "preset", unit: unit.to_owned() }),
        Lookup::Masked(_) => Ok(()),
        Lookup::Found(found) if found.name != unit => Ok(()),
        Lookup::Found(_) if preset::enables(root, unit)? => {
            enable_with(root, unit, OnInvalidLink::Skip, OnOtherLink::Fail)
        }
        // Units in `Also=` have presets of their own.
        Lookup::Found(found) => remove_links(root, &found.name),
    }
}

/// Returns the state of a unit file, in systemd's words.
pub fn state(root: &Root, unit: &str) -> Result<&'static str, UnitError> {
    let found = match lookup(root, unit)? {
        Lookup::Missing => return Ok("not-found"),
        Lookup::Masked(path) if path.starts_with("/run") => return Ok("masked-runtime"),
        Lookup::Masked(_) => return Ok("masked"),
        Lookup::Found(found)
            if found.name != unit && name::kind(&found.name) != Some(Kind::Instance) =>
        {
            return Ok("alias");
        }
        // systemd's word for a file that it does not load.
        Lookup::Found(found) if found.install.invalid.is_some() => return Ok("bad"),
        Lookup::Found(found) => found,
    };
    let links = links_to(root, &found.name)?;
    let is_known = |link: &String| found.install.asks_for(&found.name, last(link));
    Ok(if links.iter().any(is_known) {
        "enabled"
    } else if found.install.has_rules() {
        if links.is_empty() { "disabled" } else { "indirect" }
    } else if found.install.also.is_empty() {
        "static"
    } else {
        "indirect"
    })
}

/// Returns true if a unit file of exactly this name exists, masked or not.
///
/// Compat: an instance of a template does not count, as in systemd's list of unit files, so that an
/// instance without a file of its own is not enabled (pkg/daemon/update.go).
pub fn exists(root: &impl UnitTree, unit: &str) -> Result<bool, UnitError> {
    for folder in SEARCH {
        if root.is_present(&format!("{folder}/{unit}"))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the name of the unit after resolving aliases.
pub fn real_name(root: &Root, unit: &str) -> Result<String, RootError> {
    Ok(match lookup(root, unit)? {
        Lookup::Found(found) => found.name,
        Lookup::Missing | Lookup::Masked(_) => unit.to_owned(),
    })
}

/// Returns the paths of all links that enable a unit.
pub fn links(root: &impl UnitTree, unit: &str) -> Result<Vec<String>, RootError> {
    Ok(links_to(root, unit)?.into_iter().map(|link| format!("{ETC}/{link}")).collect())
}

/// Returns the paths of all directories for such links.
pub fn folders(root: &Root) -> Result<Vec<String>, RootError> {
    let names = root.list(ETC)?.into_iter();
    let is_folder = |name: &String| LINK_DIRECTORIES.iter().any(|suffix| name.ends_with(suffix));
    Ok(names.filter(is_folder).map(|name| format!("{ETC}/{name}")).collect())
}

/// Makes the links durable that systemd created or removed: the update's progress must not be ahead
/// of them after a power cut.
pub(crate) fn sync_links(root: &Root) -> Result<(), RootError> {
    for folder in folders(root)? {
        root.sync_names(&folder)?;
    }
    root.sync_names(ETC)
}

/// Returns true if the machine has a unit file of exactly this name that a mask in `/etc` may hide.
pub(crate) fn exists_below_mask(root: &impl UnitTree, unit: &str) -> Result<bool, RootError> {
    for folder in SEARCH.iter().filter(|folder| **folder != ETC) {
        if root.is_present(&format!("{folder}/{unit}"))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns true if the path is one of a unit or a drop-in.
pub(crate) fn is_unit_path(path: &str) -> bool {
    SEARCH.iter().any(|folder| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')))
}

/// Returns the aliases that the file and the drop-ins of a unit of a config ask for.
#[must_use]
pub fn aliases_in(unit: &config::Unit) -> Vec<String> {
    let mut install = Install::default();
    let dropins = unit.dropins.iter().filter_map(|dropin| dropin.contents.as_deref());
    for text in unit.contents.as_deref().into_iter().chain(dropins) {
        install.add(&unit.name, text);
    }
    install.links(&unit.name).into_iter().flat_map(|links| links.aliases).collect()
}

/// Returns the units that are enabled and disabled along with a unit, from the text of its file.
#[must_use]
pub fn companions(unit: &str, text: &str) -> Vec<String> {
    let install = Install::parse(unit, text);
    let default = install.default_unit(unit);
    install.also.into_iter().chain(default).collect()
}

/// Returns the units that are enabled and disabled along with a unit of a config, from its file and
/// its drop-ins.
#[must_use]
pub fn companions_in(unit: &config::Unit) -> Vec<String> {
    let dropins = unit.dropins.iter().filter_map(|dropin| dropin.contents.as_deref());
    let texts = unit.contents.as_deref().into_iter().chain(dropins);
    texts.flat_map(|text| companions(&unit.name, text)).collect()
}

/// Returns the text of a unit's file and of its drop-ins, if the unit exists and is not masked.
pub fn text(root: &Root, unit: &str) -> Result<Option<String>, RootError> {
    let Lookup::Found(found) = lookup(root, unit)? else { return Ok(None) };
    let mut text = String::new();
    for path in std::iter::once(found.path).chain(dropins(root, &found.name)?) {
        let bytes = root.read(&path).ok().flatten().unwrap_or_default();
        text.extend([&String::from_utf8_lossy(&bytes), "\n"]);
    }
    Ok(Some(text))
}

/// Returns the paths of a unit's drop-ins, in the order in which they count.
fn dropins(root: &impl UnitTree, unit: &str) -> Result<Vec<String>, RootError> {
    let mut found = BTreeMap::new();
    for name in install::file_names(unit) {
        for folder in SEARCH {
            let folder = format!("{folder}/{name}.d");
            let names = root.list(&folder)?.into_iter();
            for file in names.filter(|file| file.strip_suffix(".conf").is_some()) {
                // One of the same name in an earlier directory hides it.
                found.entry(file.clone()).or_insert(format!("{folder}/{file}"));
            }
        }
    }
    Ok(found.into_values().collect())
}

/// Removes temporary links of an interrupted write for the unit.
pub fn remove_temporary(root: &Root, unit: &str) -> Result<(), RootError> {
    for name in root.list(ETC)? {
        if LINK_DIRECTORIES.iter().any(|suffix| name.ends_with(suffix)) {
            root.remove_temporary(&format!("{ETC}/{name}/{unit}"))?;
        }
    }
    root.remove_temporary(&format!("{ETC}/{unit}"))?;
    Ok(())
}

fn lookup(root: &impl UnitTree, unit: &str) -> Result<Lookup, RootError> {
    let mut name = unit.to_owned();
    for _ in 0..MAX_ALIASES {
        match find(root, &name)? {
            Location::Missing => return Ok(Lookup::Missing),
            Location::Masked(path) => return Ok(Lookup::Masked(path)),
            Location::Alias(other) => name = other,
            Location::File(path, text) => {
                let mut install = Install::parse(&name, &text);
                for path in dropins(root, &name)? {
                    // One that cannot be read, such as a directory, does not count.
                    let bytes = root.read(&path).ok().flatten().unwrap_or_default();
                    install.add(&name, &String::from_utf8_lossy(&bytes));
                }
                return Ok(Lookup::Found(Box::new(UnitFile { name, path, install })));
            }
        }
    }
    Ok(Lookup::Missing)
}

enum Location {
    Missing,
    Masked(String),
    Alias(String),
    File(String, String),
}

fn find(root: &impl UnitTree, unit: &str) -> Result<Location, RootError> {
    for file in install::file_names(unit) {
        for folder in SEARCH {
            let path = format!("{folder}/{file}");
            if root.destination(&path)?.as_deref() == Some("/dev/null") {
                return Ok(Location::Masked(path));
            }
            let target = root.read_link(&path)?;
            if let Some(other) = target.as_deref().map(last).filter(|other| *other != file) {
                match (name::kind(other), name::instance(unit)) {
                    (Some(Kind::Template), Some(instance)) => {
                        return Ok(Location::Alias(name::with_instance(other, instance)));
                    }
                    (Some(_), _) => return Ok(Location::Alias(other.to_owned())),
                    (None, _) => {}
                }
            }
            if root.is_directory(&path)? {
                continue;
            }
            if let Some(bytes) = root.read(&path)? {
                // systemd treats an empty file as a mask.
                return Ok(if bytes.is_empty() {
                    Location::Masked(path)
                } else {
                    Location::File(path, String::from_utf8_lossy(&bytes).into_owned())
                });
            }
        }
    }
    Ok(Location::Missing)
}

/// Returns the links that enable a unit, relative to the directory of units: those of its name,
/// those that lead to its file, and for a template those of its instances.
fn links_to(root: &impl UnitTree, unit: &str) -> Result<Vec<String>, RootError> {
    let is_ours = |link: &str, target: &str| {
        link == unit || last(target) == unit || name::template(link).as_deref() == Some(unit)
    };
    let mut links = Vec::new();
    for name in root.list(ETC)? {
        let path = format!("{ETC}/{name}");
        if LINK_DIRECTORIES.iter().any(|suffix| name.ends_with(suffix)) {
            for link in root.list(&path)? {
                let target = root.read_link(&format!("{path}/{link}"))?;
                if target.is_some_and(|target| is_ours(&link, &target)) {
                    links.push(format!("{name}/{link}"));
                }
            }
        } else if name != unit {
            let target = root.read_link(&path)?;
            if target.is_some_and(|target| target != "/dev/null" && is_ours(&name, &target)) {
                links.push(name);
            }
        }
    }
    Ok(links)
}

fn unlink(root: &impl UnitTree, link: &str) -> Result<(), RootError> {
    root.remove(&format!("{ETC}/{link}"))?;
    if let Some((folder, _)) = link.split_once('/') {
        root.remove_empty_directory(&format!("{ETC}/{folder}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
