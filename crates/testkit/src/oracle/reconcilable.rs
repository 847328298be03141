//! Suite: two configs, and the reference's decision to move a running node from one to the other.

use mco_api::{
    MachineConfig,
    machine_configuration::{IrreconcilableValidationOverrides, StorageOverride},
};
use mco_core::{diff, machine::Machine};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{difference, parsed, sections, text};

#[derive(Deserialize)]
struct Input {
    old: MachineConfig,
    new: MachineConfig,
    #[serde(default)]
    overrides: IrreconcilableValidationOverrides,
}

pub(super) fn check(input: &str, expect: &Value) -> Result<(), String> {
    let raw: Value = parsed(input)?;
    let Input { old, new, overrides } = parsed(input)?;
    let found = reconcile(&old, &new, &overrides.storage);
    match (found, text(expect, "controllerError")) {
        (Ok((old, new)), None) => {
            let diff = sections::flags(&diff::between(&old, &new));
            let seen =
                sections::accept_spelling(&raw, expect.get("diff").unwrap_or(&Value::Null), diff);
            let expected = expect.get("diff").unwrap_or(&Value::Null);
            difference(expected, &seen).map_or(Ok(()), Err)
        }
        (Ok(_), Some(refusal)) if sections::is_refused_for_empty_lists(&raw, refusal) => Ok(()),
        (Ok(_), Some(refusal)) => Err(format!("allowed, expected {refusal}")),
        (Err(error), None) => Err(format!("rejected: {error}")),
        (Err(error), Some(refusal)) => same(&error, refusal),
    }
}

fn reconcile(
    old: &MachineConfig,
    new: &MachineConfig,
    overrides: &[StorageOverride],
) -> Result<(Machine, Machine), String> {
    let (old, new) = diff::reconcile::read(old, new).map_err(|error| error.to_string())?;
    diff::reconcile::check(&old, &new, overrides, None).map_err(|error| error.to_string())?;
    Ok((old, new))
}

/// Compares the texts of two errors up to a validation report. The suite `parse` compares reports.
fn same(ours: &str, theirs: &str) -> Result<(), String> {
    let (line, report) = theirs.split_once("\nReport:").unwrap_or((theirs, ""));
    let found = ours.split_once("\nReport:").map_or(ours, |(line, _)| line);
    let seen = json!(found);
    match difference(&json!(line), &seen) {
        Some(line) if report.is_empty() => Err(line),
        Some(line) => Err(format!("{line} (before a report)")),
        None => Ok(()),
    }
}
