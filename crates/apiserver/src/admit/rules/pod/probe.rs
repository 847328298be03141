//! Validation of probes, of the hooks of a container, and of its restart policy.

use serde_json::{Value, json};

use super::{container::port_name_faults, items};
use crate::{failure::Fault, object};

const POLICIES: [&str; 3] = ["Always", "Never", "OnFailure"];

/// Validates the hooks, the probes and the restart policy of a container.
pub(super) fn all(container: &Value, place: &str, grace: Option<i64>) -> Vec<Fault> {
    let mut faults = lifecycle(container, place, grace);
    faults.extend(probes(container, place, grace));
    faults.extend(restart_policy(container, place));
    faults
}

/// Validates the same fields of an init container, most of which only one that runs beside the
/// containers may have.
pub(super) fn of_init(container: &Value, place: &str, grace: Option<i64>) -> Vec<Fault> {
    if object::text(container, &["restartPolicy"]) == "Always" {
        let mut faults = lifecycle(container, place, grace);
        faults.extend(probes(container, place, grace));
        return faults;
    }
    let fields = ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"];
    let given = fields.into_iter().filter(|field| container.get(*field).is_some());
    let rule = "may not be set for init containers without restartPolicy=Always";
    given.map(|field| Fault::forbidden(format!("{place}.{field}"), rule)).collect()
}

/// Validates the restart policy of a container.
pub(super) fn restart_policy(container: &Value, place: &str) -> Option<Fault> {
    let policy = container.get("restartPolicy")?.as_str()?;
    let place = format!("{place}.restartPolicy");
    (!POLICIES.contains(&policy)).then(|| Fault::not_supported(place, policy, &POLICIES))
}

fn lifecycle(container: &Value, place: &str, grace: Option<i64>) -> Vec<Fault> {
    let hooks = ["postStart", "preStop"].into_iter();
    let hooks = hooks.filter_map(|hook| Some((hook, object::at(container, &["lifecycle", hook])?)));
    hooks
        .flat_map(|(hook, value)| {
            let kinds = ["exec", "httpGet", "tcpSocket", "sleep"];
            handler(value, &kinds, &format!("{place}.lifecycle.{hook}"), grace)
        })
        .collect()
}

fn probes(container: &Value, place: &str, grace: Option<i64>) -> Vec<Fault> {
    let mut faults = Vec::new();
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.get(field) else { continue };
        let place = format!("{place}.{field}");
        faults.extend(handler(probe, &["exec", "httpGet", "tcpSocket", "grpc"], &place, grace));
        for field in [
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ] {
            let rule = "must be greater than or equal to 0";
            faults.extend(least(probe, field, 0, rule, &place));
        }
        let own = "terminationGracePeriodSeconds";
        faults.extend(least(probe, own, 1, "must be greater than 0", &place));
        if field == "readinessProbe" {
            if let Some(value) = probe.get(own) {
                let rule = "must not be set for readinessProbes";
                faults.push(Fault::invalid(format!("{place}.{own}"), value, rule));
            }
        } else if let Some(value) = probe.get("successThreshold").filter(|it| **it != json!(1)) {
            faults.push(Fault::invalid(format!("{place}.successThreshold"), value, "must be 1"));
        }
    }
    faults
}

fn least(probe: &Value, field: &str, least: i64, rule: &str, place: &str) -> Option<Fault> {
    let value = probe.get(field)?;
    let is_less = value.as_i64().is_some_and(|number| number < least);
    is_less.then(|| Fault::invalid(format!("{place}.{field}"), value, rule))
}

/// Validates the action of a probe or a hook.
fn handler(value: &Value, kinds: &[&str], place: &str, grace: Option<i64>) -> Vec<Fault> {
    let mut given = kinds.iter().filter_map(|kind| Some((*kind, value.get(*kind)?)));
    let Some((first, action)) = given.next() else {
        return vec![Fault::required(place, "must specify a handler type")];
    };
    let mut faults = action_faults(first, action, &format!("{place}.{first}"), grace);
    let rule = "may not specify more than 1 handler type";
    faults.extend(given.map(|(kind, _)| Fault::forbidden(format!("{place}.{kind}"), rule)));
    faults
}

fn action_faults(kind: &str, action: &Value, place: &str, grace: Option<i64>) -> Vec<Fault> {
    match kind {
        "exec" if items(action, "command").next().is_none() => {
            vec![Fault::required(format!("{place}.command"), "")]
        }
        "httpGet" => http(action, place),
        "tcpSocket" | "grpc" => port(action, place),
        "sleep" => {
            let seconds = action.get("seconds").and_then(Value::as_i64).unwrap_or(0);
            let Some(grace) = grace.filter(|grace| !(0..=*grace).contains(&seconds)) else {
                return Vec::new();
            };
            let rule = format!(
                "must be non-negative and less than terminationGracePeriodSeconds ({grace})"
            );
            vec![Fault::invalid(place, &json!(seconds), &rule)]
        }
        _ => Vec::new(),
    }
}

fn http(action: &Value, place: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    if object::text(action, &["path"]).is_empty() {
        faults.push(Fault::required(format!("{place}.path"), ""));
    }
    faults.extend(port(action, place));
    let (scheme, known) = (object::text(action, &["scheme"]), ["HTTP", "HTTPS"]);
    if !known.contains(&scheme) {
        faults.push(Fault::not_supported(format!("{place}.scheme"), scheme, &known));
    }
    for (_, header) in items(action, "httpHeaders") {
        let name = object::text(header, &["name"]);
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            let rule = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. \
                'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";
            faults.push(Fault::invalid(format!("{place}.httpHeaders"), &json!(name), rule));
        }
    }
    faults
}

/// Validates a port: a number, or the name of a port of the container.
fn port(action: &Value, place: &str) -> Vec<Fault> {
    let place = format!("{place}.port");
    let zero = json!(0);
    let port = action.get("port").unwrap_or(&zero);
    if let Some(name) = port.as_str() {
        let rules = port_name_faults(name).into_iter();
        return rules.map(|rule| Fault::invalid(place.clone(), port, rule)).collect();
    }
    if port.as_i64().is_some_and(|number| (1..=65535).contains(&number)) {
        return Vec::new();
    }
    vec![Fault::invalid(place, port, "must be between 1 and 65535, inclusive")]
}
