//! Validation of the ways in which workloads replace their pods.

use serde_json::{Value, json};

use super::not_negative;
use crate::{failure::Fault, object};

/// Validates the strategy of a Deployment.
pub(super) fn deployment(new: &Value) -> Vec<Fault> {
    const PLACE: &str = "spec.strategy";
    let strategy = object::at(new, &["spec", "strategy"]).unwrap_or(&Value::Null);
    let rolling = strategy.get("rollingUpdate").filter(|it| it.is_object());
    match (object::text(strategy, &["type"]), rolling) {
        ("Recreate", Some(_)) => {
            let rule = "may not be specified when strategy `type` is 'Recreate'";
            vec![Fault::forbidden(format!("{PLACE}.rollingUpdate"), rule)]
        }
        ("Recreate", None) => Vec::new(),
        ("RollingUpdate", Some(rolling)) => rolling_deployment(rolling),
        ("RollingUpdate", None) => {
            let why = "this should be defaulted and never be nil";
            vec![Fault::required(format!("{PLACE}.rollingUpdate"), why)]
        }
        (other, rolling) => vec![unknown(PLACE, other, rolling, &["Recreate", "RollingUpdate"])],
    }
}

fn rolling_deployment(rolling: &Value) -> Vec<Fault> {
    let place = |field: &str| format!("spec.strategy.rollingUpdate.{field}");
    let mut faults = Vec::new();
    for field in ["maxUnavailable", "maxSurge"] {
        faults.extend(rolling.get(field).and_then(|value| amount(value, &place(field))));
    }
    let zero = json!(0);
    let unavailable = rolling.get("maxUnavailable").unwrap_or(&zero);
    if count(unavailable) == 0 && rolling.get("maxSurge").is_none_or(|it| count(it) == 0) {
        let rule = "may not be 0 when `maxSurge` is 0";
        faults.push(Fault::invalid(place("maxUnavailable"), unavailable, rule));
    }
    faults.extend(too_much(unavailable, &place("maxUnavailable")));
    faults
}

/// Validates the times of a Deployment.
pub(super) fn deadlines(new: &Value) -> Vec<Fault> {
    let mut faults = Vec::new();
    faults.extend(not_negative(new, &["spec", "minReadySeconds"]));
    faults.extend(not_negative(new, &["spec", "revisionHistoryLimit"]));
    let of = |field: &str| object::at(new, &["spec", field]).filter(|it| !it.is_null());
    let Some(deadline) = of("progressDeadlineSeconds") else { return faults };
    faults.extend(not_negative(new, &["spec", "progressDeadlineSeconds"]));
    let least = of("minReadySeconds").and_then(Value::as_i64).unwrap_or(0);
    if deadline.as_i64().is_some_and(|seconds| seconds <= least) {
        let rule = "must be greater than minReadySeconds";
        faults.push(Fault::invalid("spec.progressDeadlineSeconds", deadline, rule));
    }
    faults
}

/// Validates the strategy of a DaemonSet.
pub(super) fn daemon_set(new: &Value) -> Vec<Fault> {
    const PLACE: &str = "spec.updateStrategy";
    let strategy = object::at(new, &["spec", "updateStrategy"]).unwrap_or(&Value::Null);
    let rolling = strategy.get("rollingUpdate").filter(|it| it.is_object());
    match (object::text(strategy, &["type"]), rolling) {
        ("OnDelete", _) => Vec::new(),
        ("RollingUpdate", Some(rolling)) => rolling_daemon_set(rolling),
        ("RollingUpdate", None) => vec![Fault::required(format!("{PLACE}.rollingUpdate"), "")],
        (other, rolling) => vec![unknown(PLACE, other, rolling, &["RollingUpdate", "OnDelete"])],
    }
}

fn rolling_daemon_set(rolling: &Value) -> Vec<Fault> {
    const FIELDS: [&str; 2] = ["maxUnavailable", "maxSurge"];
    let place = |field: &str| format!("spec.updateStrategy.rollingUpdate.{field}");
    let mut faults = Vec::new();
    for check in [amount, too_much] {
        for field in FIELDS {
            faults.extend(rolling.get(field).and_then(|value| check(value, &place(field))));
        }
    }
    let [unavailable, surge] = FIELDS.map(|field| rolling.get(field).map_or(0, count) != 0);
    if unavailable && surge {
        let rule = "may not be set when maxUnavailable is non-zero";
        let given = rolling.get("maxSurge").unwrap_or(&Value::Null);
        faults.push(Fault::invalid(place("maxSurge"), given, rule));
    }
    if !unavailable && !surge {
        let why = "cannot be 0 when maxSurge is 0";
        faults.push(Fault::required(place("maxUnavailable"), why));
    }
    faults
}

/// Returns the error for an unknown strategy. Compat: the message shows the whole strategy.
fn unknown(place: &str, kind: &str, rolling: Option<&Value>, known: &[&str]) -> Fault {
    let rolling = rolling.map_or_else(
        || "null".to_owned(),
        |rolling| {
            let of = |field| rolling.get(field).cloned().unwrap_or_else(|| json!(0));
            let (unavailable, surge) = (of("maxUnavailable"), of("maxSurge"));
            format!("{{\"MaxUnavailable\":{unavailable},\"MaxSurge\":{surge}}}")
        },
    );
    let kind = json!(kind);
    let mut fault = Fault::not_supported(place, "", known);
    let shown = format!("{{\"Type\":{kind},\"RollingUpdate\":{rolling}}}");
    fault.message = fault.message.replacen("\"\"", &shown, 1);
    fault
}

/// Validates a number or a percentage.
pub(super) fn amount(value: &Value, place: &str) -> Option<Fault> {
    let rule = match value {
        Value::String(text) if percent(text).is_none() => {
            "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  \
             or '93%', regex used for validation is '[0-9]+%')"
        }
        Value::Number(number) if number.as_i64().is_some_and(|number| number < 0) => {
            "must be greater than or equal to 0"
        }
        Value::String(_)
        | Value::Number(_)
        | Value::Null
        | Value::Bool(_)
        | Value::Array(_)
        | Value::Object(_) => return None,
    };
    Some(Fault::invalid(place, value, rule))
}

/// Returns the error for more than all.
pub(super) fn too_much(value: &Value, place: &str) -> Option<Fault> {
    value.as_str().and_then(percent).filter(|percent| *percent > 100)?;
    Some(Fault::invalid(place, value, "must not be greater than 100%"))
}

/// Returns the number of a percentage.
fn percent(text: &str) -> Option<i64> {
    let digits = text.strip_suffix('%')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(i64::MAX))
}

/// Returns the number of an amount, or of its percentage.
fn count(value: &Value) -> i64 {
    match value.as_str() {
        Some(text) => percent(text).or_else(|| text.parse().ok()).unwrap_or(0),
        None => value.as_i64().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(faults: &[Fault]) -> Vec<String> {
        faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_rolling_update_moves_some_pods_but_not_more_than_all() {
        let of = |unavailable: Value, surge: Value| {
            let rolling = json!({"maxUnavailable": unavailable, "maxSurge": surge});
            json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling}}})
        };
        for (unavailable, surge, deployments, daemon_sets) in [
            (json!("25%"), json!("25%"), 0, 1),
            (json!(1), json!(0), 0, 0),
            (json!(0), json!("200%"), 0, 1),
            (json!("0%"), json!(0), 1, 1),
            (json!("101%"), json!(0), 1, 1),
            (json!(-1), json!(0), 1, 1),
            (json!("x"), json!(1), 1, 1),
        ] {
            let new = of(unavailable.clone(), surge.clone());
            let found = [deployment(&new).len(), daemon_set(&new).len()];
            assert_eq!(found, [deployments, daemon_sets], "{unavailable} {surge}");
        }
    }

    #[test]
    fn an_unknown_strategy_is_shown_as_a_whole() {
        let strategy = json!({"type": "X", "rollingUpdate": {"maxSurge": "1%"}});
        let new = json!({"spec": {"strategy": {"type": "X"}, "updateStrategy": strategy}});
        assert_eq!(
            texts(&deployment(&new)),
            [
                "spec.strategy: Unsupported value: {\"Type\":\"X\",\"RollingUpdate\":null}: supported \
              values: \"Recreate\", \"RollingUpdate\""
            ]
        );
        assert_eq!(
            texts(&daemon_set(&new)),
            ["spec.updateStrategy: Unsupported value: {\"Type\":\"X\",\"RollingUpdate\":{\
              \"MaxUnavailable\":0,\"MaxSurge\":\"1%\"}}: supported values: \"RollingUpdate\", \
              \"OnDelete\""]
        );
    }

    #[test]
    fn the_deadline_of_a_deployment_is_later_than_its_pods_are_ready() {
        let of = |deadline: i64| json!({"spec": {"minReadySeconds": 10, "progressDeadlineSeconds": deadline}});
        assert_eq!(texts(&deadlines(&of(11))), [""; 0]);
        let rule = "spec.progressDeadlineSeconds: Invalid value: 10: must be greater than \
                    minReadySeconds";
        assert_eq!(texts(&deadlines(&of(10))), [rule]);
    }
}
