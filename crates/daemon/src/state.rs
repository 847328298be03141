//! What the daemon is doing right now, for those who look at its admin address.
//!
//! Names, states and times only: nothing of what configs hold ever gets here.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;
use tokio::sync::watch;

/// What the daemon is doing.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// The node.
    pub node: String,
    /// The config that the machine has.
    pub current_config: Option<String>,
    /// The config that it is to have.
    pub desired_config: Option<String>,
    /// What the daemon says of its node.
    pub state: String,
    /// Why, where something is wrong.
    pub reason: String,
    /// What it waits for.
    pub waiting_for: Option<Waiting>,
    /// The step that was taken last.
    pub last_step: Option<String>,
    /// The first difference between disk and config.
    pub drift: Option<String>,
    /// The present boot.
    pub boot_id: String,
}

/// Something that the daemon waits for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Waiting {
    /// What.
    pub what: String,
    /// Since when.
    pub since: Time,
}

/// The state as the daemon keeps it; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Glass(Arc<watch::Sender<State>>);

impl Glass {
    /// What the daemon is doing.
    #[must_use]
    pub fn look(&self) -> State {
        self.0.borrow().clone()
    }

    /// The same as JSON.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(&self.look()).expect("plain values are JSON")
    }

    /// Waits until `holds` is content with what the daemon is doing.
    pub async fn wait_for(&self, holds: impl FnMut(&State) -> bool) -> State {
        let mut seen = self.0.subscribe();
        let found = seen.wait_for(holds).await;
        found.expect("the sender is part of `self`").clone()
    }

    /// Takes note of something.
    pub(crate) fn note(&self, change: impl FnOnce(&mut State)) {
        self.0.send_modify(change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_json_by_fixed_names() {
        let glass = Glass::default();
        let since = serde_json::from_str("\"2026-01-01T00:00:00Z\"").unwrap();
        glass.note(|state| {
            state.node = "worker-0".to_owned();
            state.waiting_for = Some(Waiting { what: "drain-x".to_owned(), since });
        });
        let json: serde_json::Value = serde_json::from_str(&glass.json()).unwrap();
        let want = serde_json::json!({
            "node": "worker-0", "currentConfig": null, "desiredConfig": null, "state": "",
            "reason": "", "lastStep": null, "drift": null, "bootId": "",
            "waitingFor": {"what": "drain-x", "since": "2026-01-01T00:00:00Z"},
        });
        assert_eq!(json, want);
    }
}
