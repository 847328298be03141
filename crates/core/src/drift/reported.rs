//! Drift as the daemon of a node reports it, in the reason of its state.

use crate::{lifecycle::DRIFT_REASON, rollout::NodeView};

/// The first difference between a node's disk and its config, in the words of its daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedDrift {
    /// Name of the config.
    pub config: String,
    /// The difference.
    pub difference: String,
}

impl ReportedDrift {
    /// Reads the report of a node; `None` if its daemon reports no drift.
    #[must_use]
    pub fn of(node: &NodeView) -> Option<Self> {
        let reason = node.reason.strip_prefix(DRIFT_REASON).filter(|_| node.is_degraded())?;
        let (config, difference) = reason.trim_start().split_once(": ")?;
        Some(Self { config: config.to_owned(), difference: difference.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::nodes;

    #[test]
    fn only_a_degraded_node_reports_drift() {
        let mut fleet = nodes("a=failed b=done");
        let reason = "unexpected on-disk state validating against rendered-worker-1: content \
                      mismatch for file \"/etc/a: b\"";
        let found = |node: &NodeView| {
            ReportedDrift::of(node).map(|it| format!("{} {}", it.config, it.difference))
        };
        assert_eq!(found(&fleet[0]), None, "another failure");
        for node in &mut fleet {
            reason.clone_into(&mut node.reason);
        }
        let want = "rendered-worker-1 content mismatch for file \"/etc/a: b\"";
        assert_eq!(found(&fleet[0]).as_deref(), Some(want));
        assert_eq!(found(&fleet[1]), None, "the reason of an earlier state");
    }
}
