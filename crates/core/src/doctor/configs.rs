//! Pools, `MachineConfigs` and certificates.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use mco_api::{MachineConfigPool, annotation, condition::PoolCondition, meta::ConditionStatus};

use super::{Certificate, Facts, Fetched, Finding, Part, age, counted};
use crate::status::explain;

/// Time after which a pool that is paused before an update is reported.
const LONG_PAUSE: SignedDuration = SignedDuration::from_hours(24);

/// Time before the end of a certificate at which it is reported. The controller rotates its own
/// certificates years before.
const NEAR_END: SignedDuration = SignedDuration::from_hours(30 * 24);

/// Maximum number of findings of one kind.
const SHOWN: usize = 20;

const BUILT_IN: [&str; 3] = ["master", "worker", "arbiter"];

pub(super) fn examine(facts: &Facts) -> Vec<Finding> {
    let mut found = pools(facts);
    found.extend(missing_configs(facts));
    found.extend(faults(facts));
    found.extend(certificates(facts));
    found
}

fn pools(facts: &Facts) -> Vec<Finding> {
    let Fetched::Found(all) = &facts.pools else { return Vec::new() };
    let mut found: Vec<Finding> =
        all.iter().flat_map(|it| pool(facts, it, facts.server_now())).collect();
    if found.is_empty() && !all.is_empty() {
        let text =
            format!("{} are updated or updating, and none is degraded", counted(all.len(), "pool"));
        found.push(Finding::ok(Part::Pools, text));
    }
    found
}

fn pool(facts: &Facts, pool: &MachineConfigPool, now: Timestamp) -> Vec<Finding> {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let Some(status) = &pool.status else {
        let text = format!("pool {name} has no status");
        let fix = format!(
            "see if the controller runs: kubectl logs -n {} deployment/machine-config-controller",
            facts.installed_in
        );
        return vec![Finding::warning(Part::Pools, text, fix)];
    };
    let mut found = Vec::new();
    let degraded = explain::holding(&status.conditions, &PoolCondition::Degraded).is_some();
    if degraded {
        let kinds =
            [PoolCondition::RenderDegraded, PoolCondition::NodeDegraded, PoolCondition::Degraded];
        let texts = kinds.iter().filter_map(|kind| explain::holding(&status.conditions, kind));
        let mut texts = texts.map(|it| it.message.as_str()).filter(|text| !text.is_empty());
        let cause = texts.next().unwrap_or("no cause is given");
        let remedies = explain::remedies(&status.conditions).join("; ");
        let fix = if remedies.is_empty() {
            format!("see: kubectl describe mcp {name}")
        } else {
            remedies
        };
        found.push(Finding::error(Part::Pools, format!("pool {name} is degraded: {cause}"), fix));
    }
    let updated = status.conditions.iter().find(|it| it.kind == PoolCondition::Updated.as_str());
    let behind_since = updated
        .filter(|it| it.status == ConditionStatus::False.as_str())
        .and_then(|it| Some(now.duration_since(it.last_transition_time.as_ref()?.0)));
    if let Some(since) = behind_since.filter(|since| pool.spec.paused && *since > LONG_PAUSE) {
        let text = format!("pool {name} is paused, and its update has waited for {}", age(since));
        let fix = format!(
            "run: kubectl patch machineconfigpool {name} --type merge --patch \
             '{{\"spec\":{{\"paused\":false}}}}'"
        );
        found.push(Finding::warning(Part::Pools, text, fix));
    }
    if status.machine_count == 0 && !BUILT_IN.contains(&name) {
        let text = format!("pool {name} has no nodes");
        let fix = "give nodes the labels of its nodeSelector, or delete the pool";
        found.push(Finding::warning(Part::Pools, text, fix));
    }
    found
}

/// Reports names of rendered configs that do not exist, in pools and on nodes.
fn missing_configs(facts: &Facts) -> Vec<Finding> {
    let Fetched::Found(configs) = &facts.configs else { return Vec::new() };
    let mut found = Vec::new();
    for pool in facts.pools.items() {
        let name = pool.metadata.name.as_deref().unwrap_or_default();
        let rendered = &pool.spec.configuration.rendered.name;
        if rendered.is_empty() {
            let text = format!("pool {name} has no rendered config");
            let fix = format!("see the condition RenderDegraded: kubectl describe mcp {name}");
            found.push(Finding::warning(Part::Configs, text, fix));
        } else if !configs.contains(rendered) {
            let text =
                format!("pool {name} refers to MachineConfig {rendered}, which does not exist");
            let fix = "see if the controller runs, which renders it again; or restore the MachineConfig \
                       from a backup";
            found.push(Finding::error(Part::Configs, text, fix));
        }
    }
    for node in facts.nodes.items() {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let annotations = node.metadata.annotations.as_ref();
        for key in [annotation::CURRENT_CONFIG.name(), annotation::DESIRED_CONFIG.name()] {
            let config = annotations.and_then(|annotations| annotations.get(key));
            if let Some(config) = config.filter(|it| !it.is_empty() && !configs.contains(*it)) {
                let text = format!(
                    "node {name} refers to MachineConfig {config} ({}), which does not exist",
                    key.rsplit('/').next().unwrap_or(key)
                );
                let fix = "restore the MachineConfig from a backup; `mco render` computes it from its \
                           sources";
                found.push(Finding::error(Part::Configs, text, fix));
            }
        }
    }
    found
}

/// Repeats the errors of `mco check`, and counts its warnings.
fn faults(facts: &Facts) -> Vec<Finding> {
    let errors: Vec<_> = facts.faults.iter().filter(|fault| fault.is_error()).collect();
    let warnings = facts.faults.len() - errors.len();
    let hint = "run: kubectl get mc,mcp -o yaml | mco check -f -";
    let mut found: Vec<Finding> = errors
        .iter()
        .take(SHOWN)
        .map(|fault| {
            let object = fault.object.as_deref().unwrap_or("a MachineConfig");
            let text = format!("{object}: {} [{}]", fault.message, fault.code);
            Finding::error(Part::Configs, text, fault.hint.as_deref().unwrap_or(hint))
        })
        .collect();
    if errors.len() > SHOWN {
        let text = format!("{} more errors in MachineConfigs", errors.len() - SHOWN);
        found.push(Finding::error(Part::Configs, text, hint));
    }
    if warnings > 0 {
        let text = format!("{} in MachineConfigs", counted(warnings, "warning"));
        found.push(Finding::warning(Part::Configs, text, hint));
    }
    if let (true, Some(configs)) = (found.is_empty(), facts.configs.found()) {
        let text = format!("{} have no faults", counted(configs.len(), "MachineConfig"));
        found.push(Finding::ok(Part::Configs, text));
    }
    found
}

fn certificates(facts: &Facts) -> Vec<Finding> {
    let now = facts.server_now();
    let status = facts.controller_config.found().and_then(|config| config.status.as_ref());
    let bundles = status.into_iter().flat_map(|status| &status.controller_certificates);
    let bundles = bundles.filter_map(|it| {
        let not_after = Some(it.not_after.as_ref()?.0);
        Some(Certificate { object: format!("{} in {}", it.subject, it.bundle_file), not_after })
    });
    let own = facts.certificates.items();
    let mut found: Vec<Finding> =
        own.iter().cloned().chain(bundles).filter_map(|it| certificate(&it, now)).collect();
    if found.is_empty() && !own.is_empty() {
        found.push(Finding::ok(Part::Certificates, "no certificate ends within 30 days"));
    }
    found
}

fn certificate(certificate: &Certificate, now: Timestamp) -> Option<Finding> {
    let object = &certificate.object;
    let fix = "see docs/certificates.md; the controller rotates the certificates of the config server by \
               itself, so see if it runs";
    let Some(not_after) = certificate.not_after else {
        let text = format!("the end of the certificate in {object} is not known");
        return Some(Finding::warning(Part::Certificates, text, fix));
    };
    let left = not_after.duration_since(now);
    if left.is_negative() || left.is_zero() {
        let text = format!("the certificate {object} ended at {not_after:.0}");
        return Some(Finding::error(Part::Certificates, text, fix));
    }
    (left < NEAR_END).then(|| {
        let text = format!("the certificate {object} ends in {}", age(left));
        Finding::warning(Part::Certificates, text, fix)
    })
}
