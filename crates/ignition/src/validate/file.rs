//! Rules for files, directories and links.

use std::collections::{HashMap, HashSet};

use super::{Checker, Keys, RuleResult, path};
use crate::{
    config::{Config, Directory, Disk, File, Link, Owner, Storage},
    report::Path,
    spec::Spec,
};

impl Checker {
    /// Rejects files at the path of a unit or drop-in of the config.
    pub(super) fn units_and_paths(&mut self, config: &Config) {
        const UNITS: &str = "/etc/systemd/system/";
        let Storage { files, directories, links, .. } = &config.storage;
        let candidates = files.iter().map(|file| ("files", &file.path));
        let candidates = candidates.chain(directories.iter().map(|it| ("directories", &it.path)));
        let mut candidates = candidates.chain(links.iter().map(|link| ("links", &link.path)));
        if !candidates.any(|(_, path)| path.starts_with(UNITS)) {
            return;
        }
        let mut taken = HashSet::new();
        for unit in &config.systemd.units {
            if has_text(unit.contents.as_deref()) {
                taken.insert(format!("{UNITS}{}", unit.name));
            }
            for dropin in &unit.dropins {
                if has_text(dropin.contents.as_deref()) {
                    taken.insert(format!("{UNITS}{}.d/{}", unit.name, dropin.name));
                }
            }
        }
        let mut report = |list: &'static str, index: usize, path: &str| {
            if taken.contains(path) {
                let path = Path::default().member("storage").member(list).index(index);
                self.report
                    .error(path.member("path"), "path conflicts with systemd unit or dropin");
            }
        };
        files.iter().enumerate().for_each(|(at, it)| report("files", at, &it.path));
        directories.iter().enumerate().for_each(|(at, it)| report("directories", at, &it.path));
        links.iter().enumerate().for_each(|(at, it)| report("links", at, &it.path));
    }

    pub(super) fn storage(&mut self, storage: &Storage) {
        self.paths_through_links(storage);
        self.links(storage);
        self.filesystems_on_disks(storage);
        self.each("directories", &storage.directories, Self::directory);
        self.each("disks", &storage.disks, Self::disk);
        self.each("files", &storage.files, Self::file);
        self.each("filesystems", &storage.filesystems, Self::filesystem);
        self.each("links", &storage.links, Self::link);
        self.each("luks", &storage.luks, Self::luks);
        self.each("raid", &storage.raid, Self::raid);

        let mut paths = Keys::new();
        self.unique_among(&mut paths, "directories", &storage.directories);
        self.unique_among(&mut paths, "files", &storage.files);
        self.unique_among(&mut paths, "links", &storage.links);
        self.unique("disks", &storage.disks);
        self.unique("filesystems", &storage.filesystems);
        self.unique("luks", &storage.luks);
        self.unique("raid", &storage.raid);
    }

    fn file(&mut self, file: &File) {
        self.require("path", path::check(&file.path));
        self.mode(file.mode);
        if file.overwrite == Some(true) && file.contents.source.is_none() {
            self.error_at("overwrite", "overwrite must be false if source is unspecified");
        }
        self.owners(&file.user, &file.group);
        self.each("append", &file.append, Self::resource);
        self.at("contents", |checker| checker.resource(&file.contents));
    }

    fn directory(&mut self, directory: &Directory) {
        self.require("path", path::check(&directory.path));
        self.mode(directory.mode);
        self.owners(&directory.user, &directory.group);
    }

    fn link(&mut self, link: &Link) {
        self.require("path", path::check(&link.path));
        self.owners(&link.user, &link.group);
    }

    fn mode(&mut self, mode: Option<i64>) {
        let Some(mode) = mode else { return };
        if !(0..=0o7777).contains(&mode) {
            self.error_at("mode", "illegal file mode");
        }
        if mode & 0o7000 != 0 {
            self.warning_at("mode", SPECIAL_BITS);
        }
    }

    fn owners(&mut self, user: &Owner, group: &Owner) {
        for (member, owner) in [("group", group), ("user", user)] {
            if owner.id.is_some() && has_text(owner.name.as_deref()) {
                self.error_at(member, "cannot set both id and name");
            }
        }
    }

    /// Rejects entries below a link of the same config.
    fn paths_through_links(&mut self, storage: &Storage) {
        let links = Links::of(storage);
        if links.paths.is_empty() {
            return;
        }
        for (at, directory) in storage.directories.iter().enumerate() {
            for _ in 0..links.above(&directory.path) {
                self.entry("directories", at, "directory path includes link in config");
            }
        }
        for (at, file) in storage.files.iter().enumerate() {
            for _ in 0..links.above(&file.path) {
                self.entry("files", at, "file path includes link in config");
            }
        }
        for (at, link) in storage.links.iter().enumerate() {
            for _ in 0..links.above(&link.path) {
                self.entry("links", at, "link path includes link in config");
            }
        }
    }

    fn entry(&mut self, list: &'static str, at: usize, message: &str) {
        self.report.error(self.path.member(list).index(at), message);
    }

    fn links(&mut self, storage: &Storage) {
        for (at, link) in storage.links.iter().enumerate() {
            let target = link.target.as_deref().unwrap_or_default();
            if target.is_empty() && self.spec >= Spec::V3_3 {
                let path = self.path.member("links").index(at).member("target");
                self.report.error(path, "link target is required");
                continue;
            }
            if link.hard == Some(true) {
                self.hard_link(at, link, target, storage);
            }
        }
    }

    fn hard_link(&mut self, at: usize, link: &Link, target: &str, storage: &Storage) {
        let mut target = path::clean(target);
        if !target.starts_with('/') {
            target = path::clean(&format!("{}/{target}", link.path)).into_owned().into();
        }
        for _ in storage.directories.iter().filter(|directory| directory.path == target) {
            self.entry("links", at, "hard link target is a directory");
        }
        let path = self.path.member("links").index(at);
        for (member, owner) in [("user", &link.user), ("group", &link.group)] {
            for (part, is_set) in [("id", owner.id.is_some()), ("name", owner.name.is_some())] {
                if is_set {
                    let path = path.member(member).member(part);
                    self.report.warning(path, "user/group ignored for hard link");
                }
            }
        }
    }

    fn filesystems_on_disks(&mut self, storage: &Storage) {
        let disks: HashMap<&str, &Disk> =
            storage.disks.iter().map(|disk| (disk.device.as_str(), disk)).collect();
        for (at, filesystem) in storage.filesystems.iter().enumerate() {
            let Some(disk) = disks.get(filesystem.device.as_str()) else { continue };
            let wiped = filesystem.wipe_filesystem == Some(true);
            let message = if !disk.partitions.is_empty() {
                "filesystem overwrites partitioned device"
            } else if !wiped && disk.wipe_table == Some(true) {
                "device matches disk with wipeTable enabled; filesystem will be wiped"
            } else {
                continue;
            };
            let path = self.path.member("filesystems").index(at).member("device");
            self.report.warning(path, message);
        }
    }
}

const SPECIAL_BITS: &str = "setuid/setgid/sticky bits are not supported or functional in spec \
                            versions older than 3.6.0";

/// Number of links per path.
struct Links<'a> {
    paths: HashMap<&'a str, usize>,
}

impl<'a> Links<'a> {
    fn of(storage: &'a Storage) -> Self {
        let mut paths = HashMap::new();
        for link in &storage.links {
            *paths.entry(link.path.as_str()).or_default() += 1;
        }
        Self { paths }
    }

    /// Returns the number of links above `path`.
    fn above(&self, path: &str) -> usize {
        let parents = path.match_indices('/').filter_map(|(at, _)| path.get(..at));
        parents.filter_map(|parent| self.paths.get(parent)).sum()
    }
}

fn has_text(text: Option<&str>) -> bool {
    text.is_some_and(|text| !text.is_empty())
}

impl Checker {
    /// Reports a path that is set and is not absolute and clean.
    pub(super) fn optional_path(&mut self, member: &'static str, text: Option<&str>) {
        let result: RuleResult = text.filter(|text| !text.is_empty()).map_or(Ok(()), path::check);
        self.require(member, result);
    }
}
