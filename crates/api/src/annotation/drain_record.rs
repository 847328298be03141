//! What is known of a drain that is going on, kept on its node.

use std::{fmt, str::FromStr};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

/// A drain that is going on. Whoever takes the controller over goes on from here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainRecord {
    /// The request it answers, as the daemon wrote it.
    pub request: String,
    /// Since when it goes on.
    pub since: Time,
    /// How many attempts have failed.
    #[serde(default)]
    pub attempts: u32,
    /// The pods that hold it up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blockers: Vec<DrainBlocker>,
    /// How many more there are.
    #[serde(default)]
    pub more: usize,
}

/// A pod that holds a drain up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainBlocker {
    /// The pod, with its namespace.
    pub pod: String,
    /// Kind and name of what made the pod; empty if nothing did.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// Why it does not go; names the budget, if one is to blame.
    pub why: String,
    /// Since when it has not gone.
    pub since: Time,
}

impl fmt::Display for DrainRecord {
    /// As the annotation has it.
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
    /// As people read it.
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
    fn a_record_comes_back_as_it_was_written() {
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
        assert_eq!(record.to_string().parse::<DrainRecord>().expect("its own text"), record);
        let least = r#"{"request":"drain-x","since":"2026-01-02T03:04:05Z"}"#;
        assert_eq!(least.parse::<DrainRecord>().expect("what is needed").attempts, 0);
        assert!("drain-x".parse::<DrainRecord>().is_err());
    }
}
