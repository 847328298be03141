//! Tests that the CRD files in `deploy/crds` match the Rust types and are readable as YAML.

use std::collections::BTreeSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use crate::{read, workspace};

fn name(crd: &CustomResourceDefinition) -> &str {
    crd.metadata.name.as_deref().expect("every CRD has a name")
}

#[test]
fn the_crd_files_are_up_to_date() {
    let folder = workspace().join("deploy/crds");
    let mut expected = BTreeSet::new();
    for crd in mco_api::crds() {
        let file = format!("{}.yaml", name(&crd));
        let text = read(&folder.join(&file)).unwrap_or_default();
        let body: String =
            text.split_inclusive('\n').skip_while(|line| line.starts_with('#')).collect();
        assert!(body == mco_api::crd_yaml(&crd), "deploy/crds/{file} is stale: run `make gen`");
        expected.insert(file);
    }
    assert_eq!(files_in(&folder), expected, "deploy/crds has files of unknown kinds");
}

#[expect(clippy::disallowed_methods, reason = "tests read fixtures from disk")]
fn files_in(folder: &std::path::Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).expect("deploy/crds is part of the repository");
    entries
        .map(|entry| entry.expect("the directory is readable").file_name())
        .map(|name| name.into_string().expect("file names are UTF-8"))
        .collect()
}

#[test]
fn the_yaml_parses_to_the_same_crd() {
    for crd in mco_api::crds() {
        let text = mco_api::crd_yaml(&crd);
        let read: CustomResourceDefinition =
            serde_saphyr::from_str(&text).expect("our own YAML is readable");
        assert!(read == crd, "{} changed in the round trip through YAML", name(&crd));
    }
}

#[test]
fn crds_are_sorted_and_cluster_scoped() {
    let crds = mco_api::crds();
    let names: Vec<_> = crds.iter().map(name).collect();
    assert!(names.is_sorted(), "{names:?}");
    assert!(crds.iter().all(|crd| crd.spec.scope == "Cluster"));
}

/// All members have a description, except those whose name suffices.
#[test]
fn every_member_is_described() {
    fn visit(schema: &Value, path: &str, missing: &mut Vec<String>) {
        for (name, member) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            if member.get("description").is_none() && !path.ends_with(".metadata") {
                missing.push(path.clone());
            }
            visit(member, &path, missing);
        }
        if let Some(items) = schema.get("items") {
            visit(items, &format!("{path}[]"), missing);
        }
    }
    let mut missing = Vec::new();
    for crd in mco_api::crds() {
        let value = serde_json::to_value(&crd).expect("a CRD converts to JSON");
        let schema = &value["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        visit(schema, name(&crd), &mut missing);
    }
    assert!(missing.is_empty(), "{missing:#?}");
}
