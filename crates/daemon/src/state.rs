//! The daemon's current activity, served at its admin address.
//!
//! Holds names, states and times only, never contents of configs.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;
use tokio::sync::watch;

/// The daemon's current activity.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// The node.
    pub node: String,
    /// Config of the machine.
    pub current_config: Option<String>,
    /// Desired config of the machine.
    pub desired_config: Option<String>,
    /// Value of the node's state annotation.
    pub state: String,
    /// Value of the node's reason annotation.
    pub reason: String,
    /// Phase of the node's life, as docs/architecture.md draws them.
    pub phase: String,
    /// The condition that the daemon waits for.
    pub waiting_for: Option<Waiting>,
    /// The last executed step.
    pub last_step: Option<String>,
    /// The first difference between disk and config.
    pub drift: Option<String>,
    /// Id of the current boot.
    pub boot_id: String,
}

/// A wait of the daemon.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Waiting {
    /// The request or service that the daemon waits for.
    pub what: String,
    /// Start of the wait.
    pub since: Time,
}

/// The daemon's activity, shared between the daemon and its observers; clones share it.
#[derive(Clone, Debug, Default)]
pub struct SharedState(Arc<watch::Sender<State>>);

impl SharedState {
    /// Returns the current activity.
    #[must_use]
    pub fn get(&self) -> State {
        self.0.borrow().clone()
    }

    /// Returns the current activity as JSON.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(&self.get()).expect("plain values are JSON")
    }

    /// Waits until `holds` returns true for the current activity.
    pub async fn wait_for(&self, holds: impl FnMut(&State) -> bool) -> State {
        let mut seen = self.0.subscribe();
        let found = seen.wait_for(holds).await;
        found.expect("the sender is part of `self`").clone()
    }

    /// Changes the activity and wakes the waiters.
    pub(crate) fn update(&self, change: impl FnOnce(&mut State)) {
        self.0.send_modify(change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_json_with_fixed_names() {
        let glass = SharedState::default();
        let since = serde_json::from_str("\"2026-01-01T00:00:00Z\"").unwrap();
        glass.update(|state| {
            state.node = "worker-0".to_owned();
            state.waiting_for = Some(Waiting { what: "drain-x".to_owned(), since });
        });
        let json: serde_json::Value = serde_json::from_str(&glass.json()).unwrap();
        let want = serde_json::json!({
            "node": "worker-0", "currentConfig": null, "desiredConfig": null, "state": "", "phase": "",
            "reason": "", "lastStep": null, "drift": null, "bootId": "",
            "waitingFor": {"what": "drain-x", "since": "2026-01-01T00:00:00Z"},
        });
        assert_eq!(json, want);
    }
}
