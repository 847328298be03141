//! Decoding and validation of a 2.x document by its declared version.

use super::Config;
use crate::{
    json::Node,
    object::{Decoder, Field as _},
    report::{Path, Report},
    spec::Spec,
    target::TargetVersion,
    validate,
};

/// Decodes the document `root` by the rules of the 2.x version with the minor number of `spec`.
///
/// Returns the config, unless a fault is fatal, and all faults.
pub(crate) fn read(root: Node<'_>, spec: Spec) -> (Option<Config>, Report) {
    let mut decoder = Decoder::new(spec);
    let mut config = Config::default();
    config.decode(root, &mut decoder);
    let mut report = decoder.report;
    if spec == Spec::V3_0 {
        reject_negative_numbers(&config, &mut report);
        normalize_urls(&mut config);
    }
    if !report.is_fatal() {
        report.extend(validate::v2(spec, &config));
    }
    if report.is_fatal() {
        return (None, report);
    }
    set_implied_values(&mut config, spec);
    (Some(config), report)
}

/// Reports negative numbers in members that are unsigned in 2.0.
fn reject_negative_numbers(config: &Config, report: &mut Report) {
    let root = Path::default();
    let mut refuse = |number: Option<i64>, path: Path| {
        if number.is_some_and(|number| number < 0) {
            report.error(path, "a number of zero or more is needed here");
        }
    };
    for (at, file) in config.storage.files.iter().enumerate() {
        refuse(file.mode, root.member("storage").member("files").index(at).member("mode"));
    }
    for (disk, it) in config.storage.disks.iter().enumerate() {
        for (at, partition) in it.partitions.iter().enumerate() {
            let disks = root.member("storage").member("disks");
            let path = disks.index(disk).member("partitions").index(at);
            refuse(Some(partition.size), path.member("size"));
            refuse(Some(partition.start), path.member("start"));
        }
    }
    for (at, group) in config.passwd.groups.iter().enumerate() {
        refuse(group.gid, root.member("passwd").member("groups").index(at).member("gid"));
    }
    for (at, user) in config.passwd.users.iter().enumerate() {
        let uid = user.create.as_ref().and_then(|create| create.uid);
        refuse(uid, root.member("passwd").member("users").index(at).member("create").member("uid"));
    }
}

/// Sets the values that the declared version implies, so that the config has the same meaning in
/// 2.2.
fn set_implied_values(config: &mut Config, spec: Spec) {
    config.ignition.version = TargetVersion::V2_2.to_string();
    if spec >= Spec::V3_2 {
        return;
    }
    for file in &mut config.storage.files {
        file.mode.get_or_insert(0);
    }
    for directory in &mut config.storage.directories {
        directory.mode.get_or_insert(0);
    }
    if spec == Spec::V3_1 {
        return;
    }
    for file in &mut config.storage.files {
        for owner in [&mut file.user, &mut file.group] {
            owner.get_or_insert_default().id.get_or_insert(0);
        }
    }
    for user in &mut config.passwd.users {
        user.password_hash.take_if(|hash| hash.is_empty());
    }
}

/// Normalizes URLs. Compat: 2.0 stored URLs in parts and joined them again, with the scheme in
/// lower case and without an empty fragment.
fn normalize_urls(config: &mut Config) {
    let sources = &mut config.ignition.config;
    let references = sources.append.iter_mut().chain(&mut sources.replace);
    let references = references.map(|reference| &mut reference.source);
    let files = config.storage.files.iter_mut().map(|file| &mut file.contents.source);
    for source in references.chain(files) {
        let text = source.strip_suffix('#').unwrap_or(source);
        *source = match text.split_once(':') {
            Some((scheme, rest)) => format!("{}:{rest}", scheme.to_ascii_lowercase()),
            None => text.to_owned(),
        };
    }
}
