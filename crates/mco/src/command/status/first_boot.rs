//! The last failed first boots of each pool, from the events that the server writes.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::{Client, api::ListParams};
use mco_cluster::Api;

use crate::remote;

/// Number of failures that are shown for each pool.
const SHOWN: usize = 3;

/// Fetches the last failures, a line for each.
pub(super) async fn fetch(client: &Client) -> anyhow::Result<Vec<String>> {
    let api = Api::<Event>::own(client.clone());
    let failures = ListParams::default().fields("reason=FirstBootFailed");
    match api.list(&failures).await {
        Ok(events) => Ok(lines(&events.items)),
        // A user may not be allowed to read events; the rest of the status is worth showing.
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => Ok(Vec::new()),
        Err(error) => Err(remote::call_error(error)),
    }
}

fn lines(events: &[Event]) -> Vec<String> {
    let mut pools: BTreeMap<&str, Vec<(Timestamp, &str)>> = BTreeMap::new();
    for event in events {
        let regarding = event.regarding.as_ref();
        let pool = regarding.and_then(|object| object.name.as_deref()).unwrap_or_default();
        let last = event.series.as_ref().map(|series| series.last_observed_time.0);
        let time = last.or_else(|| event.event_time.as_ref().map(|time| time.0));
        let text = event.note.as_deref().unwrap_or_default();
        pools.entry(pool).or_default().push((time.unwrap_or(Timestamp::UNIX_EPOCH), text));
    }
    let mut lines = Vec::new();
    for (pool, mut failures) in pools {
        failures.sort_by(|left, right| right.cmp(left));
        let more = failures.len().saturating_sub(SHOWN);
        for (time, text) in failures.into_iter().take(SHOWN) {
            lines.push(format!("pool {pool}: first boot failed at {time:.0}: {text}"));
        }
        if more > 0 {
            lines.push(format!("pool {pool}: {more} more first boots failed before"));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_failures_of_each_pool_are_shown() {
        let event = |pool: &str, second: u32, note: &str| -> Event {
            let time = format!("2026-11-17T10:00:{second:02}.000000Z");
            serde_json::from_value(json!({"metadata": {"name": "e"}, "eventTime": time,
                "regarding": {"kind": "MachineConfigPool", "name": pool}, "note": note}))
            .unwrap()
        };
        let mut repeated = event("infra", 1, "again");
        repeated.series = serde_json::from_value(
            json!({"count": 2, "lastObservedTime": "2026-11-17T11:00:00.000000Z"}),
        )
        .unwrap();
        let mut events: Vec<Event> =
            (1..=5).map(|second| event("worker", second, &format!("failure {second}"))).collect();
        events.push(repeated);
        assert_eq!(
            lines(&events),
            [
                "pool infra: first boot failed at 2026-11-17T11:00:00Z: again",
                "pool worker: first boot failed at 2026-11-17T10:00:05Z: failure 5",
                "pool worker: first boot failed at 2026-11-17T10:00:04Z: failure 4",
                "pool worker: first boot failed at 2026-11-17T10:00:03Z: failure 3",
                "pool worker: 2 more first boots failed before",
            ]
        );
    }
}
