//! Validation of volumes, and of the paths in them.

use std::collections::BTreeSet;

use mco_api::quantity::Quantity;
use serde_json::{Value, json};

use super::items;
use crate::{admit::name, failure::Fault, object};

const MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

const HOST_PATH_TYPES: [&str; 8] = [
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
];

/// Validates the volumes of a pod and returns the names of the valid ones.
pub(super) fn all(pod: &Value, place: &str, faults: &mut Vec<Fault>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (at, volume) in items(pod, "volumes") {
        let place = format!("{place}.volumes[{at}]");
        let mut found = source(volume, &place);
        let name = object::text(volume, &["name"]);
        let at = format!("{place}.name");
        if name.is_empty() {
            found.push(Fault::required(at.clone(), ""));
        }
        for rule in name::label_faults(name).iter().filter(|_| !name.is_empty()) {
            found.push(Fault::invalid(at.clone(), &json!(name), rule));
        }
        if names.contains(name) {
            found.push(Fault::duplicate(at, name));
        }
        if found.is_empty() {
            names.insert(name.to_owned());
        }
        faults.extend(found);
    }
    names
}

/// The types of volumes, in the order in which they are validated.
const SOURCES: [&str; 30] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

fn source(volume: &Value, place: &str) -> Vec<Fault> {
    let mut given = SOURCES.iter().filter_map(|name| Some((*name, volume.get(*name)?)));
    let Some((first, source)) = given.next() else {
        return vec![Fault::required(place, "must specify a volume type")];
    };
    let mut faults = of_type(first, source, &format!("{place}.{first}"));
    let rule = "may not specify more than 1 volume type";
    faults.extend(given.map(|(name, _)| Fault::forbidden(format!("{place}.{name}"), rule)));
    faults
}

fn of_type(kind: &str, source: &Value, place: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    let of = |field| object::text(source, &[field]);
    match kind {
        "emptyDir" => {
            let limit = Quantity::parse(of("sizeLimit"));
            if limit.is_ok_and(|limit| limit.is_negative()) {
                let rule = "SizeLimit field must be a valid resource quantity";
                faults.push(Fault::forbidden(format!("{place}.sizeLimit"), rule));
            }
        }
        "hostPath" => {
            faults.extend(missing(source, "path", place));
            if !of("path").is_empty() {
                faults.extend(no_steps_back(of("path"), &format!("{place}.path")));
                if !HOST_PATH_TYPES.contains(&of("type")) {
                    let place = format!("{place}.type");
                    faults.push(Fault::not_supported(place, of("type"), &HOST_PATH_TYPES));
                }
            }
        }
        "secret" => {
            faults.extend(missing(source, "secretName", place));
            faults.extend(files(source, place));
        }
        "configMap" => {
            faults.extend(missing(source, "name", place));
            faults.extend(files(source, place));
        }
        "persistentVolumeClaim" => faults.extend(missing(source, "claimName", place)),
        "nfs" => {
            faults.extend(missing(source, "server", place));
            faults.extend(missing(source, "path", place));
        }
        "csi" => faults.extend(missing(source, "driver", place)),
        _ => {}
    }
    faults
}

/// Returns the error for a text that is empty.
fn missing(source: &Value, field: &str, place: &str) -> Option<Fault> {
    let is_missing = object::text(source, &[field]).is_empty();
    is_missing.then(|| Fault::required(format!("{place}.{field}"), ""))
}

/// Validates the files that a volume has.
fn files(source: &Value, place: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    faults.extend(mode(source, "defaultMode", place));
    for (at, item) in items(source, "items") {
        let place = format!("{place}.items[{at}]");
        faults.extend(["key", "path"].iter().filter_map(|field| missing(item, field, &place)));
        let (at, path) = (format!("{place}.path"), object::text(item, &["path"]));
        faults.extend(relative(path, &at));
        if path.starts_with("..") && !path.starts_with("../") {
            faults.push(Fault::invalid(at, &json!(path), "must not start with '..'"));
        }
        faults.extend(mode(item, "mode", &place));
    }
    faults
}

fn mode(source: &Value, field: &str, place: &str) -> Option<Fault> {
    let value = source.get(field)?;
    let is_mode = value.as_i64().is_none_or(|mode| (0..=0o777).contains(&mode));
    (!is_mode).then(|| Fault::invalid(format!("{place}.{field}"), value, MODE))
}

/// Validates a path below another one.
pub(super) fn relative(path: &str, place: &str) -> Vec<Fault> {
    let rule = "must be a relative path";
    let absolute = path.starts_with('/').then(|| Fault::invalid(place, &json!(path), rule));
    absolute.into_iter().chain(no_steps_back(path, place)).collect()
}

fn no_steps_back(path: &str, place: &str) -> Option<Fault> {
    let steps_back = path.split('/').any(|part| part == "..");
    steps_back.then(|| Fault::invalid(place, &json!(path), "must not contain '..'"))
}
