//! The labels that make a new node a member of its pool.
//!
//! A kubelet may not set the label of a role itself. Where no cloud provider and no installer does,
//! it registers with the label `node.kubernetes.io/machine-config-pool`, and the controller adds the
//! labels that the pool selects. A kubelet can claim any pool by that label, so it counts only for
//! pools outside the control plane; the record of a join, which the machine cannot change, counts
//! for all.

use std::collections::BTreeMap;

use mco_api::{MachineConfigPool, label};

use super::token::StoredToken;

/// Roles of the control plane.
const CONTROL_PLANE: [&str; 3] = ["master", "control-plane", "arbiter"];

/// The labels to add to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolLabels {
    /// Pool of the node.
    pub pool: String,
    /// Labels that the node lacks.
    pub labels: BTreeMap<String, String>,
}

/// Reason why a new node does not become a member of the pool that it asks for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolRefusal {
    /// The pool does not exist.
    #[error("pool {pool} does not exist")]
    NoPool {
        /// The pool.
        pool: String,
    },
    /// The pool selects nodes by something else than labels with values.
    #[error(
        "pool {pool} does not select its nodes by spec.nodeSelector.matchLabels; label node {node} \
         by hand"
    )]
    NoLabels {
        /// The pool.
        pool: String,
        /// The node.
        node: String,
    },
    /// The pool is part of the control plane, and the node has only its own word.
    #[error(
        "node {node} asks for pool {pool} of the control plane, and no join token names that pool; \
         label the node by hand, or let the machine join with a token of \
         `mco token create --pool {pool}`"
    )]
    ControlPlane {
        /// The pool.
        pool: String,
        /// The node.
        node: String,
    },
}

/// Returns the pool of the token that a node joined with.
#[must_use]
pub fn joined_pool<'t>(node: &str, tokens: &'t [StoredToken]) -> Option<&'t str> {
    let joins = |token: &&StoredToken| token.joins.iter().any(|join| join.approved == node);
    // The newest token: a name may be given to another machine later.
    let newest = tokens.iter().filter(joins).max_by_key(|token| token.token.created.0);
    newest.map(|token| token.token.pool.as_str())
}

/// Returns the labels to add to a node that belongs to no pool; `None` if it asks for none.
pub fn labels(
    node: &str,
    present: &BTreeMap<String, String>,
    joined: Option<&str>,
    find: impl Fn(&str) -> Option<MachineConfigPool>,
) -> Result<Option<PoolLabels>, PoolRefusal> {
    let asked = present.get(label::NODE_POOL).map(String::as_str);
    let Some(name) = joined.or(asked).filter(|name| !name.is_empty()) else { return Ok(None) };
    let (pool, node) = (name.to_owned(), node.to_owned());
    let Some(found) = find(name) else { return Err(PoolRefusal::NoPool { pool }) };
    let selector = found.spec.node_selector.unwrap_or_default();
    let wanted = selector.match_labels.unwrap_or_default();
    let by_expressions = selector.match_expressions.is_some_and(|list| !list.is_empty());
    if wanted.is_empty() || by_expressions {
        return Err(PoolRefusal::NoLabels { pool, node });
    }
    let is_control_plane = CONTROL_PLANE.contains(&name)
        || wanted.keys().any(|key| {
            key.strip_prefix(label::NODE_ROLE_PREFIX)
                .is_some_and(|role| CONTROL_PLANE.contains(&role))
        });
    if is_control_plane && joined.is_none() {
        return Err(PoolRefusal::ControlPlane { pool, node });
    }
    let labels: BTreeMap<String, String> =
        wanted.into_iter().filter(|(key, value)| present.get(key) != Some(value)).collect();
    Ok((!labels.is_empty()).then_some(PoolLabels { pool, labels }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::join::fixture::{at, stored};

    fn find(name: &str) -> Option<MachineConfigPool> {
        let selector = match name {
            "worker" | "master" | "infra" => {
                json!({"matchLabels": {format!("node-role.kubernetes.io/{name}"): ""}})
            }
            "disguised" => json!({"matchLabels": {"node-role.kubernetes.io/control-plane": ""}}),
            "expressions" => json!({"matchLabels": {"a": "b"}, "matchExpressions": [
                {"key": "c", "operator": "Exists"}]}),
            "everything" => json!({}),
            _ => return None,
        };
        let pool = json!({"metadata": {"name": name}, "spec": {"nodeSelector": selector}});
        Some(serde_json::from_value(pool).unwrap())
    }

    #[test]
    fn a_new_node_gets_the_labels_of_its_pool() {
        let rows = [
            ("worker", None, "worker: node-role.kubernetes.io/worker"),
            ("infra", None, "infra: node-role.kubernetes.io/infra"),
            ("", None, ""),
            ("gone", None, "pool gone does not exist"),
            ("expressions", None, "label node a by hand"),
            ("everything", None, "label node a by hand"),
            // A kubelet cannot make its node a member of the control plane.
            ("master", None, "no join token names that pool"),
            ("disguised", None, "no join token names that pool"),
            ("worker", Some("master"), "master: node-role.kubernetes.io/master"),
            ("master", Some("worker"), "worker: node-role.kubernetes.io/worker"),
            ("", Some("infra"), "infra: node-role.kubernetes.io/infra"),
        ];
        for (asked, joined, expected) in rows {
            let present = BTreeMap::from([(label::NODE_POOL.to_owned(), asked.to_owned())]);
            let text = match labels("a", &present, joined, find) {
                Ok(None) => String::new(),
                Ok(Some(PoolLabels { pool, labels })) => {
                    format!("{pool}: {}", labels.into_keys().collect::<Vec<_>>().join(","))
                }
                Err(refusal) => refusal.to_string(),
            };
            assert_eq!(text.is_empty(), expected.is_empty(), "{asked} {joined:?}: {text}");
            assert!(text.contains(expected), "{asked} {joined:?}: {text}");
        }
        assert_eq!(labels("a", &BTreeMap::new(), None, find), Ok(None));
    }

    #[test]
    fn the_newest_join_of_a_name_counts() {
        let join = |number, pool: &str, created, approved: &str| {
            let mut token = stored(number, |token| {
                pool.clone_into(&mut token.pool);
                token.created.0 = at(created);
            });
            let machine = crate::join::fixture::machine(1);
            let text = crate::join::fixture::text(number);
            let admitted = crate::join::authorize(&text, Some(&token), pool, &machine, at(0));
            token.joins = admitted.unwrap().record.unwrap();
            approved.clone_into(&mut token.joins[0].approved);
            token
        };
        let tokens = [join(1, "worker", 5, "a"), join(2, "infra", 9, "a"), join(3, "x", 20, "")];
        assert_eq!(joined_pool("a", &tokens), Some("infra"));
        assert_eq!(joined_pool("b", &tokens), None);
    }
}
