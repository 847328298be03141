//! API discovery: the legacy lists per group and version, and the aggregated document.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use crate::{
    object,
    path::Target,
    resource::{Resource, builtin::NAMESPACES, catalog::Served, group_version},
    review::REVIEWS,
};

/// Verbs of every stored resource.
pub(crate) const VERBS: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// Returns the legacy discovery document of `target`, if it exists.
pub(crate) fn legacy(served: &Served, target: &Target) -> Option<Value> {
    match target {
        Target::CoreVersions => Some(json!({"kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": []})),
        Target::Groups => {
            let groups: Vec<Value> =
                groups(served).iter().map(|(name, versions)| group(name, versions)).collect();
            Some(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
        }
        Target::Group(name) => {
            let groups = groups(served);
            let mut found = group(name, groups.get(name)?);
            let map = object::map_of(&mut found);
            map.insert("kind".into(), "APIGroup".into());
            map.insert("apiVersion".into(), "v1".into());
            Some(found)
        }
        Target::Resources { group, version } => resources(served, group, version),
        Target::Plain(_) | Target::Object(_) => None,
    }
}

type Versions = BTreeMap<String, Vec<Arc<Resource>>>;

/// Returns the named API groups with their versions.
fn groups(served: &Served) -> BTreeMap<String, Versions> {
    let mut out: BTreeMap<String, Versions> = BTreeMap::new();
    for resource in served.values().filter(|one| !one.group.is_empty()) {
        let versions = out.entry(resource.group.clone()).or_default();
        versions.entry(resource.version.clone()).or_default().push(Arc::clone(resource));
    }
    // Reviews are served but not stored, so `served` does not contain them.
    for review in REVIEWS {
        out.entry(review.group.into()).or_default().entry("v1".into()).or_default();
    }
    out
}

/// Returns the versions, the most stable and newest first.
fn ordered(versions: &Versions) -> Vec<&String> {
    let mut names: Vec<&String> = versions.keys().collect();
    names.sort_by_key(|name| std::cmp::Reverse(rank(name)));
    names
}

/// Returns the sort key of a version: `v2` before `v1` before `v1beta2` before `v1alpha1`.
fn rank(version: &str) -> (u8, u32, u32) {
    let digits = |text: &str| text.parse().unwrap_or(0);
    let bare = version.strip_prefix('v').unwrap_or(version);
    if let Some((major, minor)) = bare.split_once("beta") {
        (1, digits(major), digits(minor))
    } else if let Some((major, minor)) = bare.split_once("alpha") {
        (0, digits(major), digits(minor))
    } else {
        (2, digits(bare), 0)
    }
}

fn group(name: &str, versions: &Versions) -> Value {
    let shown = |version: &String| json!({"groupVersion": group_version(name, version), "version": version});
    let versions: Vec<Value> = ordered(versions).into_iter().map(shown).collect();
    json!({"name": name, "preferredVersion": versions.first(), "versions": versions})
}

fn resources(served: &Served, group: &str, version: &str) -> Option<Value> {
    let mut list = Vec::new();
    for resource in served.values().filter(|one| one.group == group && one.version == version) {
        list.push(json!({"name": resource.plural, "singularName": resource.singular,
            "namespaced": resource.namespaced, "kind": resource.kind, "verbs": verbs(resource),
            "shortNames": resource.short_names, "categories": resource.categories}));
        for (name, kind, verbs) in parts(resource) {
            let mut part = json!({"name": format!("{}/{name}", resource.plural),
                "singularName": "", "namespaced": resource.namespaced,
                "kind": kind.2, "verbs": verbs});
            if kind.0 != resource.group {
                let map = object::map_of(&mut part);
                map.insert("group".into(), kind.0.into());
                map.insert("version".into(), kind.1.into());
            }
            list.push(part);
        }
    }
    for review in REVIEWS.iter().filter(|one| one.group == group && version == "v1") {
        list.push(json!({"name": review.plural, "singularName": review.kind.to_lowercase(),
            "namespaced": review.namespaced, "kind": review.kind, "verbs": ["create"]}));
    }
    (!list.is_empty()).then(|| {
        json!({"kind": "APIResourceList", "apiVersion": "v1",
            "groupVersion": group_version(group, version), "resources": list})
    })
}

/// Returns the verbs of a resource. Namespaces are deleted one by one.
pub(crate) fn verbs(resource: &Resource) -> Vec<&'static str> {
    let is_left_out =
        |verb: &str| &*resource.collection == NAMESPACES && verb == "deletecollection";
    VERBS.into_iter().filter(|verb| !is_left_out(verb)).collect()
}

/// A subresource: its name, its kind with group and version, and its verbs.
pub(crate) type Part<'a> = (&'static str, (&'a str, &'a str, &'a str), &'static [&'static str]);

/// Returns the subresources of a resource: name, kind, verbs.
pub(crate) fn parts(resource: &Resource) -> Vec<Part<'_>> {
    let mut out: Vec<Part<'_>> = Vec::new();
    if resource.status {
        let kind = (resource.group.as_str(), resource.version.as_str(), resource.kind.as_str());
        out.push(("status", kind, &["get", "patch", "update"]));
    }
    if resource.has_scale() {
        let kind = ("autoscaling", "v1", "Scale");
        out.push(("scale", kind, &["get", "patch", "update"]));
    }
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Pod") => {
            out.push(("binding", ("", "v1", "Binding"), &["create"]));
            out.push(("eviction", ("policy", "v1", "Eviction"), &["create"]));
        }
        ("", "Namespace") => out.push(("finalize", ("", "v1", "Namespace"), &["update"])),
        ("", "ServiceAccount") => {
            let kind = ("authentication.k8s.io", "v1", "TokenRequest");
            out.push(("token", kind, &["create"]));
        }
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            let kind = (resource.group.as_str(), resource.version.as_str(), resource.kind.as_str());
            out.push(("approval", kind, &["get", "patch", "update"]));
        }
        _ => {}
    }
    out
}

/// Returns the aggregated discovery document for `/api` (`core`) or `/apis`.
pub(crate) fn aggregated(served: &Served, core: bool) -> Value {
    let mut all = if core { BTreeMap::new() } else { groups(served) };
    if core {
        let resources = served.values().filter(|one| one.group.is_empty()).cloned().collect();
        all.insert(String::new(), Versions::from([("v1".to_owned(), resources)]));
    }
    let items: Vec<Value> = all
        .iter()
        .map(|(name, versions)| {
            let shown: Vec<Value> = ordered(versions)
                .into_iter()
                .map(|version| aggregated_version(name, version, versions.get(version)))
                .collect();
            let meta = if name.is_empty() { json!({}) } else { json!({"name": name}) };
            json!({"metadata": meta, "versions": shown})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {}, "items": items})
}

fn aggregated_version(group: &str, version: &str, resources: Option<&Vec<Arc<Resource>>>) -> Value {
    let mut list: Vec<Value> =
        resources.into_iter().flatten().map(|one| aggregated_resource(one)).collect();
    for review in REVIEWS.iter().filter(|one| one.group == group) {
        let scope = if review.namespaced { "Namespaced" } else { "Cluster" };
        list.push(json!({"resource": review.plural, "scope": scope,
            "singularResource": review.kind.to_lowercase(), "verbs": ["create"],
            "responseKind": kind_of((group, version, review.kind))}));
    }
    json!({"version": version, "freshness": "Current", "resources": list})
}

fn aggregated_resource(resource: &Resource) -> Value {
    let kind = (resource.group.as_str(), resource.version.as_str(), resource.kind.as_str());
    let parts: Vec<Value> = parts(resource)
        .into_iter()
        .map(|(name, kind, verbs)| {
            json!({"subresource": name, "responseKind": kind_of(kind), "verbs": verbs})
        })
        .collect();
    json!({"resource": resource.plural, "responseKind": kind_of(kind),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular, "verbs": verbs(resource),
        "shortNames": resource.short_names, "categories": resource.categories,
        "subresources": parts})
}

fn kind_of((group, version, kind): (&str, &str, &str)) -> Value {
    json!({"group": group, "version": version, "kind": kind})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::catalog::Catalog;

    #[test]
    fn both_discovery_formats_name_the_same_resources() {
        let served = Catalog::new().served();
        let legacy_names: Vec<String> = resources(&served, "", "v1").unwrap()["resources"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|one| one["name"].as_str())
            .filter(|name| !name.contains('/'))
            .map(str::to_owned)
            .collect();
        let new = aggregated(&served, true);
        let new_names: Vec<&str> = new["items"][0]["versions"][0]["resources"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|one| one["resource"].as_str())
            .collect();
        assert_eq!(legacy_names, new_names);
        assert!(new_names.contains(&"nodes"));
    }

    #[test]
    fn an_unknown_group_is_not_found() {
        let served = Catalog::new().served();
        assert_eq!(legacy(&served, &Target::Group("nope".into())), None);
        assert!(legacy(&served, &Target::Group("policy".into())).is_some());
    }

    #[test]
    fn stable_versions_come_first() {
        let mut names = vec!["v1alpha1", "v1", "v2beta1", "v2"];
        names.sort_by_key(|name| std::cmp::Reverse(rank(name)));
        assert_eq!(names, ["v2", "v1", "v2beta1", "v1alpha1"]);
    }
}
