//! Kustomize folders: the fields `resources`, `namespace` and `labels`. Other fields are refused, because
//! leaving one out would apply other objects than kustomize makes.

use std::path::Path;

use anyhow::Context as _;
use mco_core::lint::Fault;
use serde_json::{Map, Value, json};

use super::{Loaded, bytes, text};
use crate::error::{FaultsError, error_with_hint};

/// Names of the file that describes a folder.
const NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// Maximum number of folders in each other, so that a circle ends.
const MAX_DEPTH: usize = 16;

/// Reads the objects of a kustomize folder.
pub(crate) fn read(folder: &Path) -> anyhow::Result<Loaded> {
    let objects = build(folder, 0)?;
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    Ok(text(folder, serde_json::to_vec(&list)?))
}

fn build(folder: &Path, depth: usize) -> anyhow::Result<Vec<Value>> {
    if depth > MAX_DEPTH {
        anyhow::bail!("{} refers to itself", folder.display());
    }
    let found = NAMES.iter().map(|name| folder.join(name)).find(|path| path.exists());
    let path = found.ok_or_else(|| {
        error_with_hint(
            format!("{} has no kustomization.yaml", folder.display()),
            "name a kustomize folder, or use -f for plain manifests",
        )
    })?;
    let parsed: Value = serde_saphyr::from_slice(&bytes(&path)?)
        .with_context(|| format!("failed to parse {}", path.display()))?;
    let members = parsed.as_object().cloned().unwrap_or_default();
    let mut objects = Vec::new();
    let mut edits = Edits::default();
    for (member, value) in &members {
        match member.as_str() {
            "apiVersion" | "kind" | "metadata" => {}
            "resources" => {
                for resource in value.as_array().into_iter().flatten().filter_map(Value::as_str) {
                    objects.extend(resource_objects(&folder.join(resource), depth)?);
                }
            }
            "namespace" => edits.namespace = value.as_str().map(str::to_owned),
            "labels" => edits.add_labels(value).map_err(|field| refused(&path, &field))?,
            other => return Err(refused(&path, other)),
        }
    }
    for object in &mut objects {
        edits.apply(object);
    }
    Ok(objects)
}

fn resource_objects(path: &Path, depth: usize) -> anyhow::Result<Vec<Value>> {
    if path.is_dir() {
        return build(path, depth + 1);
    }
    let Loaded { objects, faults } = text(path, bytes(path)?);
    if faults.iter().any(Fault::is_error) {
        return Err(anyhow::Error::new(FaultsError(faults)));
    }
    objects.iter().map(|object| Ok(serde_json::from_str(&object.root.to_json())?)).collect()
}

fn refused(path: &Path, field: &str) -> anyhow::Error {
    let folder = path.parent().unwrap_or(Path::new(".")).display();
    error_with_hint(
        format!("{}: field {field} is not supported", path.display()),
        format!("run `kubectl kustomize {folder} | mco apply -f -`"),
    )
}

/// Changes that a folder makes to all of its objects.
#[derive(Debug, Default)]
struct Edits {
    namespace: Option<String>,
    labels: Map<String, Value>,
}

impl Edits {
    /// Adds labels of the metadata; fails with the field for labels of selectors and templates.
    fn add_labels(&mut self, value: &Value) -> Result<(), String> {
        for entry in value.as_array().into_iter().flatten() {
            for (member, value) in entry.as_object().into_iter().flatten() {
                match (member.as_str(), value) {
                    ("pairs", Value::Object(pairs)) => self.labels.extend(pairs.clone()),
                    ("includeSelectors" | "includeTemplates", Value::Bool(false)) => {}
                    (other, _) => return Err(format!("labels.{other}")),
                }
            }
        }
        Ok(())
    }

    fn apply(&self, object: &mut Value) {
        let metadata = object
            .as_object_mut()
            .map(|object| object.entry("metadata").or_insert_with(|| json!({})));
        let Some(metadata) = metadata.and_then(Value::as_object_mut) else { return };
        if let Some(namespace) = &self.namespace {
            metadata.insert("namespace".to_owned(), json!(namespace));
        }
        if !self.labels.is_empty() {
            let labels = metadata.entry("labels").or_insert_with(|| json!({}));
            labels.as_object_mut().into_iter().for_each(|it| it.extend(self.labels.clone()));
        }
    }
}
