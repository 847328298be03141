//! Checks for features of 2.2 that 3.x does not support.

use std::collections::{HashMap, HashSet};

use super::Untranslatable;
use crate::{
    report::{Path, Report},
    v2::{Config, Disk, Storage, Unit},
    validate,
};

/// Rejects features that 3.x does not support.
pub(super) fn check(config: &Config) -> Result<(), Untranslatable> {
    no_partitions(&config.storage.disks)?;
    if !config.networkd.units.is_empty() {
        return Err(Untranslatable::Networkd);
    }
    if let Some(other) = config.storage.filesystems.iter().find(|it| it.name != "root") {
        return Err(Untranslatable::Filesystem(other.name.clone()));
    }
    paths(&config.storage)?;
    config.systemd.units.iter().try_for_each(dropins)?;
    one_source(config)
}

fn no_partitions(disks: &[Disk]) -> Result<(), Untranslatable> {
    let mut report = Report::default();
    for (at, disk) in disks.iter().enumerate() {
        for number in 0..disk.partitions.len() {
            let disk = Path::default().member("storage").member("disks").index(at);
            let partition = disk.member("partitions").index(number);
            report.error(partition.member("size"), "size is deprecated; use sizeMB instead");
            report.error(partition.member("start"), "start is deprecated; use startMB instead");
        }
    }
    if report.is_fatal() { Err(Untranslatable::Deprecated(report)) } else { Ok(()) }
}

/// Compat: the reference sets the source of every config to append to that of the last one, and
/// then rejects them as duplicates, so that more than one is never accepted.
fn one_source(config: &Config) -> Result<(), Untranslatable> {
    let sources = config.ignition.config.append.len();
    if sources < 2 {
        return Ok(());
    }
    let append = Path::default().member("ignition").member("config").member("append");
    let mut report = Report::default();
    report.error(append.index(1), "only one config can be appended");
    Err(Untranslatable::Invalid(report))
}

/// Rejects two entries for one path, and entries below a link of this config.
fn paths(storage: &Storage) -> Result<(), Untranslatable> {
    let clean = |path: &str| validate::clean_path(path).into_owned();
    let links: Vec<String> = storage.links.iter().map(|link| clean(&link.path)).collect();
    let files = storage.files.iter().map(|it| ("File", clean(&it.path)));
    let directories = storage.directories.iter().map(|it| ("Directory", clean(&it.path)));
    let own_links = links.iter().map(|path| ("Link", path.clone()));
    let mut seen: HashMap<String, &str> = HashMap::new();
    for (kind, path) in files.chain(directories).chain(own_links) {
        let entry = format!("{kind}: {path}");
        if let Some(old) = seen.insert(path.clone(), kind) {
            return Err(Untranslatable::SamePath { old: format!("{old}: {path}"), new: entry });
        }
        // Compat: any longer path whose text starts with the link's path counts as below the link.
        let above = |link: &&String| path != **link && path.starts_with(link.as_str());
        if let Some(link) = links.iter().find(above) {
            return Err(Untranslatable::OwnLink { entry, link: link.clone() });
        }
    }
    Ok(())
}

fn dropins(unit: &Unit) -> Result<(), Untranslatable> {
    let mut seen = HashSet::new();
    match unit.dropins.iter().find(|dropin| !seen.insert(&dropin.name)) {
        Some(twice) => {
            let (unit, name) = (unit.name.clone(), twice.name.clone());
            Err(Untranslatable::SameDropin { unit, name })
        }
        None => Ok(()),
    }
}
