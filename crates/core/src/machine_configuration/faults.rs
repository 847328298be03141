//! Invalid entries of a node disruption policy.
//!
//! The schema refuses most of them. It does not check paths, and an object may be older than the schema,
//! or the definition may be that of another owner.

use std::collections::BTreeSet;

use mco_api::machine_configuration::disruption::{
    ActionType, NodeDisruptionPolicyConfig, PolicyAction, ServiceReference,
};

/// Returns the invalid entries, each with its field and the reason.
pub(super) fn find(policy: &NodeDisruptionPolicyConfig) -> Vec<String> {
    let mut faults = Vec::new();
    let mut seen = BTreeSet::new();
    for (index, file) in policy.files.iter().enumerate() {
        let found = path_fault(&file.path).or_else(|| actions_fault(&file.actions));
        let found = found.or_else(|| twice(&mut seen, &file.path));
        let named = format!("files[{index}] (path {:?})", file.path);
        faults.extend(found.map(|reason| format!("{named}: {reason}")));
    }
    seen.clear();
    for (index, unit) in policy.units.iter().enumerate() {
        let found = name_fault(&unit.name).or_else(|| actions_fault(&unit.actions));
        let found = found.or_else(|| twice(&mut seen, &unit.name));
        let named = format!("units[{index}] (name {:?})", unit.name);
        faults.extend(found.map(|reason| format!("{named}: {reason}")));
    }
    let keys = policy.sshkey.iter().filter_map(|it| actions_fault(&it.actions));
    faults.extend(keys.map(|reason| format!("sshkey: {reason}")));
    faults
}

/// Removes the invalid entries. Of two entries for the same path or unit, the first stays.
pub(super) fn remove_invalid(policy: &mut NodeDisruptionPolicyConfig) {
    let mut seen = BTreeSet::new();
    policy.files.retain(|file| {
        path_fault(&file.path).is_none()
            && actions_fault(&file.actions).is_none()
            && twice(&mut seen, &file.path).is_none()
    });
    seen.clear();
    policy.units.retain(|unit| {
        name_fault(&unit.name).is_none()
            && actions_fault(&unit.actions).is_none()
            && twice(&mut seen, &unit.name).is_none()
    });
    if policy.sshkey.as_ref().is_some_and(|it| actions_fault(&it.actions).is_some()) {
        policy.sshkey = None;
    }
}

fn path_fault(path: &str) -> Option<String> {
    (!path.starts_with('/')).then(|| "the path is not absolute".to_owned())
}

fn name_fault(name: &str) -> Option<String> {
    name.is_empty().then(|| "the unit has no name".to_owned())
}

fn twice(seen: &mut BTreeSet<String>, key: &str) -> Option<String> {
    (!seen.insert(key.to_owned())).then(|| "an earlier entry is about the same".to_owned())
}

fn actions_fault(actions: &[PolicyAction]) -> Option<String> {
    let alone = |kind: &ActionType| matches!(kind, ActionType::Reboot | ActionType::None);
    if let Some(found) = actions.iter().find(|it| alone(&it.kind)).filter(|_| actions.len() > 1) {
        return Some(format!("action {} must be the only one", found.kind.as_str()));
    }
    actions.iter().find_map(action_fault)
}

fn action_fault(action: &PolicyAction) -> Option<String> {
    let unnamed = |service: &Option<ServiceReference>| {
        service.as_ref().is_none_or(|service| service.service_name.is_empty())
    };
    let kind = action.kind.as_str();
    match &action.kind {
        ActionType::Reload if unnamed(&action.reload) => {
            Some(format!("action {kind} needs reload.serviceName"))
        }
        ActionType::Restart if unnamed(&action.restart) => {
            Some(format!("action {kind} needs restart.serviceName"))
        }
        ActionType::Special => Some(format!("action {kind} is only for the built-in policies")),
        // The schema of a newer cluster may have more actions. Daemons reboot for those.
        ActionType::Other(_)
        | ActionType::Reload
        | ActionType::Restart
        | ActionType::Reboot
        | ActionType::Drain
        | ActionType::DaemonReload
        | ActionType::None => None,
    }
}
