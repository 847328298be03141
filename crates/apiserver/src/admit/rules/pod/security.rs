//! Validation of security contexts.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{items, volume};
use crate::{failure::Fault, object};

const ID: &str = "must be between 0 and 2147483647, inclusive";

/// Maximum length of the name of a sysctl.
const MAX_SYSCTL: usize = 253;

/// Validates the security context of a pod.
pub(super) fn of_pod(pod: &Value, place: &str) -> Vec<Fault> {
    let place = format!("{place}.securityContext");
    let none = json!({});
    let context = pod.get("securityContext").unwrap_or(&none);
    let mut faults = ids(context, &["fsGroup", "runAsUser", "runAsGroup"], &place);
    for (at, group) in items(context, "supplementalGroups") {
        faults.extend(id(group, format!("{place}.supplementalGroups[{at}]")));
    }
    let is_set = |field: &str| pod.get(field) == Some(&json!(true));
    if is_set("hostPID") && is_set("shareProcessNamespace") {
        let rule = "ShareProcessNamespace and HostPID cannot both be enabled";
        let place = format!("{place}.shareProcessNamespace");
        faults.push(Fault::invalid(place, &json!(true), rule));
    }
    faults.extend(sysctls(context, &format!("{place}.sysctls")));
    let known = ["Always", "OnRootMismatch"];
    let policy = context.get("fsGroupChangePolicy").and_then(Value::as_str);
    if let Some(policy) = policy.filter(|policy| !known.contains(policy)) {
        faults.push(Fault::not_supported(format!("{place}.fsGroupChangePolicy"), policy, &known));
    }
    faults.extend(seccomp(context, &place));
    faults
}

/// Validates the security context of a container.
pub(super) fn of_container(container: &Value, place: &str) -> Vec<Fault> {
    let Some(context) = container.get("securityContext") else { return Vec::new() };
    let place = format!("{place}.securityContext");
    let mut faults = ids(context, &["runAsUser", "runAsGroup"], &place);
    let mount = context.get("procMount").and_then(Value::as_str);
    let known = ["Default", "Unmasked"];
    if let Some(mount) = mount.filter(|mount| !known.contains(mount)) {
        faults.push(Fault::not_supported(format!("{place}.procMount"), mount, &known));
    }
    faults.extend(seccomp(context, &place));
    if context.get("allowPrivilegeEscalation") == Some(&json!(false)) {
        if context.get("privileged") == Some(&json!(true)) {
            let rule = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            faults.push(Fault::invalid(place.clone(), context, rule));
        }
        let added = object::at(context, &["capabilities", "add"]).and_then(Value::as_array);
        if added.is_some_and(|added| added.contains(&json!("CAP_SYS_ADMIN"))) {
            let rule = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` \
                CAP_SYS_ADMIN";
            faults.push(Fault::invalid(place, context, rule));
        }
    }
    faults
}

fn ids(context: &Value, fields: &[&str], place: &str) -> Vec<Fault> {
    let given = fields.iter().filter_map(|field| Some((field, context.get(*field)?)));
    given.filter_map(|(field, value)| id(value, format!("{place}.{field}"))).collect()
}

fn id(value: &Value, place: String) -> Option<Fault> {
    let is_id = value.as_i64().is_none_or(|id| (0..=i64::from(i32::MAX)).contains(&id));
    (!is_id).then(|| Fault::invalid(place, value, ID))
}

fn sysctls(context: &Value, place: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut names = BTreeSet::new();
    for (at, one) in items(context, "sysctls") {
        let place = format!("{place}[{at}].name");
        let name = object::text(one, &["name"]);
        if name.is_empty() {
            faults.push(Fault::required(place, ""));
        } else if !is_sysctl(name) {
            let part = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
            let rule = format!(
                "must have at most {MAX_SYSCTL} characters and match regex ^({part}[\\./])*{part}$"
            );
            faults.push(Fault::invalid(place, &json!(name), &rule));
        } else if !names.insert(name) {
            faults.push(Fault::duplicate(place, name));
        }
    }
    faults
}

fn is_sysctl(name: &str) -> bool {
    let ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_part = |part: &str| {
        part.starts_with(ends)
            && part.ends_with(ends)
            && part.chars().all(|c| ends(c) || matches!(c, '-' | '_'))
    };
    name.len() <= MAX_SYSCTL && name.split(['.', '/']).all(is_part)
}

fn seccomp(context: &Value, place: &str) -> Vec<Fault> {
    let Some(profile) = context.get("seccompProfile") else { return Vec::new() };
    let place = format!("{place}.seccompProfile");
    let mut faults = Vec::new();
    let known = ["Localhost", "RuntimeDefault", "Unconfined"];
    let kind = object::text(profile, &["type"]);
    if kind.is_empty() {
        let rule = "type is required when seccompProfile is set";
        faults.push(Fault::required(format!("{place}.type"), rule));
    } else if !known.contains(&kind) {
        faults.push(Fault::not_supported(format!("{place}.type"), kind, &known));
    }
    let local = format!("{place}.localhostProfile");
    match (kind, profile.get("localhostProfile")) {
        ("Localhost", None) => {
            faults.push(Fault::required(local, "must be set when seccomp type is Localhost"));
        }
        ("Localhost", Some(path)) => {
            faults.extend(volume::relative(path.as_str().unwrap_or(""), &local));
        }
        (_, Some(_)) => {
            let rule = "can only be set when seccomp type is Localhost";
            faults.push(Fault::invalid(local, profile, rule));
        }
        (_, None) => {}
    }
    faults
}
