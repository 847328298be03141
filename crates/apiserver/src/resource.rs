//! The resources that the server serves: the built-in ones, and those of
//! `CustomResourceDefinition`s.

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
    /// True if `status` is a subresource.
    pub(crate) status: bool,
    /// True if `metadata.generation` counts the changes of anything but metadata and status.
    pub(crate) generation: bool,
    /// Name of the store's collection that holds the objects. Two resources may share one.
    pub(crate) collection: Arc<str>,
    /// Conversion between stored objects and this resource's objects.
    pub(crate) form: Form,
    /// Schema of the objects, for custom resources.
    pub(crate) schema: Option<Arc<Schema>>,
    /// Source of the schema, for `kubectl explain`.
    pub(crate) written_schema: Option<Arc<Value>>,
    /// Columns of the table output of a custom resource.
    pub(crate) columns: Vec<Column>,
    /// Fields that a field selector may name, besides name and namespace.
    pub(crate) selectable: Vec<String>,
    /// True if the resource comes from a `CustomResourceDefinition`.
    pub(crate) custom: bool,
}

/// The stored form of a resource's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Stored as written, except for the `apiVersion`.
    Same,
    /// An `events.k8s.io/v1` event, stored as a core event with other field names.
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
    /// Returns `plural.group`, or the plural alone in the core group.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// Returns `group/version`, or the version alone in the core group.
    pub(crate) fn api_version(&self) -> String {
        group_version(&self.group, &self.version)
    }

    /// Returns true if the resource has the subresource `scale`.
    pub(crate) fn has_scale(&self) -> bool {
        !self.custom
            && self.group == "apps"
            && matches!(self.kind.as_str(), "Deployment" | "ReplicaSet")
    }

    /// Returns true if the answer to a delete is the deleted object.
    pub(crate) fn is_shown_when_deleted(&self) -> bool {
        !self.custom && self.group.is_empty() && matches!(&*self.kind, "Service" | "ServiceAccount")
    }

    /// Returns true if an update of an absent object creates it.
    pub(crate) fn is_created_by_update(&self) -> bool {
        const KINDS: [&str; 8] = [
            "Service",
            "Endpoints",
            "Event",
            "Lease",
            "Role",
            "RoleBinding",
            "ClusterRole",
            "ClusterRoleBinding",
        ];
        !self.custom && KINDS.contains(&self.kind.as_str())
    }

    /// Returns true if an update must name the version that it replaces.
    pub(crate) fn needs_version(&self) -> bool {
        const KINDS: [&str; 5] = [
            "CustomResourceDefinition",
            "Lease",
            "PodDisruptionBudget",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
        ];
        self.custom || KINDS.contains(&self.kind.as_str())
    }

    /// Returns true if a field selector may name this field.
    pub(crate) fn has_selectable_field(&self, path: &str) -> bool {
        matches!(path, "metadata.name")
            || (path == "metadata.namespace" && self.namespaced)
            || self.selectable.iter().any(|field| field == path)
    }

    /// Returns true if the stored object already has this resource's form.
    pub(crate) fn is_native(&self, stored: &Value) -> bool {
        self.form == Form::Same
            && stored.get("apiVersion").and_then(Value::as_str).is_some_and(|have| {
                have.strip_prefix(self.group.as_str())
                    .map(|rest| rest.strip_prefix('/').unwrap_or(rest))
                    == Some(self.version.as_str())
            })
    }
}

/// Returns `group/version`, or the version alone in the core group.
pub(crate) fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}
