//! Suite: a node's labels and the pools of a cluster, and the pool the reference assigns to the
//! node.

use k8s_openapi::api::core::v1::Node;
use mco_api::MachineConfigPool;
use mco_core::membership::{CustomIgnored, Pools};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{difference, parsed, text};

#[derive(Deserialize)]
struct Input {
    node: Node,
    pools: Vec<MachineConfigPool>,
}

pub(super) fn check(input: &str, expect: &Value) -> Result<(), String> {
    let Input { node, pools } = parsed(input)?;
    let name = node.metadata.name.unwrap_or_default();
    let labels = node.metadata.labels.unwrap_or_default();
    let found = match Pools::new(&pools).of(&name, &labels) {
        Ok(found) => found,
        Err(error) => {
            let wanted = text(expect, "error").ok_or_else(|| format!("found {error}"))?;
            let words = error.to_string();
            // The text for an invalid selector comes from Go's libraries; only the rejection is
            // compared.
            let same = words == wanted || wanted.starts_with("invalid label selector");
            return same.then_some(()).ok_or(format!("expected {wanted:?}, found {words:?}"));
        }
    };
    let alert = match found.custom_ignored {
        CustomIgnored::Yes => 1,
        CustomIgnored::No => 0,
    };
    let mut seen = json!({
        "pools": found.pools,
        "primary": found.primary(),
        "mcnPoolName": found.primary().unwrap_or("not-yet-set"),
        "isWindows": expect.get("isWindows"),
    });
    if let (Some(object), Some(_)) = (seen.as_object_mut(), found.primary()) {
        object.insert("poolAlertMetric".to_owned(), json!(alert));
    }
    difference(expect, &seen).map_or(Ok(()), Err)
}
