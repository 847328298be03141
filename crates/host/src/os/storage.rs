//! OS images that the machine has already, in podman's storage: no registry is needed for them.
//!
//! Compat: commands, paths and the key in the policy are the reference's (`pkg/daemon/podman.go`,
//! `rpm-ostree.go`). Better: an image that is known only by a tag comes from the registry, for what the
//! tag means may have changed since; and a policy that allows the image anyway is left alone.

use serde::Deserialize;
use serde_json::{Value, json};
use tracing::{info, warn};

use super::{CommandRunner, garbled};
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
    /// What it is called, with its digest.
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

/// Whether podman has this image, by whatever name.
pub(super) fn has(runner: &dyn CommandRunner, image: &str) -> Result<bool, SystemError> {
    Ok(!list(runner, image)?.is_empty())
}

/// The image, if podman has it by its digest.
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
    serde_json::from_str(&text).map_err(|error| garbled("podman images --format=json", &error))
}

/// Lets rpm-ostree take this image, where the machine's policy may not.
pub(super) fn allow(
    root: &Root,
    runner: &dyn CommandRunner,
    image: &Local,
) -> Result<(), SystemError> {
    let Some(bytes) = root.read(POLICY)? else { return Ok(()) };
    let policy: Value = serde_json::from_slice(&bytes)
        .map_err(|error| garbled(&format!("read {POLICY}"), &error))?;
    if is_allowed(&policy) {
        return Ok(());
    }
    let text = runner.run(&[PODMAN, "system", "info", "--format=json"])?;
    let Info { store } = serde_json::from_str(&text)
        .map_err(|error| garbled("podman system info --format=json", &error))?;
    let key =
        format!("[{}@{}]{}@{}", store.graph_driver_name, store.graph_root, image.digest, image.id);
    let opened = with(policy, &key);
    root.write(OWN_POLICY, opened.to_string().as_bytes(), 0o644)?;
    let dropin = format!("[Service]\nBindReadOnlyPaths={OWN_POLICY}:{POLICY}\n");
    root.write(DROPIN, dropin.as_bytes(), 0o644)?;
    info!("rpm-ostree may take {key} from local storage until the image is staged");
    reload(runner)
}

/// Takes back what [`allow`] let; also what a daemon that died left behind.
pub(super) fn forbid(root: &Root, runner: &dyn CommandRunner) -> Result<(), SystemError> {
    // The drop-in first: without it the policy of ours is only a file.
    let was_there = root.remove(DROPIN)?;
    root.remove(OWN_POLICY)?;
    if was_there { reload(runner) } else { Ok(()) }
}

/// The same where nothing can be done about a failure but say so.
pub(super) fn forbid_or_warn(root: &Root, runner: &dyn CommandRunner) {
    if let Err(error) = forbid(root, runner) {
        warn!(%error, "rpm-ostree still has the policy of the last update");
    }
}

fn reload(runner: &dyn CommandRunner) -> Result<(), SystemError> {
    runner.run(&[SYSTEMCTL, "daemon-reload"])?;
    runner.run(&[SYSTEMCTL, "try-restart", "rpm-ostreed"]).map(drop)
}

/// Whether a policy lets any image of local storage through, for all that can be told at a glance.
fn is_allowed(policy: &Value) -> bool {
    let anything = json!([{"type": "insecureAcceptAnything"}]);
    policy.get("default") == Some(&anything)
        && policy.pointer(&format!("/transports/{TRANSPORT}")).is_none()
}

/// The policy with one more image that it lets through.
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
        place = place.get_mut(member).expect("it was put there");
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
    fn a_policy_is_opened_for_one_image_and_only_where_it_is_closed() {
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
