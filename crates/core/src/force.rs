//! Forcing a node to a config: the config is applied in full, whatever the files of the node are.

use std::fmt;

use mco_api::{MachineConfigPool, annotation};

use crate::{diff::reconcile::FORCE_FILE, rollout::NodeView};

/// The steps that force a node to a config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForcePlan {
    /// Name of the node.
    pub node: String,
    /// Config that the node gets.
    pub to: String,
    /// True if the desired config of the node changes.
    pub retargets: bool,
}

/// The reason why a node is not forced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForceError {
    /// The daemon of the node has not reported.
    #[error("the daemon of node {0} has not reported a config")]
    NotReported(String),
    /// The node is Done with the config.
    #[error("node {node} is Done with {config}: nothing is to be forced")]
    Done {
        /// Name of the node.
        node: String,
        /// Config of the node.
        config: String,
    },
    /// The controller would set another config at once.
    #[error("pool {pool} is not paused: the controller would return node {node} to {target}")]
    NotPaused {
        /// Name of the node.
        node: String,
        /// Pool of the node.
        pool: String,
        /// Config of the pool.
        target: String,
    },
}

/// Decides how to force a node to a config.
///
/// Without a named config, a degraded node gets that of its pool, which it would not get otherwise: the
/// node occupies a slot of maxUnavailable itself. Any other node, and one of a paused pool, gets its
/// desired config.
pub fn plan(
    node: &NodeView,
    pool: Option<&MachineConfigPool>,
    to: Option<&str>,
) -> Result<ForcePlan, ForceError> {
    if node.current.is_empty() || node.desired.is_empty() {
        return Err(ForceError::NotReported(node.name.clone()));
    }
    let target = pool.filter(|pool| node.is_degraded() && !pool.spec.paused);
    let target = target.map(|pool| pool.spec.configuration.rendered.name.as_str());
    let target = target.filter(|target| !target.is_empty());
    let to = to.or(target).unwrap_or(&node.desired);
    let retargets = to != node.desired;
    if !retargets && node.is_updated(to) {
        return Err(ForceError::Done { node: node.name.clone(), config: to.to_owned() });
    }
    if let Some(pool) = pool.filter(|pool| retargets && !pool.spec.paused) {
        let target = &pool.spec.configuration.rendered.name;
        if target != to {
            return Err(ForceError::NotPaused {
                node: node.name.clone(),
                pool: pool.metadata.name.clone().unwrap_or_default(),
                target: target.clone(),
            });
        }
    }
    Ok(ForcePlan { node: node.name.clone(), to: to.to_owned(), retargets })
}

impl fmt::Display for ForcePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, to, retargets } = self;
        writeln!(f, "node {node} is forced to {to}:")?;
        if *retargets {
            writeln!(f, "  - annotation {} is set to {to}", annotation::DESIRED_CONFIG)?;
        }
        writeln!(f, "  - annotation {} is set to force", annotation::RECOVER)?;
        writeln!(f, "  - the daemon creates {FORCE_FILE} and does not check the present files")?;
        writeln!(
            f,
            "  - the node is drained, every file and unit is written, the machine reboots"
        )?;
        writeln!(f, "  - the daemon removes the file, and the node is Done")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{self, nodes};

    #[test]
    fn a_node_is_forced_unless_it_is_done_or_the_controller_would_object() {
        let pool = |paused: bool| {
            let mut pool = fixture::pool("worker", "{}");
            pool.spec.paused = paused;
            pool.spec.configuration.rendered.name = "new".to_owned();
            pool
        };
        let cases = [
            (
                "a=failed",
                false,
                None,
                "forced to new:\n  - annotation machineconfiguration.openshift.io/recover",
            ),
            (
                "a=drifted",
                false,
                None,
                "forced to new:\n  - annotation machineconfiguration.openshift.io/desired",
            ),
            ("a=drifted", true, None, "forced to old"),
            ("a=old", false, None, "nothing is to be forced"),
            ("a=done", false, None, "nothing is to be forced"),
            ("a=done", false, Some("rendered-other"), "is not paused"),
            ("a=done", true, Some("rendered-other"), "forced"),
            ("a=old", false, Some("new"), "forced"),
        ];
        for (node, is_paused, to, want) in cases {
            let node = &nodes(node)[0];
            let found = match plan(node, Some(&pool(is_paused)), to) {
                Ok(plan) => plan.to_string(),
                Err(error) => error.to_string(),
            };
            assert!(found.contains(want), "{node:?} {to:?}: {found}");
        }
        let unknown = NodeView { current: String::new(), ..nodes("a=old")[0].clone() };
        assert_eq!(plan(&unknown, None, None), Err(ForceError::NotReported("a".to_owned())));
    }
}
