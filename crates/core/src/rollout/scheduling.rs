//! The labels and taints that say whether ordinary pods may run on the control plane.
//!
//! Only nodes with the label `master` are looked at: it is OpenShift's, so nodes of other clusters
//! are left as their administrators made them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;

const MASTER: &str = "node-role.kubernetes.io/master";
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
const WORKER: &str = "node-role.kubernetes.io/worker";
const NO_SCHEDULE: &str = "NoSchedule";

/// Whether ordinary pods may run on the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MastersSchedulable {
    /// They may.
    Yes,
    /// They may not.
    No,
}

/// Labels to set, or to take off where there is no value.
pub type LabelChanges = BTreeMap<String, Option<String>>;

/// What is to change about the labels of a node; nothing for nodes of other roles.
///
/// Where the cluster does not say whether pods may run there, only the newer name of the role is
/// made sure of.
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

/// Puts the taints of a node right; nothing happens to those of nodes of other roles.
pub fn taint(
    labels: &BTreeMap<String, String>,
    wanted: Option<MastersSchedulable>,
    taints: &mut Vec<Taint>,
) {
    if !labels.contains_key(MASTER) {
        return;
    }
    let keeps_off = |taint: &Taint, keys: &[&str]| {
        taint.effect == NO_SCHEDULE && keys.contains(&taint.key.as_str())
    };
    let is_kept_off = taints.iter().any(|taint| keeps_off(taint, &[MASTER]));
    match wanted {
        Some(MastersSchedulable::Yes) => {
            taints.retain(|taint| !keeps_off(taint, &[MASTER, CONTROL_PLANE]));
        }
        Some(MastersSchedulable::No) if !is_kept_off => taints.push(Taint {
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
    fn the_control_plane_takes_pods_where_the_cluster_says_so() {
        use MastersSchedulable::{No, Yes};
        let cases = [
            // labels, taints, what the cluster says, changes to labels, taints afterwards
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
