//! OS images that are already in podman's storage, so that no registry is needed.
//!
//! Compat: commands, paths and the key in the policy are the reference's (`pkg/daemon/podman.go`,
//! `rpm-ostree.go`). Better: an image that is known only by a tag comes from the registry, because
//! the tag may have moved since; and a policy that allows the image anyway is not changed.

use serde::Deserialize;
use serde_json::{Value, json};
use tracing::{info, warn};

use super::{CommandRunner, parse_error};
use crate::{root::Root, system::SystemError};

const PODMAN: &str = "/usr/bin/podman";
const SYSTEMCTL: &str = "/usr/bin/systemctl";
const POLICY: &str = "/etc/containers/policy.json";
pub(super) const OWN_POLICY: &str = "/run/tmp-rpm-ostree-policy.json";
pub(super) const DROPIN: &str =
    "/run/systemd/system/rpm-ostreed.service.d/temporal-policy-binding.conf";
const TRANSPORT: &str = "containers-storage";

/// An image in podman's storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Local {
    /// Name with digest.
    pub(super) digest: String,
    id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    id: String,
    #[serde(default)]
    repo_digests: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Info {
    store: Store,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Store {
    graph_driver_name: String,
    graph_root: String,
}

/// Returns true if podman has this image, by whatever name.
pub(super) fn has(runner: &dyn CommandRunner, image: &str) -> Result<bool, SystemError> {
    Ok(!list(runner, image)?.is_empty())
}

/// Finds the image by its digest.
pub(super) fn find(
    root: &Root,
    runner: &dyn CommandRunner,
    image: &str,
) -> Result<Option<Local>, SystemError> {
    if !root.exists(PODMAN)? {
        return Ok(None);
    }
    let found = list(runner, image)?.into_iter().find_map(|it| {
        let digests = it.repo_digests.unwrap_or_default();
        digests.iter().any(|digest| digest == image).then_some(it.id)
    });
    Ok(found.map(|id| Local { digest: image.to_owned(), id }))
}

fn list(runner: &dyn CommandRunner, image: &str) -> Result<Vec<Listed>, SystemError> {
    let filter = format!("reference={image}");
    let text = runner.run(&[PODMAN, "images", "--format=json", "--filter", &filter])?;
    serde_json::from_str(&text).map_err(|error| parse_error("podman images --format=json", &error))
}

/// Allows this image for rpm-ostree, if the machine's policy may not.
pub(super) fn allow(
    root: &Root,
    runner: &dyn CommandRunner,
    image: &Local,
) -> Result<(), SystemError> {
    let Some(bytes) = root.read(POLICY)? else { return Ok(()) };
    let policy: Value = serde_json::from_slice(&bytes)
        .map_err(|error| parse_error(&format!("read {POLICY}"), &error))?;
    if is_allowed(&policy) {
        return Ok(());
    }
    let text = runner.run(&[PODMAN, "system", "info", "--format=json"])?;
    let Info { store } = serde_json::from_str(&text)
        .map_err(|error| parse_error("podman system info --format=json", &error))?;
    let key =
        format!("[{}@{}]{}@{}", store.graph_driver_name, store.graph_root, image.digest, image.id);
    let opened = with(policy, &key);
    root.write(OWN_POLICY, opened.to_string().as_bytes(), 0o644)?;
    let dropin = format!("[Service]\nBindReadOnlyPaths={OWN_POLICY}:{POLICY}\n");
    root.write(DROPIN, dropin.as_bytes(), 0o644)?;
    info!(image = key, "Allowed the local image for rpm-ostree until it is staged");
    reload(runner)
}

/// Reverts [`allow`], also that of a crashed daemon.
pub(super) fn forbid(root: &Root, runner: &dyn CommandRunner) -> Result<(), SystemError> {
    // The drop-in first: without it the daemon's policy has no effect.
    let was_there = root.remove(DROPIN)?;
    root.remove(OWN_POLICY)?;
    if was_there { reload(runner) } else { Ok(()) }
}

/// Like [`forbid`], but only logs a failure.
pub(super) fn forbid_or_warn(root: &Root, runner: &dyn CommandRunner) {
    if let Err(error) = forbid(root, runner) {
        warn!(%error, "Failed to restore the image policy of rpm-ostree");
    }
}

fn reload(runner: &dyn CommandRunner) -> Result<(), SystemError> {
    runner.run(&[SYSTEMCTL, "daemon-reload"])?;
    runner.run(&[SYSTEMCTL, "try-restart", "rpm-ostreed"]).map(drop)
}

/// Returns true if a policy clearly allows any image of local storage.
fn is_allowed(policy: &Value) -> bool {
    let anything = json!([{"type": "insecureAcceptAnything"}]);
    policy.get("default") == Some(&anything)
        && policy.pointer(&format!("/transports/{TRANSPORT}")).is_none()
}

/// Adds one allowed image to the policy.
fn with(mut policy: Value, key: &str) -> Value {
    if !policy.is_object() {
        policy = json!({});
    }
    let anything = json!([{"type": "insecureAcceptAnything"}]);
    let mut place = &mut policy;
    for member in ["transports", TRANSPORT] {
        if !place.get(member).is_some_and(Value::is_object)
            && let Some(members) = place.as_object_mut()
        {
            members.insert(member.to_owned(), json!({}));
        }
        place = place.get_mut(member).expect("the member was inserted above");
    }
    if let Some(images) = place.as_object_mut() {
        images.insert(key.to_owned(), anything);
    }
    policy
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: C86
    #[test]
    fn a_policy_is_changed_for_one_image_and_only_if_needed() {
        let open = json!({"default": [{"type": "insecureAcceptAnything"}], "transports": {
            "docker": {"r.example": [{"type": "reject"}]}}});
        assert!(is_allowed(&open));
        let mut own = open.clone();
        own["transports"]["containers-storage"] = json!({"": [{"type": "reject"}]});
        let closed = json!({"default": [{"type": "reject"}]});
        for policy in [own, closed, json!({}), json!("odd")] {
            assert!(!is_allowed(&policy), "{policy}");
            let opened = with(policy.clone(), "[overlay@/x]a@1");
            let rule = &opened["transports"]["containers-storage"]["[overlay@/x]a@1"];
            assert_eq!(*rule, json!([{"type": "insecureAcceptAnything"}]));
            for (member, before) in policy.as_object().into_iter().flatten() {
                let is_kept = opened[member] == *before || member == "transports";
                assert!(is_kept, "{opened}");
            }
        }
    }
}
