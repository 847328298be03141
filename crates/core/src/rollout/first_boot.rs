//! Labelling of nodes that were booted for a custom pool before they had its labels.
//!
//! Such a node joins with the labels of a worker. Instead of moving it to the workers' config, the
//! controller sets the labels of its custom pool's selector, once; from then on the node belongs to
//! that pool.

use std::collections::BTreeMap;

use mco_api::{MachineConfig, MachineConfigPool};

use super::NodeView;

/// Returns the labels to set on a node; `None` if the node was not booted for a custom pool.
///
/// A pool whose selector contains nothing that could be set as a label claims no node. The
/// reference skips such a node for ever; here it is updated like any other.
pub fn claim<'a>(
    node: &NodeView,
    config: impl Fn(&str) -> Option<&'a MachineConfig>,
    pool: impl Fn(&str) -> Option<&'a MachineConfigPool>,
) -> Option<BTreeMap<String, String>> {
    let config = config(node.first_config.as_deref()?)?;
    let owner = config.metadata.owner_references.as_ref()?.first()?;
    if matches!(owner.name.as_str(), "master" | "worker") {
        return None;
    }
    let labels = labels(pool(&owner.name)?);
    Some(labels).filter(|labels| !labels.is_empty())
}

/// Returns the labels that satisfy a pool's selector, as far as there is only one way to do so.
fn labels(pool: &MachineConfigPool) -> BTreeMap<String, String> {
    let Some(selector) = &pool.spec.node_selector else { return BTreeMap::new() };
    let mut labels = selector.match_labels.clone().unwrap_or_default();
    for expression in selector.match_expressions.iter().flatten() {
        let values = expression.values.as_deref().unwrap_or_default();
        let value = match (expression.operator.as_str(), values) {
            ("In", [value]) => value.clone(),
            ("Exists", _) => String::new(),
            _ => continue,
        };
        labels.entry(expression.key.clone()).or_insert(value);
    }
    labels
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture::{machine_config, nodes};

    /// Returns the labels of a node whose first config belongs to the pool with this selector.
    fn labels_of(owner: &str, selector: &serde_json::Value) -> Option<BTreeMap<String, String>> {
        let mut config = machine_config("rendered-1", "worker");
        let owner =
            json!([{"apiVersion": "v1", "kind": "MachineConfigPool", "name": owner, "uid": "1"}]);
        config.metadata.owner_references = serde_json::from_value(owner).expect("an owner");
        let mut pool = MachineConfigPool::new("infra", mco_api::MachineConfigPoolSpec::default());
        pool.spec.node_selector = serde_json::from_value(selector.clone()).expect("a selector");
        let mut node = nodes("a=old").remove(0);
        node.first_config = Some("rendered-1".to_owned());
        claim(&node, |name| (name == "rendered-1").then_some(&config), |_| Some(&pool))
    }

    #[test]
    fn a_node_gets_the_labels_that_its_own_pool_selects_by() {
        let labels = |pairs: &[(&str, &str)]| {
            Some(
                pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            )
        };
        let by_label = json!({"matchLabels": {"role": "infra"}});
        assert_eq!(labels_of("infra", &by_label), labels(&[("role", "infra")]));
        assert_eq!(labels_of("worker", &by_label), None, "no custom pool");
        let by_expression = json!({"matchLabels": {"a": "1"}, "matchExpressions": [
            {"key": "a", "operator": "In", "values": ["2"]},
            {"key": "b", "operator": "In", "values": ["3"]},
            {"key": "c", "operator": "Exists"},
            {"key": "d", "operator": "In", "values": ["4", "5"]},
            {"key": "e", "operator": "DoesNotExist"},
        ]});
        let expected = labels(&[("a", "1"), ("b", "3"), ("c", "")]);
        assert_eq!(labels_of("infra", &by_expression), expected);
        assert_eq!(labels_of("infra", &json!({})), None, "the selector has no labels to set");
    }
}
