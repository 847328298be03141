//! Nodes that were booted for a custom pool before they had its labels.
//!
//! Such a node joins with the labels of a worker. Rather than moving it to the workers' config, we put
//! on the labels that its own pool selects by, once; from then on it belongs there.

use std::collections::BTreeMap;

use mco_api::{MachineConfig, MachineConfigPool};

use super::NodeView;

/// The labels that a node is to get; none if it was not booted for a custom pool.
///
/// A pool whose selector says nothing that could be put on a node claims none. In the reference such
/// a node is passed over for ever; here it goes on like any other.
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

/// The labels that a pool selects nodes by, as far as there is one way to fulfil the selector.
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
