//! The resources the server knows: the built-in table and what `CustomResourceDefinition`s add.

pub(crate) mod builtin;
pub(crate) mod catalog;
pub(crate) mod crd;

use std::sync::Arc;

use serde_json::Value;

use crate::schema::Schema;

/// One resource at one version.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent properties of a resource")]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    /// Whether `status` is written through its own subresource.
    pub(crate) status: bool,
    /// Whether changes of anything but metadata and status count in `metadata.generation`.
    pub(crate) generation: bool,
    /// Where the objects are kept; two resources may share one place.
    pub(crate) track: Arc<str>,
    /// How stored objects turn into this resource's objects.
    pub(crate) form: Form,
    /// The rules for its objects, when a `CustomResourceDefinition` gives them.
    pub(crate) schema: Option<Arc<Schema>>,
    /// The same rules as they were written, for `kubectl explain`.
    pub(crate) written_schema: Option<Arc<Value>>,
    /// Columns of the table output of a custom resource.
    pub(crate) columns: Vec<Column>,
    /// Fields a field selector may name, besides name and namespace.
    pub(crate) selectable: Vec<String>,
    /// Whether the resource comes from a `CustomResourceDefinition`.
    pub(crate) custom: bool,
}

/// How the objects of a resource are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// As they are written, but for the version they were written at.
    Same,
    /// `events.k8s.io/v1` events live with the core ones, under other field names.
    NewEvent,
}

/// A printer column of a custom resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) format: String,
    pub(crate) description: String,
    pub(crate) priority: i64,
    pub(crate) path: String,
}

impl Resource {
    /// `plural.group`, or the plural alone in the core group.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// `group/version`, or the version alone in the core group.
    pub(crate) fn api_version(&self) -> String {
        group_version(&self.group, &self.version)
    }

    /// Whether a field selector may name this field.
    pub(crate) fn has_selectable_field(&self, path: &str) -> bool {
        matches!(path, "metadata.name")
            || (path == "metadata.namespace" && self.namespaced)
            || self.selectable.iter().any(|field| field == path)
    }

    /// Whether the stored object is already in this resource's form.
    pub(crate) fn is_native(&self, stored: &Value) -> bool {
        self.form == Form::Same
            && stored.get("apiVersion").and_then(Value::as_str).is_some_and(|have| {
                have.strip_prefix(self.group.as_str())
                    .map(|rest| rest.strip_prefix('/').unwrap_or(rest))
                    == Some(self.version.as_str())
            })
    }
}

/// `group/version`, or the version alone in the core group.
pub(crate) fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}
