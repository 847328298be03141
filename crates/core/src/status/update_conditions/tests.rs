//! Tests of the conditions during and after an update.

use super::*;

fn at(second: u32) -> Time {
    serde_json::from_str(&format!("\"2026-01-01T00:00:{second:02}Z\"")).unwrap()
}

fn texts() -> DrainAnnotations {
    DrainAnnotations { desired: "drain-new".to_owned(), last: "uncordon-old".to_owned() }
}

/// Returns `Type=Status` of the changed conditions after each event.
fn apply(events: &[UpdateEvent]) -> (Vec<String>, Vec<Condition>) {
    let mut conditions = complete(&[], &at(0));
    let mut lines = Vec::new();
    for (number, event) in events.iter().enumerate() {
        let now = at(u32::try_from(number).unwrap() + 1);
        let after =
            apply_event(&conditions, "n", "new", event, &now).unwrap_or_else(|| conditions.clone());
        for (old, new) in conditions.iter().zip(&after) {
            if old.status != new.status && new.status != "False" {
                lines.push(format!("{}={}", new.type_, new.status));
            }
        }
        conditions = after;
    }
    (lines, conditions)
}

// covers: C109, C110
#[test]
fn an_update_with_a_reboot_sets_its_conditions_in_order_and_ends_with_updated_alone() {
    let parts = ChangedParts { system: true, keys: false };
    let events = [
        UpdateEvent::NeedsUpdate,
        UpdateEvent::Prepared(DrainRequired::Yes),
        UpdateEvent::Drain(DrainEvent::Cordoned),
        UpdateEvent::Drain(DrainEvent::Draining(texts())),
        UpdateEvent::Drain(DrainEvent::Drained(texts())),
        UpdateEvent::Applying(parts),
        UpdateEvent::Applied(parts),
        UpdateEvent::Rebooting,
        UpdateEvent::Rebooted,
        UpdateEvent::Resumed("new".to_owned()),
        UpdateEvent::Drain(DrainEvent::Uncordoned),
        UpdateEvent::UpToDate,
    ];
    let (lines, conditions) = apply(&events);
    assert_eq!(
        lines,
        [
            "UpdatePrepared=True",
            "UpdateExecuted=Unknown",
            "Cordoned=True",
            "Drained=Unknown",
            "Drained=True",
            "AppliedFilesAndOS=Unknown",
            "UpdateExecuted=True",
            "AppliedFilesAndOS=True",
            "RebootedNode=Unknown",
            "RebootedNode=True",
            "Resumed=True",
            "UpdateComplete=True",
            "Uncordoned=True",
            "Updated=True",
        ]
    );
    for condition in conditions {
        let expected = if condition.type_ == "Updated" { "True" } else { "False" };
        assert_eq!(condition.status, expected, "{}", condition.type_);
        if condition.type_ == "Drained" {
            assert_eq!(
                condition.message,
                "Action during update to new: Drained node. The drain is complete as the desired \
                 drainer matches current drainer: drain-new"
            );
        }
    }
}

#[test]
fn a_failure_names_node_and_cause_and_keeps_the_step_conditions() {
    let parts = ChangedParts { system: false, keys: true };
    let events = [
        UpdateEvent::NeedsUpdate,
        UpdateEvent::Applying(parts),
        UpdateEvent::Degraded("disk full".to_owned()),
    ];
    let (lines, conditions) = apply(&events);
    let kinds = ["UpdateExecuted=Unknown", "AppliedFilesAndOS=Unknown", "NodeDegraded=True"];
    assert_eq!(lines, kinds);
    let message =
        |kind: &str| conditions.iter().find(|found| found.type_ == kind).unwrap().message.clone();
    assert_eq!(message("NodeDegraded"), "Node n upgrade failure. disk full");
    assert_eq!(
        message("AppliedFilesAndOS"),
        "Applying files and new OS config to node. OS will not need an update. SSH Keys will need \
         an update"
    );
}

#[test]
fn an_unchanged_event_writes_nothing_and_time_changes_with_the_status() {
    let first = apply_event(&[], "n", "new", &UpdateEvent::UpToDate, &at(1)).unwrap();
    assert_eq!(first.len(), ALL.len());
    assert_eq!(apply_event(&first, "n", "new", &UpdateEvent::UpToDate, &at(2)), None);
    let drains =
        apply_event(&first, "n", "new", &UpdateEvent::Prepared(DrainRequired::Yes), &at(2))
            .unwrap();
    let again = apply_event(&drains, "n", "new", &UpdateEvent::Prepared(DrainRequired::No), &at(3))
        .unwrap();
    let prepared = again.iter().find(|found| found.type_ == "UpdatePrepared").unwrap();
    assert_eq!(prepared.last_transition_time, at(2));
    assert_eq!(prepared.message, "Update Compatible. Post Cfg Actions: [] Drain Required: false");
}

#[test]
fn missing_drain_events_are_recorded_in_order_after_the_drain() {
    let (mut conditions, mut recorded) = (complete(&[], &at(0)), 0);
    for event in missing_drain_events(&conditions, &texts()) {
        record_event(&mut conditions, "n", &UpdateEvent::Drain(event), &at(1));
        recorded += 1;
    }
    assert_eq!(recorded, 3, "cordoned, draining, drained");
    assert_eq!(status(&conditions, &NodeCondition::Drained), TRUE);
    assert_eq!(missing_drain_events(&conditions, &texts()), []);
}

#[test]
fn a_late_drain_event_does_not_reset_update_executed() {
    let parts = ChangedParts { system: false, keys: false };
    let mut conditions = complete(&[], &at(0));
    record_event(&mut conditions, "n", &UpdateEvent::Applied(parts), &at(1));
    record_event(&mut conditions, "n", &UpdateEvent::Drain(DrainEvent::Drained(texts())), &at(2));
    assert_eq!(status(&conditions, &NodeCondition::UpdateExecuted), TRUE);
    assert_eq!(status(&conditions, &NodeCondition::Drained), TRUE);
}

#[test]
fn pinned_image_conditions_survive_an_update() {
    let mut conditions = complete(&[], &at(0));
    record_event(&mut conditions, "n", &UpdateEvent::Pins(PinnedImagesEvent::Pulling), &at(1));
    record_event(&mut conditions, "n", &UpdateEvent::Pins(PinnedImagesEvent::Failed), &at(1));
    let after = apply_event(&conditions, "n", "new", &UpdateEvent::UpToDate, &at(2)).unwrap();
    assert_eq!(status(&after, &NodeCondition::PinnedImageSetsDegraded), TRUE);
    conditions = after;
    record_event(&mut conditions, "n", &UpdateEvent::Pins(PinnedImagesEvent::Complete), &at(3));
    assert_eq!(status(&conditions, &NodeCondition::PinnedImageSetsDegraded), FALSE);
    assert_eq!(status(&conditions, &NodeCondition::PinnedImageSetsProgressing), FALSE);
}
