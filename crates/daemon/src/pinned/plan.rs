//! Plans the sync of pinned images: the images, their space, and the state of each set.
//!
//! Pure.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use mco_api::{PinnedImageSet, machine_config_node::PinnedImageSetState};

/// Bytes that must stay free: below it the kubelet begins to evict.
const RESERVE: u64 = 16 << 30;

/// Longest error message that the API server accepts.
const MAX_ERROR_LENGTH: usize = 32768;

/// The reason why a node cannot take images now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CannotPull {
    /// The node is not ready.
    #[error("node {node} is reporting NotReady={status}")]
    NotReady {
        /// Name of the node.
        node: String,
        /// Status of its Ready condition.
        status: String,
    },
    /// The node has disk pressure.
    #[error("node {node} is reporting OutOfDisk={status}")]
    OutOfDisk {
        /// Name of the node.
        node: String,
        /// Status of its `DiskPressure` condition.
        status: String,
    },
    /// The images do not fit.
    #[error("storage available is less than minimum required")]
    NoRoom,
}

/// Returns the images of all sets, each once.
pub(super) fn images(sets: &[PinnedImageSet]) -> Vec<String> {
    let all = sets.iter().flat_map(|set| &set.spec.pinned_images);
    let unique: BTreeSet<String> = all.map(|image| image.name.clone()).collect();
    unique.into_iter().collect()
}

/// Builds CRI-O's drop-in; none without images.
pub(super) fn pin_file(images: &[String]) -> Option<String> {
    if images.is_empty() {
        return None;
    }
    let names: Vec<String> =
        images.iter().map(|image| serde_json::Value::from(image.as_str()).to_string()).collect();
    Some(format!("[crio]\n  [crio.image]\n    pinned_images = [{}]\n", names.join(", ")))
}

/// Returns all images that have or get the daemon's label, and those that lose it.
pub(super) fn labels(before: &[String], wanted: &[String]) -> (Vec<String>, Vec<String>) {
    let all: BTreeSet<&String> = before.iter().chain(wanted).collect();
    let unpin = before.iter().filter(|image| !wanted.contains(image)).cloned().collect();
    (all.into_iter().cloned().collect(), unpin)
}

/// Returns the bytes that a healthy node has for images.
pub(super) fn available_bytes(node: &Node) -> Result<u64, CannotPull> {
    let status = node.status.clone().unwrap_or_default();
    let status_of = |kind: &str| {
        let mut all = status.conditions.iter().flatten();
        all.find(|it| it.type_ == kind).map_or_else(String::new, |it| it.status.clone())
    };
    let name = node.name_any();
    let (ready, full) = (status_of("Ready"), status_of("DiskPressure"));
    if ready != "True" {
        return Err(CannotPull::NotReady { node: name, status: ready });
    }
    if full == "True" {
        return Err(CannotPull::OutOfDisk { node: name, status: full });
    }
    let storage = status.allocatable.as_ref().and_then(|all| all.get("ephemeral-storage"));
    // A node without the quantity has no limit.
    let bytes = storage.map_or(Some(u64::MAX), |quantity| bytes(&quantity.0));
    bytes.and_then(|bytes| bytes.checked_sub(RESERVE)).ok_or(CannotPull::NoRoom)
}

/// Fails if the images need more space than available.
pub(super) fn fits(available: u64, needed: u64) -> Result<(), CannotPull> {
    if needed < available { Ok(()) } else { Err(CannotPull::NoRoom) }
}

/// Attempts to pull an image.
const PULLS: u32 = 5;

/// Longest pause between two attempts to pull an image.
const MAX_PULL_PAUSE: Duration = Duration::from_secs(10);

/// Returns the pause after a failed attempt to pull an image, counted from zero; none if the image
/// is not tried again now.
pub(super) fn pull_pause(attempt: u32, first: Duration, fault: &str) -> Option<Duration> {
    // A full disk is not retried.
    let is_over = attempt + 1 >= PULLS || fault.contains("no space left on device");
    (!is_over).then(|| first.saturating_mul(1 << attempt.min(16)).min(MAX_PULL_PAUSE))
}

/// Parses a quantity of bytes.
fn bytes(quantity: &str) -> Option<u64> {
    let end = quantity.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(quantity.len());
    let (number, unit) = quantity.split_at(end);
    let number: u64 = number.parse().ok()?;
    let factor: u64 = match unit {
        "" => 1,
        "m" => return Some(number / 1000),
        "k" => 1000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return None,
    };
    number.checked_mul(factor)
}

/// Builds the state of each set while images are pulled, or after a failure.
pub(super) fn states(
    sets: &[PinnedImageSet],
    known: &[PinnedImageSetState],
    fault: Option<&str>,
) -> Vec<PinnedImageSetState> {
    let state = |set: &PinnedImageSet| {
        let name = set.name_any();
        let before = known.iter().find(|known| known.name == name).cloned().unwrap_or_default();
        let desired_generation = generation(set);
        let mut state = PinnedImageSetState { name, desired_generation, ..before };
        // A failure is not reported for a set that is complete.
        if let Some(fault) = fault.filter(|_| state.current_generation != desired_generation) {
            state.last_failed_generation = desired_generation;
            state.last_failed_generation_error = fault.chars().take(MAX_ERROR_LENGTH).collect();
        }
        state
    };
    sets.iter().map(state).collect()
}

/// Builds the state of each set once its images are pinned.
pub(super) fn complete(sets: &[PinnedImageSet]) -> Vec<PinnedImageSetState> {
    let state = |set: &PinnedImageSet| PinnedImageSetState {
        name: set.name_any(),
        current_generation: generation(set),
        desired_generation: generation(set),
        ..PinnedImageSetState::default()
    };
    sets.iter().map(state).collect()
}

fn generation(set: &PinnedImageSet) -> i32 {
    i32::try_from(set.metadata.generation.unwrap_or(1)).unwrap_or(i32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(name: &str, generation: i64, images: &[&str]) -> PinnedImageSet {
        let images: Vec<_> = images.iter().map(|name| json!({"name": name})).collect();
        serde_json::from_value(json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "PinnedImageSet",
            "metadata": {"name": name, "generation": generation},
            "spec": {"pinnedImages": images}
        }))
        .unwrap()
    }

    // covers: C113
    #[test]
    fn images_of_all_sets_are_pinned_once_each_in_order() {
        let sets = [set("a", 1, &["q/b@x", "q/a@x"]), set("b", 1, &["q/a@x"])];
        assert_eq!(images(&sets), ["q/a@x", "q/b@x"]);
        let text = "[crio]\n  [crio.image]\n    pinned_images = [\"q/a@x\", \"q/b@x\"]\n";
        assert_eq!(pin_file(&images(&sets)).as_deref(), Some(text));
        assert_eq!(pin_file(&[]), None);
    }

    // covers: C115
    #[test]
    fn a_node_that_is_not_ready_or_full_takes_no_images() {
        let node = |ready: &str, full: &str, storage: &str| -> Node {
            serde_json::from_value(json!({"metadata": {"name": "n"}, "status": {
                "conditions": [{"type": "Ready", "status": ready},
                    {"type": "DiskPressure", "status": full}],
                "allocatable": {"ephemeral-storage": storage}}}))
            .unwrap()
        };
        let result = |ready, full, storage| {
            available_bytes(&node(ready, full, storage))
                .and_then(|available| fits(available, 1 << 30))
                .map_or_else(|error| error.to_string(), |()| "fits".to_owned())
        };
        let small = "storage available is less than minimum required";
        let cases = [
            ("True", "False", "18Gi", "fits"),
            ("True", "False", "17Gi", small),
            ("True", "False", "17825792Ki", small),
            ("True", "False", "100G", "fits"),
            ("True", "False", "1Gi", small),
            ("True", "False", "what", small),
            ("Unknown", "False", "18Gi", "node n is reporting NotReady=Unknown"),
            ("True", "True", "18Gi", "node n is reporting OutOfDisk=True"),
        ];
        for (ready, full, storage, want) in cases {
            assert_eq!(result(ready, full, storage), want, "{ready} {full} {storage}");
        }
    }

    // covers: C115
    #[test]
    fn an_image_is_pulled_five_times_with_growing_pauses() {
        let seconds = |attempt, fault: &str| {
            pull_pause(attempt, Duration::from_secs(1), fault).map(|pause| pause.as_secs())
        };
        let pauses: Vec<_> = (0..5).map(|attempt| seconds(attempt, "time-out")).collect();
        assert_eq!(pauses, [Some(1), Some(2), Some(4), Some(8), None]);
        assert_eq!(pull_pause(3, Duration::from_secs(9), ""), Some(MAX_PULL_PAUSE));
        assert_eq!(seconds(0, "write /a: no space left on device"), None);
    }

    // covers: C114
    #[test]
    fn a_failure_is_reported_for_incomplete_sets_only() {
        let sets = [set("a", 1, &[]), set("b", 2, &[])];
        let first = complete(&sets[..1]);
        let failed = states(&sets, &first, Some("no route"));
        let generations = |state: &PinnedImageSetState| {
            (state.current_generation, state.desired_generation, state.last_failed_generation)
        };
        assert_eq!(failed.iter().map(generations).collect::<Vec<_>>(), [(1, 1, 0), (0, 2, 2)]);
        assert_eq!(failed[1].last_failed_generation_error, "no route");
        let done = complete(&sets);
        assert_eq!(done.iter().map(generations).collect::<Vec<_>>(), [(1, 1, 0), (2, 2, 0)]);
    }
}
