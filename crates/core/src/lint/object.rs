//! An object of a manifest, and the locations of its fields.

use std::sync::Arc;

use mco_api::annotation;

use super::{
    Fault, FieldPath, Location, Position, SpannedValue,
    value::{Entry, TypeError, Value},
};

/// A file of the input.
#[derive(Debug)]
pub struct SourceFile {
    /// Name in messages.
    pub name: Arc<str>,
    /// Text of the file.
    pub text: String,
}

/// An object of a file.
#[derive(Clone, Debug)]
pub struct Object {
    /// File that contains the object.
    pub file: Arc<SourceFile>,
    /// The object with the positions of its fields.
    pub root: SpannedValue,
    /// `apiVersion` of the object.
    pub api_version: String,
    /// `kind` of the object.
    pub kind: String,
    /// `metadata.name` of the object; empty if missing.
    pub name: String,
}

/// Adds the objects of a document; the items of a list are added one by one.
pub fn collect(
    file: &Arc<SourceFile>,
    document: SpannedValue,
    objects: &mut Vec<Object>,
    faults: &mut Vec<Fault>,
) {
    let text = |name: &str| document.get(name).and_then(SpannedValue::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion").to_owned(), text("kind").to_owned());
    let is_list = kind.ends_with("List") && document.get("items").is_some();
    if is_list {
        for item in document.get("items").map(SpannedValue::items).unwrap_or_default() {
            collect(file, typed_item(item.clone(), &api_version, &kind), objects, faults);
        }
        return;
    }
    let name = document.get("metadata").and_then(|metadata| metadata.get("name"));
    let name = name.and_then(SpannedValue::as_str).unwrap_or_default().to_owned();
    let object = Object { file: Arc::clone(file), root: document, api_version, kind, name };
    match object.missing_field() {
        Some(fault) => faults.push(fault),
        None => objects.push(object),
    }
}

/// Adds the kind to an item of a typed list (`MachineConfigList`) that omits it.
fn typed_item(mut item: SpannedValue, api_version: &str, kind: &str) -> SpannedValue {
    let of_item = kind.strip_suffix("List").unwrap_or_default();
    let at = item.at;
    if let Value::Map(entries) = &mut item.value {
        for (key, value) in [("apiVersion", api_version), ("kind", of_item)] {
            if !value.is_empty() && !entries.iter().any(|entry| entry.key == key) {
                let value = SpannedValue { at, value: Value::String(value.to_owned()) };
                entries.push(Entry { key: key.to_owned(), key_at: at, value });
            }
        }
    }
    item
}

impl Object {
    /// Returns `Kind/name`.
    #[must_use]
    pub fn label(&self) -> String {
        if self.name.is_empty() {
            self.kind.clone()
        } else {
            format!("{}/{}", self.kind, self.name)
        }
    }

    /// Returns true if a controller generated this object.
    #[must_use]
    pub(crate) fn is_generated(&self) -> bool {
        let key = annotation::GENERATED_BY_CONTROLLER_VERSION.name();
        let annotations = self.root.get("metadata").and_then(|node| node.get("annotations"));
        annotations.and_then(|annotations| annotations.get(key)).is_some()
    }

    /// Adds the location of a field to a fault.
    #[must_use]
    pub fn fault_at(&self, path: &FieldPath, fault: Fault) -> Fault {
        self.fault_on(self.root.locate(path), path, fault)
    }

    /// Adds the location of a field, whose position is given, to a fault.
    #[must_use]
    pub(crate) fn fault_on(&self, at: Position, path: &FieldPath, mut fault: Fault) -> Fault {
        fault.location = Some(Location { file: Arc::clone(&self.file.name), at: Some(at) });
        fault.object = (!self.kind.is_empty()).then(|| self.label());
        fault.path = (!path.0.is_empty()).then(|| path.clone());
        fault
    }

    /// Returns the fault of an object that does not have the type of its kind.
    #[must_use]
    pub fn type_fault(&self, error: TypeError) -> Fault {
        let message = if error.path.0.is_empty() {
            error.message
        } else {
            format!("{}: {}", error.path, error.message)
        };
        self.fault_at(&error.path, Fault::error("WrongType", message))
    }

    /// Returns the position of line `line` (from zero) of the text at `path`.
    ///
    /// Exact for text in a YAML block; the start of the text otherwise.
    #[must_use]
    pub(crate) fn line_of(&self, path: &FieldPath, line: usize) -> Position {
        let start = self.root.locate(path);
        let Some(text) = self.root.find(path).and_then(SpannedValue::as_str) else { return start };
        let row = start.line.saturating_sub(1).saturating_add(line);
        match (text.lines().nth(line), self.file.text.lines().nth(row)) {
            (Some(wanted), Some(found)) if found.trim() == wanted.trim() => {
                let indent = found.chars().take_while(|c| c.is_whitespace()).count();
                Position { line: row + 1, column: indent + 1 }
            }
            _ => start,
        }
    }

    /// Returns the fault of a document without `apiVersion` or `kind`.
    fn missing_field(&self) -> Option<Fault> {
        let missing = |member: &str| {
            let message = format!("not a Kubernetes object: {member} is missing");
            let hint = "a MachineConfig starts with `apiVersion: \
                        machineconfiguration.openshift.io/v1` and `kind: MachineConfig`";
            self.fault_at(&FieldPath::default(), Fault::error("NotAnObject", message).hint(hint))
        };
        if self.api_version.is_empty() {
            return Some(missing("apiVersion"));
        }
        self.kind.is_empty().then(|| missing("kind"))
    }
}
