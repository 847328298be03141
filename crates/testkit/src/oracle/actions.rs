//! Suite: two configs and a policy, and the actions the reference takes on a node that moves from
//! one to the other.

use std::collections::BTreeSet;

use mco_api::{
    MachineConfig,
    machine_configuration::disruption::{ClusterPolicies, NodeDisruptionPolicyConfig},
};
use mco_core::{
    diff::{self, BuiltImages, Change, ConfigDiff, reconcile},
    machine::Machine,
    plan::{self, Action, Drain, Force, Rule, first_boot},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{difference, parsed, put, sections, text};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    old: MachineConfig,
    new: MachineConfig,
    #[serde(default)]
    policy_spec: NodeDisruptionPolicyConfig,
    cluster_policies: Option<ClusterPolicies>,
}

pub(super) fn check(input: &str, expect: &Value) -> Result<(), String> {
    let raw: Value = parsed(input)?;
    let given: Input = parsed(input)?;
    let (old, new) = match reconcile::read(&given.old, &given.new) {
        Ok(both) => both,
        Err(_) if text(expect, "error").is_some() => return Ok(()),
        Err(error) => return Err(format!("rejected: {error}")),
    };
    let policies = match &given.cluster_policies {
        Some(policies) => policies.clone(),
        None => plan::merge_policies(&given.policy_spec),
    };
    let images = BuiltImages { from: built(&given.old), to: built(&given.new) };
    let mut diff = diff::between_images(&old, &new, &images);
    for file in diff.files.iter_mut().filter(|file| file.change == Change::Respelled) {
        // The reference counts the same bytes in another encoding as a change; `mco` does not,
        // which tests of the plan assert. The resulting actions are compared all the same.
        file.change = Change::Changed;
    }
    let mut seen = differences(&diff);
    let flags = expect.get("diff").unwrap_or(&Value::Null);
    put(&mut seen, "diff", sections::accept_spelling(&raw, flags, sections::flags(&diff)));
    if given.cluster_policies.is_none() {
        put(&mut seen, "clusterPolicies", serde_json::to_value(&policies).unwrap_or_default());
    }
    disruption(&mut seen, &diff, (&old, &new), &policies);
    first_boot(&mut seen, &raw, &diff, (&old, &new));
    difference(&comparable(expect), &seen).map_or(Ok(()), Err)
}

/// Returns the image that the cluster built for a config, which the reference records as an
/// annotation.
fn built(config: &MachineConfig) -> Option<String> {
    let annotations = config.metadata.annotations.as_ref()?;
    annotations.get("machineconfiguration.openshift.io/ocl-osimageurl").cloned()
}

fn differences(diff: &ConfigDiff) -> Value {
    let units = |change: Change| -> Vec<&str> {
        let units = diff.units.iter().filter(|unit| unit.change == change);
        units.map(|unit| unit.name.as_str()).collect()
    };
    let changes = [
        ("Upgrading OS", diff.os_image.is_some()),
        ("Installing extensions", diff.extensions.is_some()),
        ("Changing kernel type", diff.kernel_type.is_some()),
        ("Changing kernel arguments", diff.kernel_arguments.is_some()),
    ];
    let changes: Vec<&str> =
        changes.into_iter().filter_map(|(text, differs)| differs.then_some(text)).collect();
    json!({
        "osChanges": changes.join("; "),
        "changedFiles": diff.files.iter().map(|file| &file.name).collect::<Vec<_>>(),
        "unitsAdded": units(Change::Added),
        "unitsUpdated": units(Change::Changed),
        "unitsRemoved": units(Change::Removed),
    })
}

fn disruption(
    seen: &mut Value,
    diff: &ConfigDiff,
    (old, new): (&Machine, &Machine),
    policies: &ClusterPolicies,
) {
    let mut verdicts = plan::policy_decisions(diff, policies, Force::No);
    let actions = plan::combine_actions(&verdicts);
    match plan::drain(old, new, &actions) {
        Ok(drain) => put(seen, "drain", json!(matches!(drain, Drain::Needed(_)))),
        Err(_) => put(seen, "drainError", json!(true)),
    }
    put(seen, "actions", named(&actions));
    verdicts.retain(|verdict| verdict.rule != Rule::System);
    put(seen, "actionsFromDiffs", named(&plan::combine_actions(&verdicts)));
}

/// Returns the names of the actions, each once: the reference repeats them, `mco` does not.
fn named(actions: &[Action]) -> Value {
    let name = |action: &Action| match action {
        Action::None => "None".to_owned(),
        Action::Drain => "Drain".to_owned(),
        Action::DaemonReload => "DaemonReload".to_owned(),
        Action::Reload(service) => format!("Reload {service}"),
        Action::Restart(service) => format!("Restart {service}"),
        Action::Special => "Special".to_owned(),
        Action::Reboot => "Reboot".to_owned(),
    };
    json!(actions.iter().map(name).collect::<BTreeSet<String>>())
}

/// Returns the reference's expectation in comparable form: actions by name, and decoding errors
/// without their text, which depends on the decoder.
fn comparable(expect: &Value) -> Value {
    let mut expected = expect.clone();
    for list in ["actions", "actionsFromDiffs"] {
        let Some(actions) = expect.get(list).and_then(Value::as_array) else { continue };
        let name = |action: &Value| {
            let service = ["reload", "restart"].iter().find_map(|verb| {
                action.pointer(&format!("/{verb}/serviceName")).and_then(Value::as_str)
            });
            let kind = text(action, "type").unwrap_or_default();
            service.map_or(kind.to_owned(), |service| format!("{kind} {service}"))
        };
        let mut names: BTreeSet<String> = actions.iter().map(name).collect();
        if names.is_empty() {
            // A section differs but none of its entries does: the reference then has no action at
            // all.
            names.insert("None".to_owned());
        }
        put(&mut expected, list, json!(names));
    }
    for error in ["drainError", "firstbootDrainError"] {
        if expect.get(error).is_some() {
            put(&mut expected, error, json!(true));
        }
    }
    expected
}

fn first_boot(seen: &mut Value, raw: &Value, diff: &ConfigDiff, (old, new): (&Machine, &Machine)) {
    let mut action = first_boot::action(diff, Force::No);
    if diff.units.is_empty() && sections::is_only_spelling(raw, "/systemd/units", "name") {
        // The reference counts another order of units as a change of units, and reboots the
        // machine.
        action = first_boot::SetupAction::Reboot;
    }
    put(seen, "firstbootActions", json!([action.to_string()]));
    match first_boot::drain(diff, action, old, new) {
        Ok(danger) => put(seen, "firstbootDrain", json!(danger.is_some())),
        Err(_) => put(seen, "firstbootDrainError", json!(true)),
    }
}
