//! Validation by the rules of the 2.x specification, which are fewer and weaker.
//!
//! The checker's version is the 3.x version with the same minor number: 3.1 stands for 2.1.

use std::{borrow::Cow, collections::HashSet};

use super::{Checker, RuleResult, path, unit_file, url};
use crate::{
    config::Verification,
    report::{Path, Report},
    spec::Spec,
    v2::{
        Config, Contents, Disk, Dropin, File, Filesystem, Mount, NetworkdUnit, Owner, Partition,
        Raid, Reference, Unit, User,
    },
};

const RELATIVE: &str = "path not absolute";

/// Alignment of the first sector of every partition.
const ALIGNMENT: i64 = 2048;

/// Validates `config` by the rules of the 2.x version with the minor number of `spec`; returns all
/// faults.
pub(crate) fn v2(spec: Spec, config: &Config) -> Report {
    let mut checker = Checker { spec, path: Path::default(), report: Report::default() };
    checker.v2_config(config);
    checker.report
}

impl Checker {
    fn v2_config(&mut self, config: &Config) {
        self.at("ignition", |checker| {
            checker.at("config", |checker| {
                let sources = &config.ignition.config;
                checker.each("append", &sources.append, Self::v2_reference);
                if let Some(replace) = &sources.replace {
                    checker.at("replace", |checker| checker.v2_reference(replace));
                }
            });
            let authorities = &config.ignition.security.tls.certificate_authorities;
            checker.at("security", |checker| {
                checker.at("tls", |checker| {
                    checker.each("certificateAuthorities", authorities, Self::v2_reference);
                });
            });
        });
        let networkd = &config.networkd.units;
        self.at("networkd", |checker| checker.each("units", networkd, Self::v2_networkd));
        let users = &config.passwd.users;
        self.at("passwd", |checker| checker.each("users", users, Self::v2_user));
        self.at("storage", |checker| checker.v2_storage(config));
        let units = &config.systemd.units;
        self.at("systemd", |checker| checker.each("units", units, Self::v2_unit));
    }

    fn v2_storage(&mut self, config: &Config) {
        let storage = &config.storage;
        self.each("directories", &storage.directories, |checker, it| {
            checker.v2_node(&it.filesystem, &it.path, it.user.as_ref(), it.group.as_ref());
            checker.require("mode", mode(it.mode));
        });
        self.each("disks", &storage.disks, Self::v2_disk);
        self.each("files", &storage.files, Self::v2_file);
        self.each("filesystems", &storage.filesystems, Self::v2_filesystem);
        self.each("links", &storage.links, |checker, it| {
            checker.v2_node(&it.filesystem, &it.path, it.user.as_ref(), it.group.as_ref());
        });
        self.each("raid", &storage.raid, Self::v2_raid);
    }

    fn v2_reference(&mut self, reference: &Reference) {
        self.v2_source(&reference.source);
        self.v2_verification(&reference.verification);
    }

    fn v2_contents(&mut self, contents: &Contents) {
        if !matches!(contents.compression.as_str(), "" | "gzip") {
            self.error_at("compression", "invalid compression method");
        }
        self.v2_source(&contents.source);
        self.v2_verification(&contents.verification);
    }

    fn v2_source(&mut self, source: &str) {
        if let Err(message) = check_source(source, self.spec) {
            self.error_at("source", message);
        }
    }

    fn v2_verification(&mut self, verification: &Verification) {
        let Some(hash) = verification.hash.as_deref() else { return };
        let result = match hash.split_once('-') {
            None => Err("malformed hash specifier"),
            Some(("sha512", sum)) if sum.len() == 128 => Ok(()),
            Some(("sha512", _)) => Err("incorrect size for hash sum"),
            Some(_) => Err("unrecognized hash function"),
        };
        self.at("verification", |checker| checker.require("hash", result));
    }

    fn v2_node(
        &mut self,
        filesystem: &str,
        path: &str,
        user: Option<&Owner>,
        group: Option<&Owner>,
    ) {
        if filesystem.is_empty() {
            self.error_at("filesystem", "no filesystem specified");
        }
        self.require("path", absolute(path));
        for (member, owner) in [("user", user), ("group", group)] {
            if owner.is_some_and(|owner| owner.id.is_some() && !owner.name.is_empty()) {
                self.error_at(member, "cannot set both id and name");
            }
        }
    }

    fn v2_file(&mut self, file: &File) {
        if file.append && file.overwrite == Some(true) {
            self.error("cannot set both append and overwrite to true");
        }
        self.v2_node(&file.filesystem, &file.path, file.user.as_ref(), file.group.as_ref());
        self.require("mode", mode(file.mode));
        self.at("contents", |checker| checker.v2_contents(&file.contents));
    }

    fn v2_disk(&mut self, disk: &Disk) {
        if disk.device.is_empty() {
            self.error_at("device", "disk device is required");
        } else {
            self.require("device", absolute(&disk.device));
        }
        let mut numbers = HashSet::new();
        let numbered = disk.partitions.iter().filter(|partition| partition.number != 0);
        if numbered.clone().any(|partition| !numbers.insert(partition.number)) {
            self.error_at("partitions", "partition numbers collide");
        }
        if disk.partitions.iter().any(|one| disk.partitions.iter().any(|it| overlap(one, it))) {
            self.error_at("partitions", "partitions overlap");
        }
        if disk.partitions.iter().any(|partition| partition.start % ALIGNMENT != 0) {
            self.error_at("partitions", "partitions misaligned");
        }
        self.each("partitions", &disk.partitions, |checker, partition| {
            if partition.label.len() > 36 {
                checker.error_at("label", "partition labels may not exceed 36 characters");
            }
            if partition.label.contains(':') {
                let message = "partition label will be truncated to text before the colon";
                checker.warning_at("label", message);
            }
            checker.require("guid", super::disk::guid(Some(&partition.guid)));
            checker.require("typeGuid", super::disk::guid(Some(&partition.type_guid)));
        });
    }

    fn v2_filesystem(&mut self, filesystem: &Filesystem) {
        match (&filesystem.mount, &filesystem.path) {
            (None, None) => self.error("filesystem is missing mount or path"),
            (Some(_), Some(_)) => self.error("filesystem has both mount and path defined"),
            (Some(mount), None) => self.at("mount", |checker| checker.v2_mount(mount)),
            (None, Some(path)) => self.require("path", absolute(path)),
        }
    }

    fn v2_mount(&mut self, mount: &Mount) {
        if mount.create.is_some() && mount.wipe_filesystem {
            self.error("cannot use both create object and wipeFilesystem field");
        }
        if mount.create.is_some() && !mount.options.is_empty() {
            self.error("cannot use both create object and mount-level options field");
        }
        match mount.format.as_str() {
            "ext4" | "btrfs" | "xfs" => {}
            "swap" | "vfat" if self.spec >= Spec::V3_1 => {}
            _ => self.error("invalid filesystem format"),
        }
        self.require("device", absolute(&mount.device));
        let label = mount.label.as_deref().unwrap_or_default();
        self.require("label", super::disk::label_fits(label, &mount.format));
    }

    fn v2_raid(&mut self, raid: &Raid) {
        match raid.level.as_str() {
            "linear" | "raid0" | "0" | "stripe" if raid.spares != 0 => {
                let message = "spares unsupported for arrays with a level greater than 0";
                self.error_at("level", message);
            }
            "linear" | "raid0" | "0" | "stripe" | "raid1" | "1" | "mirror" | "raid4" | "4"
            | "raid5" | "5" | "raid6" | "6" | "raid10" | "10" => {}
            _ => self.error_at("level", "unrecognized raid level"),
        }
        self.each("devices", &raid.devices, |checker, device| {
            if absolute(device).is_err() {
                checker.error(RELATIVE);
            }
        });
    }

    fn v2_user(&mut self, user: &User) {
        if user.create.is_none() {
            return;
        }
        let members = [
            ("gecos", !user.gecos.is_empty()),
            ("groups", !user.groups.is_empty()),
            ("homeDir", !user.home_dir.is_empty()),
            ("noCreateHome", user.no_create_home),
            ("noLogInit", user.no_log_init),
            ("noUserGroup", user.no_user_group),
            ("primaryGroup", !user.primary_group.is_empty()),
            ("shell", !user.shell.is_empty()),
            ("system", user.system),
            ("uid", user.uid.is_some()),
        ];
        for (member, _) in members.iter().filter(|(_, set)| *set) {
            let message =
                format!("cannot use both the create object and the user-level {member} field");
            self.error(message);
        }
    }

    fn v2_unit(&mut self, unit: &Unit) {
        self.require("name", super::systemd::unit_name(&unit.name));
        match unit_file::parse(&unit.contents) {
            Err(message) => self.error_at("contents", format!("invalid unit content: {message}")),
            Ok(sections) => {
                let is_enabled = unit.enable || unit.enabled == Some(true);
                if is_enabled && !unit.contents.is_empty() && !sections.install {
                    let message = format!(
                        "unit {:?} is enabled, but has no install section so enable does nothing",
                        unit.name
                    );
                    self.warning_at("contents", message);
                }
            }
        }
        self.each("dropins", &unit.dropins, |checker, dropin| {
            checker.v2_dropin(dropin, "invalid systemd drop-in extension");
        });
    }

    fn v2_networkd(&mut self, unit: &NetworkdUnit) {
        if let Err(message) = unit_file::parse(&unit.contents) {
            self.error_at("contents", format!("invalid unit content: {message}"));
        }
        if !matches!(path::extension(&unit.name), ".link" | ".netdev" | ".network") {
            self.error_at("name", "invalid networkd unit extension");
        }
        self.each("dropins", &unit.dropins, |checker, dropin| {
            checker.v2_dropin(dropin, "invalid networkd drop-in extension");
        });
    }

    fn v2_dropin(&mut self, dropin: &Dropin, message: &'static str) {
        if let Err(message) = unit_file::parse(&dropin.contents) {
            self.error_at("contents", format!("invalid unit content: {message}"));
        }
        if path::extension(&dropin.name) != ".conf" {
            self.error_at("name", message);
        }
    }
}

/// Checks that 2.x can fetch from `source`; an empty source means an empty file.
fn check_source(source: &str, spec: Spec) -> Result<(), Cow<'static, str>> {
    if source.is_empty() {
        return Ok(());
    }
    let url = url::Url::parse(source).ok_or(url::UNREADABLE)?;
    match url.scheme.as_str() {
        "http" | "https" | "oem" => Ok(()),
        "tftp" if spec >= Spec::V3_1 => Ok(()),
        "s3" if spec >= Spec::V3_1 => Ok(url::object_version(&url)?),
        "data" => crate::data_url::check(source).map_err(|error| error.to_string().into()),
        _ => Err(url::BAD_SCHEME.into()),
    }
}

fn absolute(path: &str) -> RuleResult {
    if path.starts_with('/') { Ok(()) } else { Err(RELATIVE) }
}

fn mode(mode: Option<i64>) -> RuleResult {
    match mode {
        Some(mode) if !(0..=0o7777).contains(&mode) => Err("illegal file mode"),
        Some(_) | None => Ok(()),
    }
}

/// Returns true if two partitions with a fixed start overlap.
///
/// Compat: partitions that are equal in all members count as one.
fn overlap(one: &Partition, other: &Partition) -> bool {
    if one == other || one.start == 0 || other.start == 0 {
        return false;
    }
    let end = |partition: &Partition| match partition.size {
        0 => partition.start,
        size => partition.start.wrapping_add(size).wrapping_sub(1),
    };
    let within = |at: i64| other.start <= at && at <= end(other);
    within(one.start) || within(end(one)) || (one.start < other.start && end(one) > end(other))
}
