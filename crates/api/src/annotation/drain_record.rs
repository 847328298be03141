//! State of a drain in progress, stored as an annotation of the node.

use std::{fmt, str::FromStr};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

/// State of a drain in progress. A controller that becomes the leader continues the drain from this
/// record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainRecord {
    /// The drain request of the daemon that this drain carries out.
    pub request: String,
    /// Time at which the drain started.
    pub since: Time,
    /// Number of failed attempts.
    #[serde(default)]
    pub attempts: u32,
    /// Pods that block the drain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blockers: Vec<DrainBlocker>,
    /// Number of further blocking pods that are not listed.
    #[serde(default)]
    pub more: usize,
}

/// A pod that blocks a drain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainBlocker {
    /// Namespace and name of the pod.
    pub pod: String,
    /// Kind and name of the pod's owner; empty if the pod has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// Reason why the pod is not gone; names the PodDisruptionBudget if one blocks the eviction.
    pub why: String,
    /// Time since which the pod has blocked the drain.
    pub since: Time,
}

impl fmt::Display for DrainRecord {
    /// Writes the JSON text of the annotation.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for DrainRecord {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        serde_json::from_str(text)
    }
}

impl fmt::Display for DrainBlocker {
    /// Writes one line for administrators.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pod {}", self.pod)?;
        if !self.owner.is_empty() {
            write!(f, " of {}", self.owner)?;
        }
        let Time(since) = &self.since;
        write!(f, ": {} (since {since:.0})", self.why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_record_parses_to_itself() {
        let since: Time = serde_json::from_str("\"2026-01-02T03:04:05Z\"").expect("a time");
        let blocker = DrainBlocker {
            pod: "shop/web-1".to_owned(),
            owner: "ReplicaSet web".to_owned(),
            why: "PodDisruptionBudget shop/web wants 1 of 1 pods".to_owned(),
            since: since.clone(),
        };
        let text = "pod shop/web-1 of ReplicaSet web: PodDisruptionBudget shop/web wants 1 of 1 \
                    pods (since 2026-01-02T03:04:05Z)";
        assert_eq!(blocker.to_string(), text);
        let record = DrainRecord {
            request: "drain-rendered-worker-1".to_owned(),
            since,
            attempts: 2,
            blockers: vec![blocker],
            more: 0,
        };
        assert_eq!(
            record.to_string().parse::<DrainRecord>().expect("the written text parses"),
            record
        );
        let least = r#"{"request":"drain-x","since":"2026-01-02T03:04:05Z"}"#;
        assert_eq!(
            least.parse::<DrainRecord>().expect("the other members are optional").attempts,
            0
        );
        assert!("drain-x".parse::<DrainRecord>().is_err());
    }
}
