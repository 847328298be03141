//! Node disruption policies: the actions that each difference requires.
//!
//! The operator merges the built-in policies with those of the administrator; a difference without
//! a policy reboots the node. The policy with the longest path that is the file or one of its
//! parent directories wins.

use std::fmt;

use mco_api::machine_configuration::disruption::{
    ActionType, ClusterPolicies, FilePolicy, NodeDisruptionPolicyConfig, PolicyAction,
    ServiceReference, SshKeyPolicy, UnitPolicy,
};
use serde::{Deserialize, Serialize};

use super::{Force, registries};
use crate::{
    diff::{Change, ConfigDiff},
    image_config::containerd,
};

/// An action on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// Nothing.
    None,
    /// Drain the node first.
    Drain,
    /// Reload the systemd manager configuration.
    DaemonReload,
    /// Reload a service.
    Reload(String),
    /// Restart a service.
    Restart(String),
    /// Reload the container engine, after a drain if the registries file changed unsafely.
    Special,
    /// Reboot the machine.
    Reboot,
}

/// The actions that one difference requires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyDecision {
    /// Description of the difference.
    pub subject: String,
    /// Required actions, in order.
    pub actions: Vec<Action>,
    /// Rule that applied.
    pub rule: Rule,
}

impl PolicyDecision {
    /// Returns true if the decision is about this file, unit or part of the system.
    pub(super) fn is_about(&self, subject: &str) -> bool {
        let rest = self.subject.strip_prefix(subject);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    }
}

/// The rule that decided the actions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Rule {
    /// The force file exists.
    ForceFile,
    /// The operating system itself can only change at boot.
    System,
    /// The policy for this path.
    File(String),
    /// The policy for this unit.
    Unit(String),
    /// The policy for SSH keys.
    SshKey,
    /// No policy applies, so the node reboots to be safe.
    NoPolicy,
    /// The result on disk is the same.
    SameOnDisk,
    /// No policy applies, and none is needed: containerd reads the file for every pull. The built-in
    /// policies are the reference's, and do not mention it.
    ReadForEveryPull,
}

const USER_CA: &str = "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt";
const KUBELET_DROPIN: &str =
    "/etc/systemd/system/kubelet.service.d/40-kubelet-crio-image-credential-provider.conf";
const IRI_CA: &str = "/etc/pki/ca-trust/source/anchors/iri-root-ca.crt";
const IRI: &str = "iri-registry.service";

/// Returns the built-in policies.
#[must_use]
pub fn default_policies() -> ClusterPolicies {
    let none = || vec![plain(ActionType::None)];
    let reload_crio = || vec![reload("crio.service")];
    let trust = || restart("coreos-update-ca-trust.service");
    let files: [(&str, Vec<PolicyAction>); 13] = [
        ("/var/lib/kubelet/config.json", none()),
        ("/etc/machine-config-daemon/no-reboot/containers-gpg.pub", reload_crio()),
        ("/etc/containers/policy.json", reload_crio()),
        (registries::PATH, vec![plain(ActionType::Special)]),
        ("/etc/containers/registries.d", reload_crio()),
        ("/etc/crio/policies", reload_crio()),
        ("/etc/nmstate/openshift", none()),
        (USER_CA, vec![trust(), restart("crio.service")]),
        ("/etc/kubernetes/credential-providers", vec![restart("kubelet.service")]),
        (KUBELET_DROPIN, vec![plain(ActionType::DaemonReload), restart("kubelet.service")]),
        ("/etc/iri-registry", vec![restart(IRI)]),
        ("/usr/local/bin/load-registry-image.sh", vec![restart(IRI)]),
        (IRI_CA, vec![trust()]),
    ];
    let file = |(path, actions): (&str, _)| FilePolicy { path: path.to_owned(), actions };
    ClusterPolicies {
        files: files.into_iter().map(file).collect(),
        units: vec![UnitPolicy {
            name: IRI.to_owned(),
            actions: vec![plain(ActionType::DaemonReload), restart(IRI)],
        }],
        sshkey: Some(SshKeyPolicy { actions: none() }),
    }
}

/// Merges the administrator's policies into the built-in ones; equal paths and units are replaced.
#[must_use]
pub fn merge_policies(admin: &NodeDisruptionPolicyConfig) -> ClusterPolicies {
    let mut merged = default_policies();
    let (files, units) = (merged.files.len(), merged.units.len());
    for policy in &admin.files {
        match merged.files.iter_mut().take(files).find(|file| file.path == policy.path) {
            Some(file) => *file = policy.clone(),
            None => merged.files.push(policy.clone()),
        }
    }
    for policy in &admin.units {
        match merged.units.iter_mut().take(units).find(|unit| unit.name == policy.name) {
            Some(unit) => *unit = policy.clone(),
            None => merged.units.push(policy.clone()),
        }
    }
    // A policy without actions has no effect.
    if let Some(policy) = admin.sshkey.as_ref().filter(|policy| !policy.actions.is_empty()) {
        merged.sshkey = Some(policy.clone());
    }
    merged
}

/// Decides the actions for each difference.
#[must_use]
pub fn policy_decisions(
    diff: &ConfigDiff,
    policies: &ClusterPolicies,
    force: Force,
) -> Vec<PolicyDecision> {
    let reboot = |subject: &str, rule| PolicyDecision {
        subject: subject.to_owned(),
        actions: vec![Action::Reboot],
        rule,
    };
    let mut decisions = Vec::new();
    if force == Force::Yes {
        decisions.push(reboot("force file", Rule::ForceFile));
    }
    decisions.extend(diff.system().into_iter().map(|part| reboot(part, Rule::System)));
    for file in &diff.files {
        let subject = format!("file {} {}", file.name, file.change);
        decisions.push(match (file.change, for_file(policies, &file.name)) {
            (Change::Respelled, _) => {
                PolicyDecision { subject, actions: vec![Action::None], rule: Rule::SameOnDisk }
            }
            (Change::Added | Change::Changed | Change::Removed, Some(policy)) => PolicyDecision {
                subject,
                actions: actions(&policy.actions),
                rule: Rule::File(policy.path.clone()),
            },
            (Change::Added | Change::Changed | Change::Removed, None)
                if is_below(&file.name, containerd::CERTS_D) =>
            {
                PolicyDecision {
                    subject,
                    actions: vec![Action::None],
                    rule: Rule::ReadForEveryPull,
                }
            }
            (Change::Added | Change::Changed | Change::Removed, None) => {
                reboot(&subject, Rule::NoPolicy)
            }
        });
    }
    for unit in &diff.units {
        let subject = format!("unit {} {}", unit.name, unit.change);
        let policy = policies.units.iter().find(|policy| policy.name == unit.name);
        decisions.push(match policy {
            Some(policy) => PolicyDecision {
                subject,
                actions: actions(&policy.actions),
                rule: Rule::Unit(policy.name.clone()),
            },
            None => reboot(&subject, Rule::NoPolicy),
        });
    }
    if diff.users.is_some() {
        let actions = policies.sshkey.iter().flat_map(|policy| actions(&policy.actions)).collect();
        decisions.push(PolicyDecision {
            subject: "SSH keys or password".to_owned(),
            actions,
            rule: Rule::SshKey,
        });
    }
    decisions
}

/// Combines the actions of all decisions. A reboot replaces everything else; systemd is reloaded
/// before any service is restarted.
#[must_use]
pub fn combine_actions(decisions: &[PolicyDecision]) -> Vec<Action> {
    let mut all = Vec::new();
    for action in decisions.iter().flat_map(|decision| &decision.actions) {
        if *action != Action::None && !all.contains(action) {
            all.push(action.clone());
        }
    }
    if all.contains(&Action::Reboot) {
        return vec![Action::Reboot];
    }
    if all.is_empty() {
        return vec![Action::None];
    }
    all.sort_by_key(|action| match action {
        Action::Drain => 0,
        Action::DaemonReload => 1,
        Action::None
        | Action::Reload(_)
        | Action::Restart(_)
        | Action::Special
        | Action::Reboot => 2,
    });
    all
}

/// Returns the policy with the longest path that is the file or one of its parent directories.
///
/// Compat: no policy covers everything, not even one for `/`, and of two policies for the same path
/// the first counts (`pkg/controller/common/helpers.go`).
fn for_file<'p>(policies: &'p ClusterPolicies, path: &str) -> Option<&'p FilePolicy> {
    let covers = |policy: &FilePolicy| policy.path == path || is_below(path, &policy.path);
    let found = policies.files.iter().filter(|policy| !policy.path.is_empty() && covers(policy));
    // `max_by_key` returns the last of equal elements.
    found.rev().max_by_key(|policy| policy.path.len())
}

/// Returns true if the path is in the folder, or in one below it. Nothing is below `/` here.
fn is_below(path: &str, folder: &str) -> bool {
    let (path, folder) = (clean(path), clean(folder));
    let rest = path.strip_prefix(folder.as_str()).and_then(|rest| rest.strip_prefix('/'));
    folder != "/" && rest.is_some()
}

/// Normalizes an absolute path: removes empty parts, `.` and `..`.
fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

fn actions(wire: &[PolicyAction]) -> Vec<Action> {
    let named = |service: &Option<ServiceReference>| {
        service.as_ref().map(|service| service.service_name.clone()).unwrap_or_default()
    };
    let action = |wire: &PolicyAction| match &wire.kind {
        // An action of a newer cluster is unknown; a reboot covers every possible meaning.
        ActionType::Reboot | ActionType::Other(_) => Action::Reboot,
        ActionType::Drain => Action::Drain,
        ActionType::Reload => Action::Reload(named(&wire.reload)),
        ActionType::Restart => Action::Restart(named(&wire.restart)),
        ActionType::DaemonReload => Action::DaemonReload,
        ActionType::None => Action::None,
        ActionType::Special => Action::Special,
    };
    wire.iter().map(action).collect()
}

fn plain(kind: ActionType) -> PolicyAction {
    PolicyAction { kind, ..PolicyAction::default() }
}

fn reload(service: &str) -> PolicyAction {
    let reload = Some(ServiceReference { service_name: service.to_owned() });
    PolicyAction { kind: ActionType::Reload, reload, restart: None }
}

fn restart(service: &str) -> PolicyAction {
    let restart = Some(ServiceReference { service_name: service.to_owned() });
    PolicyAction { kind: ActionType::Restart, reload: None, restart }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("nothing"),
            Self::Drain => f.write_str("drain"),
            Self::DaemonReload => f.write_str("reload systemd"),
            Self::Reload(service) => write!(f, "reload {service}"),
            Self::Restart(service) => write!(f, "restart {service}"),
            Self::Special => f.write_str("reload crio.service"),
            Self::Reboot => f.write_str("reboot"),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ForceFile => f.write_str("force file present"),
            Self::System => f.write_str("the operating system changes only at boot"),
            Self::File(path) => write!(f, "policy for {path}"),
            Self::Unit(name) => write!(f, "policy for {name}"),
            Self::SshKey => f.write_str("policy for SSH keys"),
            Self::NoPolicy => f.write_str("no policy covers it"),
            Self::SameOnDisk => f.write_str("same result on disk"),
            Self::ReadForEveryPull => f.write_str("containerd reads it for every pull"),
        }
    }
}
