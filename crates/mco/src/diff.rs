//! Differences between two configs, decoded.
//!
//! Equal contents in different encodings are no difference. Results never contain password hashes,
//! and contain lines that look like secrets only on request.

use std::collections::{BTreeMap, BTreeSet};

use mco_api::MachineConfigSpec;
use mco_core::lint::secret;
use mco_ignition::config::{File, Owner, Unit};
use serde_json::Value;

use crate::decoded::{self, DecodedConfig};

/// A difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// `file`, `unit`, `drop-in`, `user`, `setting` and so on.
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) operation: ChangeKind,
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) contents: Option<Contents>,
}

/// The kind of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    Added,
    Removed,
    Changed,
}

/// A short value that differs; `None` on the side that lacks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attribute {
    pub(crate) name: &'static str,
    pub(crate) old: Option<String>,
    pub(crate) new: Option<String>,
}

/// Contents that differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// Text, compared line by line.
    Text { old: String, new: String },
    /// Binary contents, reported by their size.
    Binary { old: usize, new: usize },
    /// Contents that differ only in hidden lines.
    Hidden,
}

/// The handling of lines that look like secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Secrets {
    Hide,
    Show,
}

/// Returns all differences: settings first, then files, units, and the rest.
pub(crate) fn between(old: &DecodedConfig, new: &DecodedConfig, secrets: Secrets) -> Vec<Change> {
    let mut changes = settings(&old.spec, &new.spec);
    let files = |config: &DecodedConfig| -> BTreeMap<String, Entry> {
        let files = config.config.storage.files.iter();
        files.map(|file| (file.path.clone(), file_entry(file))).collect()
    };
    compare("file", files(old), files(new), secrets, &mut changes);
    let units = |config: &DecodedConfig| -> BTreeMap<String, Entry> {
        let units = config.config.systemd.units.iter();
        units.map(|unit| (unit.name.clone(), unit_entry(unit))).collect()
    };
    compare("unit", units(old), units(new), secrets, &mut changes);
    compare("drop-in", dropins(old), dropins(new), secrets, &mut changes);
    let (old, new) = (json(old), json(new));
    for (section, list, key, kind) in LISTS {
        let entries = |config: &Value| listed(config, section, list, key);
        compare(kind, entries(&old), entries(&new), secrets, &mut changes);
    }
    compare("section", sections(&old), sections(&new), secrets, &mut changes);
    changes
}

/// Lists that are compared entry by entry: section, list, key and kind.
const LISTS: [(&str, &str, &str, &str); 8] = [
    ("storage", "directories", "path", "directory"),
    ("storage", "links", "path", "link"),
    ("storage", "disks", "device", "disk"),
    ("storage", "filesystems", "device", "filesystem"),
    ("storage", "luks", "name", "encrypted volume"),
    ("storage", "raid", "name", "array"),
    ("passwd", "users", "name", "user"),
    ("passwd", "groups", "name", "group"),
];

/// An entry of one of the two configs.
#[derive(Default)]
struct Entry {
    attributes: BTreeMap<&'static str, String>,
    contents: Vec<u8>,
    /// Values that are compared but never shown.
    hidden: BTreeMap<&'static str, String>,
}

fn file_entry(file: &File) -> Entry {
    let mut entry = Entry::default();
    let mut set = |name, value: Option<String>| {
        if let Some(value) = value {
            entry.attributes.insert(name, value);
        }
    };
    set("mode", file.mode.map(|mode| format!("{mode:04o}")));
    set("user", owner(&file.user));
    set("group", owner(&file.group));
    set("overwrite", file.overwrite.filter(|overwrite| !overwrite).map(|o| o.to_string()));
    set("appended", Some(file.append.len()).filter(|count| *count > 0).map(|c| c.to_string()));
    match decoded::contents(file) {
        Ok(contents) => entry.contents = contents,
        // The contents are remote or invalid: only the URL can be compared.
        Err(_) => set("source", file.contents.source.clone()),
    }
    entry
}

fn owner(owner: &Owner) -> Option<String> {
    owner.name.clone().or_else(|| owner.id.map(|id| id.to_string()))
}

fn unit_entry(unit: &Unit) -> Entry {
    let mut entry = Entry::default();
    if let Some(enabled) = unit.enabled {
        entry.attributes.insert("enabled", enabled.to_string());
    }
    if let Some(mask) = unit.mask {
        entry.attributes.insert("masked", mask.to_string());
    }
    entry.contents = unit.contents.clone().unwrap_or_default().into_bytes();
    entry
}

fn dropins(config: &DecodedConfig) -> BTreeMap<String, Entry> {
    let of_unit = |unit: &Unit| {
        let of_dropin = |dropin: &mco_ignition::config::Dropin| {
            let contents = dropin.contents.clone().unwrap_or_default().into_bytes();
            (format!("{}/{}", unit.name, dropin.name), Entry { contents, ..Entry::default() })
        };
        unit.dropins.iter().map(of_dropin).collect::<Vec<_>>()
    };
    config.config.systemd.units.iter().flat_map(of_unit).collect()
}

fn json(config: &DecodedConfig) -> Value {
    serde_json::from_slice(&config.config.to_json()).unwrap_or_default()
}

fn listed(config: &Value, section: &str, list: &str, key: &str) -> BTreeMap<String, Entry> {
    let items = config.get(section).and_then(|section| section.get(list));
    let items = items.and_then(Value::as_array).cloned().unwrap_or_default();
    items
        .into_iter()
        .map(|item| {
            let name = item.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            (name, written(item))
        })
        .collect()
}

/// Returns the sections that no other comparison covers: proxies, timeouts, Ignition's own kernel
/// arguments.
fn sections(config: &Value) -> BTreeMap<String, Entry> {
    let mut found = BTreeMap::new();
    for section in ["ignition", "kernelArguments"] {
        for (name, value) in config.get(section).and_then(Value::as_object).into_iter().flatten() {
            if name != "version" {
                found.insert(format!("{section}.{name}"), written(value.clone()));
            }
        }
    }
    found
}

/// Returns an entry that is compared as JSON, except for its hidden values.
fn written(mut value: Value) -> Entry {
    let mut hidden = BTreeMap::new();
    for name in ["passwordHash", "keyFile"] {
        if let Some(secret) = value.as_object_mut().and_then(|object| object.remove(name)) {
            hidden.insert(name, secret.to_string());
        }
    }
    let text = serde_json::to_string_pretty(&value).unwrap_or_default() + "\n";
    Entry { contents: text.into_bytes(), hidden, ..Entry::default() }
}

fn settings(old: &MachineConfigSpec, new: &MachineConfigSpec) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut plain = |name: &str, old: String, new: String| {
        if old != new {
            let attribute = Attribute { name: "value", old: Some(old), new: Some(new) };
            changes.push(setting(name, vec![attribute], None));
        }
    };
    plain("osImageURL", old.os_image_url.clone(), new.os_image_url.clone());
    plain(
        "baseOSExtensionsContainerImage",
        old.base_os_extensions_container_image.clone(),
        new.base_os_extensions_container_image.clone(),
    );
    plain("kernelType", kernel(old), kernel(new));
    plain("fips", old.fips.to_string(), new.fips.to_string());
    let lists = [
        ("kernelArguments", &old.kernel_arguments, &new.kernel_arguments),
        ("extensions", &old.extensions, &new.extensions),
    ];
    for (name, old, new) in lists {
        if old != new {
            let text = |list: &[String]| list.iter().flat_map(|item| [item, "\n"]).collect();
            let contents = Contents::Text { old: text(old), new: text(new) };
            changes.push(setting(name, Vec::new(), Some(contents)));
        }
    }
    changes
}

fn setting(name: &str, attributes: Vec<Attribute>, contents: Option<Contents>) -> Change {
    let operation = ChangeKind::Changed;
    Change { kind: "setting", name: name.to_owned(), operation, attributes, contents }
}

/// Returns the kernel type; an empty one is the default.
fn kernel(spec: &MachineConfigSpec) -> String {
    let kernel = spec.kernel_type.as_str();
    if kernel.is_empty() { "default".to_owned() } else { kernel.to_owned() }
}

fn compare(
    kind: &'static str,
    mut old: BTreeMap<String, Entry>,
    mut new: BTreeMap<String, Entry>,
    secrets: Secrets,
    changes: &mut Vec<Change>,
) {
    let names: BTreeSet<String> = old.keys().chain(new.keys()).cloned().collect();
    for name in names {
        let (before, after) = (old.remove(&name), new.remove(&name));
        let operation = match (&before, &after) {
            (Some(_), Some(_)) => ChangeKind::Changed,
            (Some(_), None) => ChangeKind::Removed,
            (None, _) => ChangeKind::Added,
        };
        let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
        let attributes = attributes(&before, &after);
        let contents = contents(&before.contents, &after.contents, secrets);
        if operation != ChangeKind::Changed || !attributes.is_empty() || contents.is_some() {
            changes.push(Change { kind, name, operation, attributes, contents });
        }
    }
}

fn attributes(old: &Entry, new: &Entry) -> Vec<Attribute> {
    let names: BTreeSet<&'static str> =
        old.attributes.keys().chain(new.attributes.keys()).copied().collect();
    let plain = names.into_iter().map(|name| Attribute {
        name,
        old: old.attributes.get(name).cloned(),
        new: new.attributes.get(name).cloned(),
    });
    let hidden: BTreeSet<&'static str> =
        old.hidden.keys().chain(new.hidden.keys()).copied().collect();
    let hidden = hidden.into_iter().filter(|name| old.hidden.get(name) != new.hidden.get(name));
    let hidden = hidden.map(|name| {
        let shown = |entry: &Entry, word: &str| entry.hidden.get(name).map(|_| word.to_owned());
        Attribute { name, old: shown(old, "(hidden)"), new: shown(new, "(hidden, another)") }
    });
    plain.filter(|attribute| attribute.old != attribute.new).chain(hidden).collect()
}

/// Compares contents; `None` if they are equal.
pub(crate) fn contents(old: &[u8], new: &[u8], secrets: Secrets) -> Option<Contents> {
    if old == new {
        return None;
    }
    let (Some(before), Some(after)) = (text(old), text(new)) else {
        return Some(Contents::Binary { old: old.len(), new: new.len() });
    };
    let (old, new) = match secrets {
        Secrets::Show => (before.to_owned(), after.to_owned()),
        Secrets::Hide => (secret::redact(before), secret::redact(after)),
    };
    Some(if old == new { Contents::Hidden } else { Contents::Text { old, new } })
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

#[cfg(test)]
mod tests;
