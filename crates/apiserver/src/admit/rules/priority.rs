//! Validation of `PriorityClass` objects.

use serde_json::{Value, json};

use super::unchanged;
use crate::{admit::SYSTEM_PRIORITIES, failure::Fault, object};

const POLICIES: [&str; 2] = ["PreemptLowerPriority", "Never"];

/// Highest priority that a user may define.
const MAX_PRIORITY: i64 = 1_000_000_000;

/// Validates a `PriorityClass`, and its change from `old`.
pub(super) fn check(new: &Value, old: Option<&Value>) -> Vec<Fault> {
    let mut faults = Vec::new();
    let name = object::name(new);
    let value = |class: &Value| class.get("value").and_then(Value::as_i64).unwrap_or(0);
    if let Some(old) = old {
        if value(old) != value(new) {
            faults.push(Fault::forbidden("value", "may not be changed in an update."));
        }
        faults.extend(unchanged(&["preemptionPolicy"], new, old));
        return faults;
    }
    if name.starts_with("system-") {
        if let Some(why) = foreign(new, value(new)) {
            let rule = format!(
                "priority class names with 'system-' prefix are reserved for system use only. \
                 error: {why}"
            );
            faults.push(Fault::forbidden("metadata.name", &rule));
        }
    } else if value(new) > MAX_PRIORITY {
        let rule = format!("maximum allowed value of a user defined priority is {MAX_PRIORITY}");
        faults.push(Fault::forbidden("value", &rule));
    }
    let policy = object::text(new, &["preemptionPolicy"]);
    if !POLICIES.contains(&policy) {
        faults.push(Fault::not_supported("preemptionPolicy", policy, &POLICIES));
    }
    faults
}

/// Returns why a class with a name of the system is none of the system's.
fn foreign(class: &Value, value: i64) -> Option<String> {
    let name = object::name(class);
    let Some((_, expected)) = SYSTEM_PRIORITIES.iter().find(|(known, _)| *known == name) else {
        return Some(format!("{name} is not a known system priority class"));
    };
    if *expected != value {
        return Some(format!("value of {name} PriorityClass must be {expected}"));
    }
    let is_default = class.get("globalDefault") == Some(&json!(true));
    is_default.then(|| format!("globalDefault of {name} PriorityClass must be false"))
}
