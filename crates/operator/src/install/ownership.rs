//! Decides if a `CustomResourceDefinition` in the cluster belongs to another owner, and if its kind
//! can be used as it is.

use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        CustomResourceDefinition, CustomResourceDefinitionVersion,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde_json::{Value, json};

/// Operator that installs the release payload of OpenShift. It replaces the definitions of the
/// payload whenever they differ.
const VERSION_OPERATOR: &str = "cluster-version-operator";

/// Suffix of the domain of the annotations on objects of a release payload.
const RELEASE_DOMAIN: &str = "release.openshift.io";

/// Returns the owner if the definition is part of an OpenShift release.
pub(super) fn release_owner(found: &CustomResourceDefinition) -> Option<String> {
    is_of_release(&found.metadata).then(|| VERSION_OPERATOR.to_owned())
}

/// Returns true if the object with this metadata is part of an OpenShift release.
#[must_use]
pub fn is_of_release(found: &ObjectMeta) -> bool {
    let is_release = |key: &String| {
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        domain == RELEASE_DOMAIN || domain.ends_with(&format!(".{RELEASE_DOMAIN}"))
    };
    let annotated = found.annotations.iter().flatten().any(|(key, _)| is_release(key));
    let mut owners = found.owner_references.iter().flatten();
    let owned = owners.any(|owner| owner.kind == "ClusterVersion");
    let managed = managers(found).any(|manager| manager == VERSION_OPERATOR);
    annotated || owned || managed
}

/// Returns the managers of the definition other than `own`.
pub(super) fn other_managers(found: &CustomResourceDefinition, own: &str) -> String {
    let mut names: Vec<&str> =
        managers(&found.metadata).filter(|manager| *manager != own).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() { "another manager".to_owned() } else { names.join(", ") }
}

/// Returns the managers of all fields but the status, which the API server writes.
fn managers(found: &ObjectMeta) -> impl Iterator<Item = &str> {
    let entries = found.managed_fields.iter().flatten();
    let entries = entries.filter(|entry| entry.subresource.is_none());
    entries.filter_map(|entry| entry.manager.as_deref())
}

/// Checks that objects of the kind can be read and written. Returns the members that the schema does
/// not have, or the difference because of which the kind cannot be used.
pub(super) fn check_usable(
    found: &CustomResourceDefinition,
    wanted: &CustomResourceDefinition,
) -> Result<Vec<String>, String> {
    if found.spec.scope != wanted.spec.scope {
        return Err(format!("its scope is {}, not {}", found.spec.scope, wanted.spec.scope));
    }
    if found.spec.names.kind != wanted.spec.names.kind {
        return Err(format!("its kind is {}", found.spec.names.kind));
    }
    let mut lacks = Vec::new();
    for version in &wanted.spec.versions {
        let name = &version.name;
        let mut versions = found.spec.versions.iter();
        let Some(theirs) = versions.find(|theirs| theirs.name == *name && theirs.served) else {
            return Err(format!("version {name} is not served"));
        };
        if has_status(version) && !has_status(theirs) {
            return Err(format!("version {name} has no subresource status"));
        }
        compare(&schema(theirs), &schema(version), "", &mut lacks)?;
    }
    Ok(lacks)
}

fn has_status(version: &CustomResourceDefinitionVersion) -> bool {
    version.subresources.as_ref().is_some_and(|found| found.status.is_some())
}

fn schema(version: &CustomResourceDefinitionVersion) -> Value {
    json!(version.schema.as_ref().and_then(|found| found.open_api_v3_schema.as_ref()))
}

/// Adds the members of `wanted` that `found` does not have to `lacks`. A member of another type is
/// an error.
fn compare(
    found: &Value,
    wanted: &Value,
    path: &str,
    lacks: &mut Vec<String>,
) -> Result<(), String> {
    if let (Some(theirs), Some(ours)) = (found.get("type"), wanted.get("type"))
        && theirs != ours
    {
        return Err(format!("{path} is of type {theirs}, not {ours}"));
    }
    let keeps_all = found.get("x-kubernetes-preserve-unknown-fields") == Some(&json!(true));
    for (name, ours) in wanted.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match found.get("properties").and_then(|theirs| theirs.get(name)) {
            Some(theirs) => compare(theirs, ours, &path, lacks)?,
            None if keeps_all => {}
            None => lacks.push(path),
        }
    }
    for member in ["items", "additionalProperties"] {
        if let (Some(theirs), Some(ours)) = (found.get(member), wanted.get(member)) {
            compare(theirs, ours, path, lacks)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, edit of the definition at the path of its schema, and the result of the check.
    type Case = (&'static str, fn(&mut Value, &str), Result<&'static [&'static str], &'static str>);

    fn definition() -> CustomResourceDefinition {
        let all = mco_api::crds();
        all.into_iter().find(|it| it.spec.names.kind == "MachineConfigPool").unwrap()
    }

    fn edited(edit: impl FnOnce(&mut Value)) -> CustomResourceDefinition {
        let mut value = json!(definition());
        edit(&mut value);
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn definitions_of_a_release_are_recognised() {
        let manager = |name: &str| json!([{"manager": name, "operation": "Update"}]);
        let owner = json!([{"apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion", "name": "version", "uid": "1"}]);
        let cases = [
            ("managedFields", manager("cluster-version-operator"), true),
            ("managedFields", manager("machine-config-operator"), false),
            ("managedFields", manager("kubectl"), false),
            ("ownerReferences", owner, true),
            ("annotations", json!({"release.openshift.io/bootstrap-required": "true"}), true),
            (
                "annotations",
                json!({"include.release.openshift.io/ibm-cloud-managed": "true"}),
                true,
            ),
            ("annotations", json!({"norelease.openshift.io/x": "true"}), false),
            ("annotations", json!({}), false),
        ];
        for (member, value, expected) in cases {
            let found = edited(|object| object["metadata"][member] = value.clone());
            assert_eq!(release_owner(&found).is_some(), expected, "{member} {value}");
        }
    }

    #[test]
    fn a_definition_of_another_owner_is_usable_unless_it_differs_in_something_that_matters() {
        let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
        let cases: [Case; 8] = [
            ("the same", |_, _| {}, Ok(&[])),
            (
                "another description, and one more member",
                |object, schema| {
                    let members = object.pointer_mut(schema).unwrap();
                    members["paused"]["description"] = json!("other");
                    members["new"] = json!({"type": "string"});
                },
                Ok(&[]),
            ),
            (
                "a member is absent",
                |object, schema| {
                    object.pointer_mut(schema).unwrap().as_object_mut().unwrap().remove("paused");
                },
                Ok(&["spec.paused"]),
            ),
            (
                "a member is absent, and all are kept",
                |object, schema| {
                    object.pointer_mut(schema).unwrap().as_object_mut().unwrap().remove("paused");
                    let spec = object.pointer_mut(schema.strip_suffix("/properties").unwrap());
                    spec.unwrap()["x-kubernetes-preserve-unknown-fields"] = json!(true);
                },
                Ok(&[]),
            ),
            (
                "another type",
                |object, schema| {
                    object.pointer_mut(schema).unwrap()["paused"]["type"] = json!("string");
                },
                Err(r#"spec.paused is of type "string", not "boolean""#),
            ),
            (
                "another version",
                |object, _| object["spec"]["versions"][0]["name"] = json!("v2"),
                Err("version v1 is not served"),
            ),
            (
                "no status",
                |object, _| object["spec"]["versions"][0]["subresources"] = json!({}),
                Err("version v1 has no subresource status"),
            ),
            (
                "another scope",
                |object, _| object["spec"]["scope"] = json!("Namespaced"),
                Err("its scope is Namespaced, not Cluster"),
            ),
        ];
        for (case, edit, expected) in cases {
            let found = check_usable(&edited(|object| edit(object, schema)), &definition());
            let expected = expected
                .map(|lacks| lacks.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())
                .map_err(str::to_owned);
            assert_eq!(found, expected, "{case}");
        }
    }
}
