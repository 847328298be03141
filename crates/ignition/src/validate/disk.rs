//! Rules for disks, partitions, filesystems, RAID arrays and encrypted volumes.

use std::collections::HashSet;

use super::{Checker, RuleResult, path, url};
use crate::{
    config::{Clevis, ClevisCustom, Disk, Filesystem, Luks, Partition, Raid, Tang},
    json,
    spec::Spec,
};

impl Checker {
    pub(super) fn disk(&mut self, disk: &Disk) {
        if disk.device.is_empty() {
            self.error_at("device", "disk device is required");
        } else {
            self.require("device", path::check(&disk.device));
            self.partitions_together(&disk.partitions);
        }
        self.each("partitions", &disk.partitions, Self::partition);
        self.unique("partitions", &disk.partitions);
    }

    fn partitions_together(&mut self, partitions: &[Partition]) {
        let mut numbers = HashSet::new();
        let mut labels = HashSet::new();
        for (at, partition) in partitions.iter().enumerate() {
            let path = self.path.member("partitions").index(at);
            if partition.number != 0 && !numbers.insert(partition.number) {
                self.report.error(path.clone(), "partition numbers collide");
            }
            if overlaps_another(partitions, at, partition) {
                self.report.error(path.clone(), "partitions overlap");
            }
            if partition.label.as_ref().is_some_and(|label| !labels.insert(label)) {
                self.report.error(path, "cannot use the same partition label twice");
            }
        }
        let removes = partitions.iter().any(|partition| partition.should_exist == Some(false));
        if removes && partitions.iter().any(|partition| partition.number == 0) {
            self.error_at(
                "partitions",
                "shouldExist is false for a partition and other partition(s) has start or size 0",
            );
        }
    }

    fn partition(&mut self, partition: &Partition) {
        let described = partition.label.is_some()
            || has_text(partition.type_guid.as_deref())
            || has_text(partition.guid.as_deref())
            || partition.start_mib.is_some()
            || partition.size_mib.is_some();
        if partition.should_exist == Some(false) && described {
            self.error("shouldExist specified false with other options also specified");
        }
        if partition.number == 0 && partition.label.is_none() {
            self.error("a partition number >= 1 or a label must be specified");
        }
        self.require("label", partition_label(partition.label.as_deref()));
        self.require("guid", guid(partition.guid.as_deref()));
        self.require("typeGuid", guid(partition.type_guid.as_deref()));
    }

    pub(super) fn filesystem(&mut self, filesystem: &Filesystem) {
        self.optional_path("path", filesystem.path.as_deref());
        self.require("device", path::check(&filesystem.device));
        self.require("format", filesystem_format(filesystem, self.spec));
        self.require("label", filesystem_label(filesystem));
    }

    pub(super) fn raid(&mut self, raid: &Raid) {
        self.require("level", raid_level(raid, self.spec));
        if raid.devices.is_empty() {
            self.error_at("devices", "raid devices required");
        }
        self.each("devices", &raid.devices, |checker, device| {
            if let Err(message) = path::check(device) {
                checker.error(message);
            }
        });
        self.unique("devices", &raid.devices);
    }

    pub(super) fn luks(&mut self, luks: &Luks) {
        if luks.name.contains('/') {
            self.error_at("name", "device names cannot contain slashes");
        }
        if luks.label.as_ref().is_some_and(|label| label.len() > 47) {
            self.error_at("label", "luks device labels cannot be longer than 47 characters");
        }
        match luks.device.as_deref() {
            None | Some("") => self.error_at("device", "disk device is required"),
            Some(device) => self.require("device", path::check(device)),
        }
        let custom = match self.spec {
            Spec::V3_0 | Spec::V3_1 | Spec::V3_2 => luks.clevis.custom.pin.is_some(),
            Spec::V3_3 | Spec::V3_4 | Spec::V3_5 => has_text(luks.clevis.custom.pin.as_deref()),
        };
        if custom && has_pins(&luks.clevis) {
            self.error_at(
                "clevis",
                "cannot use custom clevis config with tpm2, tang, or threshold",
            );
        }
        let key = luks.key_file.source.as_deref();
        if url::check_optional(key, self.spec).is_err() {
            // Compat: this member does not exist, but the reference reports the fault on it.
            self.error_at("keys", "invalid key-file source");
        }
        if luks.cex.enabled == Some(true) {
            if has_text(luks.clevis.custom.pin.as_deref()) || has_pins(&luks.clevis) {
                self.error_at("cex", "cannot use cex with clevis");
            }
            if has_text(key) {
                self.error_at("cex", "cannot use key file with cex");
            }
        }
        self.at("clevis", |checker| checker.clevis(&luks.clevis));
        self.at("keyFile", |checker| checker.resource(&luks.key_file));
        self.unique("openOptions", &luks.open_options);
    }

    fn clevis(&mut self, clevis: &Clevis) {
        self.at("custom", |checker| checker.custom_pin(&clevis.custom));
        self.each("tang", &clevis.tang, Self::tang);
        self.unique("tang", &clevis.tang);
    }

    fn custom_pin(&mut self, custom: &ClevisCustom) {
        let pin = custom.pin.as_deref().unwrap_or_default();
        let config = custom.config.as_deref().unwrap_or_default();
        let needs_network = self.spec >= Spec::V3_3 && custom.needs_network == Some(true);
        if pin.is_empty() && config.is_empty() && !needs_network {
            return;
        }
        match pin {
            "tpm2" | "tang" | "sss" => {}
            "" if self.spec >= Spec::V3_3 => {
                self.error_at("pin", "missing required custom clevis pin");
            }
            _ => self.error_at("pin", "unsupported clevis pin"),
        }
        if config.is_empty() {
            self.error_at("config", "missing required custom clevis config");
        }
    }

    fn tang(&mut self, tang: &Tang) {
        match url::Url::parse(&tang.url) {
            None => self.error_at("url", url::UNREADABLE),
            Some(url) if matches!(url.scheme.as_str(), "http" | "https") => {}
            Some(_) => self.error_at("url", url::BAD_SCHEME),
        }
        if !has_text(tang.thumbprint.as_deref()) {
            self.error_at("thumbprint", "thumbprint is required");
        }
        let advertisement = tang.advertisement.as_deref().unwrap_or_default();
        let is_json = json::parse(advertisement.as_bytes())
            .is_ok_and(|advertisement| advertisement.has_finite_numbers());
        if !advertisement.is_empty() && !is_json {
            self.error_at("advertisement", "advertisement is not valid JSON");
        }
    }
}

/// Returns true if a pin other than the custom one is configured.
fn has_pins(clevis: &Clevis) -> bool {
    let threshold = clevis.threshold.is_some_and(|threshold| threshold != 0);
    !clevis.tang.is_empty() || clevis.tpm2 == Some(true) || threshold
}

fn has_text(text: Option<&str>) -> bool {
    text.is_some_and(|text| !text.is_empty())
}

/// Returns true if the partition at `at` overlaps another one. Of two partitions the later one is
/// reported, unless only the earlier one overlaps: ends may wrap around.
fn overlaps_another(partitions: &[Partition], at: usize, partition: &Partition) -> bool {
    let mut others = partitions.iter().enumerate();
    others.any(|(index, other)| {
        (index < at && overlap(other, partition))
            || (index > at && overlap(other, partition) && !overlap(partition, other))
    })
}

/// Returns true if a partition with a fixed start begins or ends within another one, or contains
/// it.
fn overlap(one: &Partition, other: &Partition) -> bool {
    let (Some(one), Some(other)) = (extent(one), extent(other)) else { return false };
    let within = |at: i64| other.0 <= at && at <= other.1;
    within(one.0) || within(one.1) || (one.0 < other.0 && one.1 > other.1)
}

/// Returns the first and last MiB of a partition, if both are given. A size of zero means the free
/// space, which is not known here.
fn extent(partition: &Partition) -> Option<(i64, i64)> {
    let start = partition.start_mib.filter(|start| *start != 0)?;
    let size = partition.size_mib?;
    let end = if size == 0 { start } else { start.wrapping_add(size).wrapping_sub(1) };
    Some((start, end))
}

fn partition_label(label: Option<&str>) -> RuleResult {
    match label {
        Some(label) if label.len() > 36 => Err("partition labels may not exceed 36 characters"),
        Some(label) if label.contains(':') => {
            Err("partition label will be truncated to text before the colon")
        }
        Some(_) | None => Ok(()),
    }
}

pub(super) fn guid(guid: Option<&str>) -> RuleResult {
    const FORM: &str = "01234567-89AB-CDEF-EDCB-A98765432101";
    let guid = guid.unwrap_or_default();
    let fits = |(byte, form): (u8, u8)| match form {
        b'-' => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    let same_form = guid.len() == FORM.len() && guid.bytes().zip(FORM.bytes()).all(fits);
    if guid.is_empty() || same_form {
        Ok(())
    } else {
        Err("doesn't match the form \"01234567-89AB-CDEF-EDCB-A98765432101\"")
    }
}

fn filesystem_format(filesystem: &Filesystem, spec: Spec) -> RuleResult {
    match filesystem.format.as_deref() {
        None | Some("") => {
            let described = has_text(filesystem.path.as_deref())
                || has_text(filesystem.label.as_deref())
                || has_text(filesystem.uuid.as_deref())
                || filesystem.wipe_filesystem == Some(true)
                || !filesystem.mount_options.is_empty()
                || !filesystem.options.is_empty();
            if described {
                return Err("format cannot be empty when path, label, uuid, wipeFilesystem, \
                            options, or mountOptions is specified");
            }
            Ok(())
        }
        Some("ext4" | "btrfs" | "xfs" | "swap" | "vfat") => Ok(()),
        Some("none") if spec >= Spec::V3_3 => Ok(()),
        Some(_) => Err("invalid filesystem format"),
    }
}

fn filesystem_label(filesystem: &Filesystem) -> RuleResult {
    match (filesystem.label.as_deref(), filesystem.format.as_deref()) {
        (None | Some(""), _) => Ok(()),
        (Some(_), None | Some("")) => Err("filesystem must specify format if label is specified"),
        (Some(label), Some(format)) => label_fits(label, format),
    }
}

/// Checks that a filesystem of this format can have this label.
pub(super) fn label_fits(label: &str, format: &str) -> RuleResult {
    let (longest, message) = match format {
        "ext4" => (16, "filesystem labels cannot be longer than 16 characters when using ext4"),
        "btrfs" => (256, "filesystem labels cannot be longer than 256 characters when using btrfs"),
        "xfs" => (12, "filesystem labels cannot be longer than 12 characters when using xfs"),
        "swap" => (15, "filesystem labels cannot be longer than 15 characters when using swap"),
        "vfat" => (11, "filesystem labels cannot be longer than 11 characters when using vfat"),
        _ => return Ok(()),
    };
    if label.len() > longest { Err(message) } else { Ok(()) }
}

fn raid_level(raid: &Raid, spec: Spec) -> RuleResult {
    match raid.level.as_deref().unwrap_or_default() {
        "" if spec >= Spec::V3_3 => Err("raid level is required"),
        "linear" | "raid0" | "0" | "stripe" => {
            if raid.spares.is_some_and(|spares| spares != 0) {
                return Err("spares unsupported for linear and raid0 arrays");
            }
            Ok(())
        }
        "raid1" | "1" | "mirror" | "raid4" | "4" | "raid5" | "5" | "raid6" | "6" | "raid10"
        | "10" => Ok(()),
        _ => Err("unrecognized raid level"),
    }
}
