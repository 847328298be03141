//! Checks of the Ignition config of a MachineConfig: the rules of the format and of the daemon.
//!
//! The daemon's rules are checked on the document and not on the parsed config, so that the faults of
//! a config that fails to parse are reported too.

use mco_ignition::{CheckError, Config, ReadError, Report, report::Step};

use super::{
    Fault, FieldPath, Object, Severity, SpannedValue, file,
    pool::PATH_CONFLICT,
    systemd, user,
    value::{PathStep, Value},
};
use crate::machine::paths;

/// Sections that take effect at first boot only; a running node refuses to change them.
const FIRST_BOOT_ONLY: [(&str, &str); 8] = [
    ("storage", "directories"),
    ("storage", "disks"),
    ("storage", "filesystems"),
    ("storage", "links"),
    ("storage", "luks"),
    ("storage", "raid"),
    ("passwd", "groups"),
    ("kernelArguments", "shouldExist"),
];

/// Hints for the messages of the format.
const HINTS: [(&str, &str); 6] = [
    ("path not absolute", "write an absolute path"),
    ("duplicate entry defined", "keep one of the two"),
    ("invalid systemd unit extension", "end the name in .service, .timer, .mount or another type"),
    ("invalid systemd drop-in extension", "end the name in .conf"),
    ("unused key", "this version of the format ignores the field"),
    ("unit \"", "add an [Install] section, for example with WantedBy=multi-user.target"),
];

/// Adds the faults of the Ignition config of the object, if it has one.
pub(super) fn check(object: &Object, faults: &mut Vec<Fault>) {
    let root = FieldPath::of("spec.config");
    let Some(config) = object.root.find(&root).filter(|config| !config.is_null()) else { return };
    let mut own = Vec::new();
    file::check(object, &root, &mut own);
    systemd::check(object, &root, &mut own);
    user::check(object, &root, &mut own);
    first_boot_only(object, config, &root, &mut own);
    sources(object, config, &root, &mut own);
    format(object, config, &root, &own, faults);
    faults.extend(own);
}

fn format(
    object: &Object,
    config: &SpannedValue,
    root: &FieldPath,
    own: &[Fault],
    faults: &mut Vec<Fault>,
) {
    let json = config.to_json();
    match mco_ignition::read(json.as_bytes()) {
        Ok(document) => {
            report(object, root, document.warnings(), own, faults);
            if let Err(CheckError::Invalid(found)) = document.check() {
                report(object, root, &found, own, faults);
            }
            match document.upgrade() {
                Ok(config) => conflicts(object, root, &config, faults),
                Err(error) => {
                    let fault = Fault::error("IgnitionUpgrade", error.to_string());
                    faults.push(object.fault_at(root, fault));
                }
            }
        }
        Err(error @ (ReadError::InvalidVersion | ReadError::UnknownVersion)) => {
            let path = root.member("ignition").member("version");
            let fault = Fault::error("IgnitionVersion", error.to_string());
            let fault = fault.hint("write ignition: {version: 3.5.0}");
            faults.push(object.fault_at(&path, fault));
        }
        Err(error) => {
            if let Some(found) = error.report().filter(|report| !report.faults.is_empty()) {
                report(object, root, found, own, faults);
                return;
            }
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default().to_owned();
            faults.push(object.fault_at(root, Fault::error("IgnitionInvalid", line)));
        }
    }
}

/// Adds the faults of paths that exclude one another.
fn conflicts(object: &Object, root: &FieldPath, config: &Config, faults: &mut Vec<Fault>) {
    for conflict in paths::conflicts(config) {
        let list = root.member("storage").member("files");
        let files = object.root.find(&list).map(SpannedValue::items).unwrap_or_default();
        let is_named = |file: &SpannedValue| {
            file.get("path").and_then(SpannedValue::as_str) == Some(conflict.path())
        };
        let at = files.iter().position(is_named);
        let path = at.map_or_else(|| root.clone(), |index| list.index(index).member("path"));
        let fault = Fault::error(PATH_CONFLICT, conflict.to_string());
        let fault = fault.hint("rename or remove one of the two paths");
        faults.push(object.fault_at(&path, fault));
    }
}

/// Adds the faults of the format with their locations in the manifest.
fn report(
    object: &Object,
    root: &FieldPath,
    report: &Report,
    own: &[Fault],
    faults: &mut Vec<Fault>,
) {
    for found in &report.faults {
        let mut path = root.clone();
        path.0.extend(found.path.0.iter().map(|step| match step {
            Step::Member(name) => PathStep::Member((*name).to_owned()),
            Step::Unknown(name) => PathStep::Member(name.clone()),
            Step::Index(index) => PathStep::Index(*index),
        }));
        // The daemon's rule gives more details on the same field, such as the line in a unit.
        let is_known =
            own.iter().any(|fault| fault.path.as_ref() == Some(&path) && fault.is_error());
        if is_known {
            continue;
        }
        let code = match found.severity {
            Severity::Error => "IgnitionInvalid",
            Severity::Warning => "IgnitionWarning",
        };
        let mut fault = Fault::new(found.severity, code, found.message.clone());
        let known = HINTS.iter().find(|(message, _)| found.message.starts_with(message));
        fault.hint = known.map(|(_, hint)| (*hint).to_owned());
        faults.push(object.fault_at(&path, fault));
    }
}

fn first_boot_only(
    object: &Object,
    config: &SpannedValue,
    root: &FieldPath,
    faults: &mut Vec<Fault>,
) {
    for (section, list) in FIRST_BOOT_ONLY {
        let entries = config.get(section).and_then(|section| section.get(list));
        if entries.is_none_or(|entries| entries.items().is_empty()) {
            continue;
        }
        let message = format!("{section}.{list} takes effect at first boot only");
        let fault = Fault::warning("FirstBootOnly", message);
        let fault = fault.hint("running nodes refuse a change of this section; new nodes apply it");
        faults.push(object.fault_at(&root.member(section).member(list), fault));
    }
}

/// Adds warnings for referenced configs, which no component fetches for a running node.
fn sources(object: &Object, config: &SpannedValue, root: &FieldPath, faults: &mut Vec<Fault>) {
    let Some(sources) = config.get("ignition").and_then(|ignition| ignition.get("config")) else {
        return;
    };
    let path = root.member("ignition").member("config");
    for member in ["merge", "append", "replace"] {
        let used = sources.get(member).is_some_and(|value| match &value.value {
            Value::List(items) => !items.is_empty(),
            // Objects of old clusters contain an empty reference.
            Value::Map(_) => value.get("source").is_some_and(|source| !source.is_null()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        });
        if used {
            let message = format!(
                "ignition.config.{member} points to a config that a running node does not fetch"
            );
            let fault = Fault::warning("RemoteConfig", message);
            let fault = fault.hint("write its contents into this MachineConfig");
            faults.push(object.fault_at(&path.member(member), fault));
        }
    }
}
