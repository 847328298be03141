//! The output of `rpm-ostree status --json`.

use ostree::{Deployment, DeploymentUnlockedState, glib};
use serde_json::{Map, Value, json};

use crate::{
    layers, registry,
    sysroot::{Origin, System},
};

/// Returns the status of all deployments, or of the booted one.
pub(crate) fn json(system: &System, only_booted: bool) -> anyhow::Result<Value> {
    let mut deployments = Vec::new();
    for deployment in system.sysroot.deployments() {
        if !only_booted || deployment.equal(&system.booted) {
            deployments.push(one(system, &deployment)?);
        }
    }
    Ok(json!({
        "deployments": deployments,
        "transaction": null,
        "cached-update": null,
        "update-driver": null,
    }))
}

/// Returns the id of a deployment: operating system, commit and serial number.
pub(crate) fn id(deployment: &Deployment) -> String {
    format!("{}-{}.{}", deployment.osname(), deployment.csum(), deployment.deployserial())
}

fn one(system: &System, deployment: &Deployment) -> anyhow::Result<Value> {
    let origin = Origin::of(deployment)?;
    let commit = deployment.csum();
    let layers = layers::of(&system.repo, &commit)?;
    let base = layers::base(&system.repo, &commit)?;
    let mut found = Map::new();
    let mut add = |key: &str, value: Value| found.insert(key.to_owned(), value);
    add("id", json!(id(deployment)));
    add("osname", json!(deployment.osname().as_str()));
    add("checksum", json!(commit.as_str()));
    add("serial", json!(deployment.deployserial()));
    add("booted", json!(deployment.equal(&system.booted)));
    add("staged", json!(deployment.is_staged()));
    add("pinned", json!(deployment.is_pinned()));
    let unlocked = match deployment.unlocked() {
        DeploymentUnlockedState::None => "none",
        _ => "development",
    };
    add("unlocked", json!(unlocked));
    add("requested-packages", json!(origin.packages));
    for empty in ["requested-local-packages", "requested-local-fileoverride-packages"] {
        add(empty, json!([]));
    }
    add("requested-base-removals", json!(origin.removals));
    add("requested-base-local-replacements", json!([]));
    add("regenerate-initramfs", json!(false));
    let (_, digest) = registry::image(&origin.image)?;
    add("container-image-reference", json!(origin.image));
    add("container-image-reference-digest", json!(format!("sha256:{digest}")));
    if layers.is_layered {
        add("base-checksum", json!(base));
        add("base-timestamp", json!(timestamp(system, &base)?));
        add("layered-commit-meta", json!({"rpmostree.clientlayer": true}));
    }
    add("base-commit-meta", json!({}));
    add("timestamp", json!(timestamp(system, &commit)?));
    add("packages", json!(layers.packages));
    // Each is an array: name with version, name, epoch, version, release, architecture.
    add("base-removals", json!(layers.removals));
    add("base-local-replacements", json!([]));
    add("base-remote-replacements", json!({}));
    Ok(Value::Object(found))
}

fn timestamp(system: &System, commit: &str) -> anyhow::Result<u64> {
    let commit: glib::Variant = layers::load(&system.repo, commit)?;
    Ok(ostree::commit_get_timestamp(&commit))
}
