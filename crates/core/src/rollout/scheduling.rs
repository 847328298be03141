//! Labels and taints that allow or forbid ordinary pods on the control plane.
//!
//! Only nodes with the label `master` are changed: it is OpenShift's, so nodes of other clusters
//! stay as their administrators configured them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;

const MASTER: &str = "node-role.kubernetes.io/master";
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
const WORKER: &str = "node-role.kubernetes.io/worker";
const NO_SCHEDULE: &str = "NoSchedule";

/// The setting `mastersSchedulable` of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MastersSchedulable {
    /// Ordinary pods may run on the control plane.
    Yes,
    /// Ordinary pods may not run on the control plane.
    No,
}

/// Labels to set, or to remove if the value is `None`.
pub type LabelChanges = BTreeMap<String, Option<String>>;

/// Returns the label changes of a node; none for nodes of other roles.
///
/// If the cluster has no setting, only the label `control-plane` is ensured.
#[must_use]
pub fn labels(
    labels: &BTreeMap<String, String>,
    wanted: Option<MastersSchedulable>,
) -> LabelChanges {
    let mut changes = LabelChanges::new();
    if !labels.contains_key(MASTER) {
        return changes;
    }
    if !labels.contains_key(CONTROL_PLANE) {
        changes.insert(CONTROL_PLANE.to_owned(), Some(String::new()));
    }
    match (wanted, labels.contains_key(WORKER)) {
        (Some(MastersSchedulable::Yes), false) => {
            changes.insert(WORKER.to_owned(), Some(String::new()));
        }
        (Some(MastersSchedulable::No), true) => {
            changes.insert(WORKER.to_owned(), None);
        }
        (Some(MastersSchedulable::Yes), true)
        | (Some(MastersSchedulable::No), false)
        | (None, true | false) => {}
    }
    changes
}

/// Corrects the taints of a node; those of nodes of other roles stay unchanged.
pub fn taint(
    labels: &BTreeMap<String, String>,
    wanted: Option<MastersSchedulable>,
    taints: &mut Vec<Taint>,
) {
    if !labels.contains_key(MASTER) {
        return;
    }
    let repels = |taint: &Taint, keys: &[&str]| {
        taint.effect == NO_SCHEDULE && keys.contains(&taint.key.as_str())
    };
    let is_tainted = taints.iter().any(|taint| repels(taint, &[MASTER]));
    match wanted {
        Some(MastersSchedulable::Yes) => {
            taints.retain(|taint| !repels(taint, &[MASTER, CONTROL_PLANE]));
        }
        Some(MastersSchedulable::No) if !is_tainted => taints.push(Taint {
            key: MASTER.to_owned(),
            effect: NO_SCHEDULE.to_owned(),
            ..Taint::default()
        }),
        Some(MastersSchedulable::No) | None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> BTreeMap<String, String> {
        text.split_whitespace()
            .map(|role| (format!("node-role.kubernetes.io/{role}"), String::new()))
            .collect()
    }

    fn taints_of(text: &str) -> Vec<Taint> {
        let taint = |key: &String| Taint {
            key: key.clone(),
            effect: NO_SCHEDULE.to_owned(),
            ..Taint::default()
        };
        set(text).keys().map(taint).collect()
    }

    fn short(key: &str) -> &str {
        key.rsplit('/').next().unwrap_or_default()
    }

    // covers: NOD-31, NOD-32
    #[test]
    fn the_control_plane_accepts_pods_if_the_cluster_says_so() {
        use MastersSchedulable::{No, Yes};
        let cases = [
            // labels, taints, setting, changes to labels, taints afterwards
            ("master", "master", None, "+control-plane", "master"),
            ("master control-plane", "master", None, "", "master"),
            ("master control-plane", "control-plane master x", Some(Yes), "+worker", "x"),
            ("master control-plane worker", "", Some(Yes), "", ""),
            ("master control-plane worker", "x", Some(No), "-worker", "x master"),
            ("master control-plane", "master", Some(No), "", "master"),
            ("control-plane", "control-plane", Some(Yes), "", "control-plane"),
            ("worker", "", Some(No), "", ""),
        ];
        for (before, taints, wanted, expected, after) in cases {
            let changes: Vec<String> = labels(&set(before), wanted)
                .iter()
                .map(|(key, value)| {
                    format!("{}{}", if value.is_some() { '+' } else { '-' }, short(key))
                })
                .collect();
            assert_eq!(changes.join(" "), expected, "{before} {wanted:?}");
            let mut found = taints_of(taints);
            taint(&set(before), wanted, &mut found);
            let found: Vec<&str> = found.iter().map(|taint| short(&taint.key)).collect();
            assert_eq!(found.join(" "), after, "{before} {wanted:?}");
        }
    }
}
