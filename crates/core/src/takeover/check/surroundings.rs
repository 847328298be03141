//! The other operator itself, and all of the cluster that has no part in the names.

use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};
use kube_core::ResourceExt as _;
use mco_api::{
    MachineConfigPool, annotation,
    annotation::DaemonState,
    condition::PoolCondition,
    label,
    machine_configuration::boot_images::{MachineManager, SelectionMode},
    name::RENDERED_PREFIX,
};

use super::{Effect, Findings, KeyUse, Management, Snapshot};
use crate::rollout::NodeView;

/// Number of names that a text lists.
const LISTED: usize = 5;

/// Checks everything but the names.
pub(super) fn check(snapshot: &Snapshot, now: Timestamp, findings: &mut Findings) {
    leaders(&snapshot.leases, now, findings);
    workloads(snapshot, findings);
    pools(snapshot, findings);
    nodes(snapshot, findings);
    unsupported(snapshot, findings);
    definitions(snapshot, findings);
    certificates(snapshot, findings);
    base_configs(snapshot, findings);
    history(snapshot, findings);
}

/// Checks that no process of the other operator leads.
fn leaders(leases: &[Lease], now: Timestamp, findings: &mut Findings) {
    for lease in leases {
        let name = lease.name_any();
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.unwrap_or_default();
        let object = format!("Lease/{name}");
        if holder.is_empty() {
            findings.add(Effect::Keeps, object, "has no holder");
            continue;
        }
        let seconds = i64::from(spec.lease_duration_seconds.unwrap_or_default());
        let renewed = spec.renew_time.map(|time| time.0);
        let is_live =
            renewed.is_some_and(|renewed| now.as_second() - renewed.as_second() < seconds);
        if is_live {
            findings.add(Effect::Forbids, object, format!("{holder} leads"));
            findings.fix(format!("stop the process of {holder}: scale its Deployment to 0"));
        } else {
            let text = format!("{holder} has not renewed it in time, and leads no more");
            findings.add(Effect::Keeps, object, text);
        }
    }
}

/// Checks that the operator of the release does not restore what is stopped.
fn workloads(snapshot: &Snapshot, findings: &mut Findings) {
    for workload in &snapshot.workloads {
        let (kind, name) = (&workload.kind, &workload.name);
        let object = format!("{kind}/{name}");
        match (kind.as_str(), workload.management) {
            ("Deployment", Management::Release) => {
                let text = "the cluster-version-operator owns it, and starts it again when it is \
                            stopped";
                findings.add(Effect::Forbids, object, text);
                findings.fix(format!(
                    "add to spec.overrides of ClusterVersion version: {{kind: {kind}, group: apps, \
                     namespace: {}, name: {name}, unmanaged: true}}; then scale it to 0",
                    label::NAMESPACE
                ));
            }
            ("Deployment", Management::Overridden | Management::Other) if workload.replicas > 0 => {
                let text = format!("it is to have {} pods", workload.replicas);
                findings.add(Effect::Forbids, object, text);
                findings.fix(format!(
                    "kubectl -n {} scale deployment {name} --replicas 0",
                    label::NAMESPACE
                ));
            }
            ("Deployment", _) => findings.add(Effect::Keeps, object, "is stopped"),
            _ => {
                let text = "stays, and its pods follow the same protocol with the controller";
                findings.add(Effect::Keeps, object, text);
            }
        }
    }
}

/// Checks that no pool is being updated.
fn pools(snapshot: &Snapshot, findings: &mut Findings) {
    for pool in &snapshot.pools {
        let object = format!("MachineConfigPool/{}", pool.name_any());
        let status = pool.status.clone().unwrap_or_default();
        let (updated, all) = (status.updated_machine_count, status.machine_count);
        let is_targeted =
            status.configuration.rendered.name != pool.spec.configuration.rendered.name && all > 0;
        if holds(pool, &PoolCondition::Degraded) {
            findings.add(Effect::Forbids, object, "is degraded");
            findings.fix(format!("see the conditions of pool {} and repair it", pool.name_any()));
        } else if holds(pool, &PoolCondition::Updating) || updated < all || is_targeted {
            let text = format!("is being updated: {updated} of {all} nodes are done");
            findings.add(Effect::Forbids, object, text);
            findings.fix("wait until the pool is Updated; the other operator ends the rollout");
        } else if pool.spec.paused {
            findings.add(Effect::Keeps, object, "is paused, and stays so");
        }
    }
}

fn holds(pool: &MachineConfigPool, kind: &PoolCondition) -> bool {
    let conditions = pool.status.iter().flat_map(|status| &status.conditions);
    let mut conditions = conditions.filter(|condition| condition.kind == kind.as_str());
    conditions.any(|condition| condition.status == "True")
}

/// Checks that every node has reached its desired config.
fn nodes(snapshot: &Snapshot, findings: &mut Findings) {
    let views = snapshot.nodes.iter().map(NodeView::of);
    let unfinished = views.filter(|node| {
        let is_done = node.state.as_ref().is_none_or(|state| *state == DaemonState::Done);
        !node.desired.is_empty() && (node.current != node.desired || !is_done)
    });
    let names: Vec<String> = unfinished.map(|node| node.name).collect();
    if names.is_empty() {
        return;
    }
    let more = names.len().saturating_sub(LISTED);
    let listed = names.iter().take(LISTED).cloned().collect::<Vec<_>>().join(", ");
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    let text = format!("{listed}{rest} have not reached their desired config");
    findings.add(Effect::Forbids, "Node", text);
    findings.fix("wait until the daemons of these nodes report Done");
}

/// Lists objects that no controller of this operator reconciles.
fn unsupported(snapshot: &Snapshot, findings: &mut Findings) {
    for (kind, name) in &snapshot.unsupported {
        let text = format!("no controller of mco reconciles a {kind}: its work would stop");
        findings.add(Effect::Forbids, format!("{kind}/{name}"), text);
        findings.fix(format!("delete the {kind}, or keep the other operator"));
    }
    let boot_images = snapshot
        .machine_configuration
        .as_ref()
        .and_then(|config| config.spec.managed_boot_images.as_ref());
    let is_selected = |manager: &MachineManager| manager.selection.mode != SelectionMode::None;
    if boot_images.is_some_and(|images| images.machine_managers.iter().any(is_selected)) {
        let text = "boot images of MachineSets are no longer updated";
        findings.add(Effect::Changes, format!("MachineConfiguration/{}", label::CLUSTER), text);
        findings.fix("update them by hand, or keep the other operator");
    }
    if snapshot.streams.is_some() {
        let text = "stays as it is: streams of new releases are not added";
        findings.add(Effect::Changes, format!("OSImageStream/{}", label::CLUSTER), text);
    }
}

/// Lists the definitions of another owner.
fn definitions(snapshot: &Snapshot, findings: &mut Findings) {
    let mut kept = 0;
    for definition in &snapshot.definitions {
        let object = format!("CustomResourceDefinition/{}", definition.name);
        match &definition.usable {
            Ok(lacks) if lacks.is_empty() => kept += 1,
            Ok(lacks) => {
                let text = format!("stays as it is, and lacks {}", lacks.join(", "));
                findings.add(Effect::Keeps, object, text);
            }
            Err(reason) => {
                findings.add(Effect::Forbids, object, format!("cannot be used: {reason}"));
                findings.fix("upgrade or downgrade the release of the cluster");
            }
        }
    }
    if kept > 0 {
        let text = format!("{kept} belong to the release of the cluster, and stay as they are");
        findings.add(Effect::Keeps, "CustomResourceDefinition", text);
    }
}

/// Lists the certificates of the config server.
fn certificates(snapshot: &Snapshot, findings: &mut Findings) {
    for certificate in &snapshot.certificates {
        let object = format!("Secret/{}", certificate.name);
        let (issuer, until) = (&certificate.issuer, certificate.not_after);
        let text = format!("is kept: issued by {issuer}, valid until {until:.0}");
        findings.add(Effect::Keeps, &object, text);
        if certificate.key == KeyUse::Unreadable {
            let text = "its key cannot be read: the certificate is never renewed";
            findings.add(Effect::Changes, object, text);
        }
    }
}

/// Lists the base configs, which no controller generates after a takeover.
fn base_configs(snapshot: &Snapshot, findings: &mut Findings) {
    let names = snapshot.configs.iter().map(kube_core::ResourceExt::name_any);
    let base = names.filter(|name| name.starts_with("00-") || name.starts_with("01-")).count();
    let text = format!(
        "{base} base configs stay as they are: changes of the ControllerConfig, of the pull secret and \
         of the proxy reach nodes no more"
    );
    findings.add(Effect::Changes, "MachineConfig", text);
    findings.fix("add MachineConfigs of your own for such changes");
}

/// Lists the rendered configs, none of which is pruned.
fn history(snapshot: &Snapshot, findings: &mut Findings) {
    let rendered = snapshot.configs.iter().filter(|it| it.name_any().starts_with(RENDERED_PREFIX));
    let (ours, others): (Vec<_>, Vec<_>) =
        rendered.partition(|it| annotation::RENDERED_BY_MCO.is_present(it.annotations()));
    let text = format!(
        "pruning deletes none of the {} rendered configs of the other operator",
        others.len()
    );
    findings.add(Effect::Keeps, "MachineConfig", text);
    if !ours.is_empty() {
        let text =
            format!("{} rendered configs of mco are pruned when they are unused", ours.len());
        findings.add(Effect::Changes, "MachineConfig", text);
    }
}
