//! Event messages for changed annotations of a control plane node.

use std::collections::BTreeMap;

use mco_api::annotation;

/// Annotations whose changes are reported.
const WATCHED: [&str; 6] = [
    annotation::CURRENT_CONFIG.name(),
    annotation::DESIRED_CONFIG.name(),
    annotation::STATE.name(),
    annotation::REASON.name(),
    annotation::CURRENT_IMAGE.name(),
    annotation::DESIRED_IMAGE.name(),
];

/// Returns one message per changed annotation; none if the node has only completed its update.
#[must_use]
pub fn notices(
    node: &str,
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
) -> Vec<String> {
    if is_completion(before, after) {
        return Vec::new();
    }
    let changed = WATCHED.into_iter().filter(|key| before.get(*key) != after.get(*key));
    changed
        .map(|key| match after.get(key) {
            Some(value) => format!("Node {node} now has {key}={value}"),
            None => format!("Node {node} no longer has {key}"),
        })
        .collect()
}

/// Returns true if the node was updating and is done now.
fn is_completion(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> bool {
    let [current, desired, state, _, current_image, desired_image] = WATCHED;
    let is_there = after.get(current).is_some_and(|config| !config.is_empty())
        && after.get(current) == after.get(desired)
        && after.get(current_image) == after.get(desired_image);
    before.get(current) != before.get(desired)
        && is_there
        && after.get(state).is_some_and(|state| state == "Done")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(text: &str) -> BTreeMap<String, String> {
        let pair = |word: &str| {
            let (key, value) = word.split_once('=').expect("key=value");
            (format!("machineconfiguration.openshift.io/{key}"), value.to_owned())
        };
        text.split_whitespace().map(pair).collect()
    }

    // covers: NOD-34
    #[test]
    fn a_changed_annotation_is_reported_unless_the_node_has_completed_its_update() {
        let prefix = "machineconfiguration.openshift.io/";
        let old = "currentConfig=a desiredConfig=a state=Done";
        let cases = [
            (old, old, &[][..]),
            (old, "currentConfig=a desiredConfig=b state=Done", &["now has +desiredConfig=b"]),
            (
                "currentConfig=a desiredConfig=b state=Done",
                "currentConfig=a desiredConfig=b state=Degraded reason=x",
                &["now has +state=Degraded", "now has +reason=x"],
            ),
            ("reason=x other=y", "", &["no longer has +reason"]),
            (
                "currentConfig=a desiredConfig=b state=Working",
                "currentConfig=b desiredConfig=b state=Done",
                &[],
            ),
        ];
        for (before, after, expected) in cases {
            let messages = notices("m0", &annotations(before), &annotations(after));
            let expected: Vec<String> = expected
                .iter()
                .map(|text| format!("Node m0 {}", text.replace('+', prefix)))
                .collect();
            assert_eq!(messages, expected, "{before} -> {after}");
        }
    }
}
