//! One object of a manifest, and the places inside it.

use std::sync::Arc;

use mco_api::annotation;

use super::{
    Loaded,
    node::{Misfit, Node, Path},
};
use crate::fault::{Fault, Place, Position};

/// A file that was read.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) name: Arc<str>,
    pub(crate) text: String,
}

/// An object as it stands in a file.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) file: Arc<File>,
    pub(crate) node: Node,
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
}

/// Adds the objects of a document to what was found, lists taken apart.
pub(super) fn collect(file: &Arc<File>, document: Node, loaded: &mut Loaded) {
    let text = |name: &str| document.get(name).and_then(Node::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion").to_owned(), text("kind").to_owned());
    let is_list = kind.ends_with("List") && document.get("items").is_some();
    if is_list {
        for item in document.get("items").map(Node::items).unwrap_or_default() {
            collect(file, typed_item(item.clone(), &api_version, &kind), loaded);
        }
        return;
    }
    let name = document.get("metadata").and_then(|metadata| metadata.get("name"));
    let name = name.and_then(Node::as_str).unwrap_or_default().to_owned();
    let object = Object { file: Arc::clone(file), node: document, api_version, kind, name };
    match object.complaint() {
        Some(fault) => loaded.faults.push(fault),
        None => loaded.objects.push(object),
    }
}

/// An item of a typed list (`MachineConfigList`) may leave out its own kind.
fn typed_item(mut item: Node, api_version: &str, kind: &str) -> Node {
    use super::node::{Entry, Value};
    let of_item = kind.strip_suffix("List").unwrap_or_default();
    let at = item.at;
    if let Value::Map(entries) = &mut item.value {
        for (key, value) in [("apiVersion", api_version), ("kind", of_item)] {
            if !value.is_empty() && !entries.iter().any(|entry| entry.key == key) {
                let value = Node { at, value: Value::String(value.to_owned()) };
                entries.push(Entry { key: key.to_owned(), key_at: at, value });
            }
        }
    }
    item
}

impl Object {
    /// `Kind/name`.
    pub(crate) fn label(&self) -> String {
        if self.name.is_empty() {
            self.kind.clone()
        } else {
            format!("{}/{}", self.kind, self.name)
        }
    }

    /// Whether a controller made this object.
    pub(crate) fn is_generated(&self) -> bool {
        let key = annotation::GENERATED_BY_CONTROLLER_VERSION.name();
        let annotations = self.node.get("metadata").and_then(|node| node.get("annotations"));
        annotations.and_then(|annotations| annotations.get(key)).is_some()
    }

    /// Puts a fault at a path of this object.
    pub(crate) fn fault_at(&self, path: &Path, fault: Fault) -> Fault {
        self.fault_on(self.node.locate(path), path, fault)
    }

    /// Puts a fault at a path of this object whose position is known better.
    pub(crate) fn fault_on(&self, at: Position, path: &Path, mut fault: Fault) -> Fault {
        fault.place = Some(Place { file: Arc::clone(&self.file.name), at: Some(at) });
        fault.object = (!self.kind.is_empty()).then(|| self.label());
        fault.path = (!path.0.is_empty()).then(|| path.clone());
        fault
    }

    /// The fault of an object that does not have the shape of its kind.
    pub(crate) fn misfit(&self, misfit: Misfit) -> Fault {
        let message = if misfit.path.0.is_empty() {
            misfit.message
        } else {
            format!("{}: {}", misfit.path, misfit.message)
        };
        self.fault_at(&misfit.path, Fault::error("WrongType", message))
    }

    /// Where line `line` (from zero) of the text at `path` stands in the file.
    ///
    /// Exact for text written as a YAML block; otherwise where the text begins.
    pub(crate) fn line_of(&self, path: &Path, line: usize) -> Position {
        let start = self.node.locate(path);
        let Some(text) = self.node.find(path).and_then(Node::as_str) else { return start };
        let row = start.line.saturating_sub(1).saturating_add(line);
        match (text.lines().nth(line), self.file.text.lines().nth(row)) {
            (Some(wanted), Some(found)) if found.trim() == wanted.trim() => {
                let indent = found.chars().take_while(|c| c.is_whitespace()).count();
                Position { line: row + 1, column: indent + 1 }
            }
            _ => start,
        }
    }

    /// What keeps this from being an object at all.
    fn complaint(&self) -> Option<Fault> {
        let missing = |member: &str| {
            let message = format!("this is not a Kubernetes object: it has no {member}");
            let hint = "a MachineConfig starts with `apiVersion: \
                        machineconfiguration.openshift.io/v1` and `kind: MachineConfig`";
            self.fault_at(&Path::default(), Fault::error("NotAnObject", message).hint(hint))
        };
        if self.api_version.is_empty() {
            return Some(missing("apiVersion"));
        }
        self.kind.is_empty().then(|| missing("kind"))
    }
}
