//! Health of a cluster: findings from a snapshot of facts.
//!
//! [`examine`] checks prerequisites and every part of the system. It works before an installation, too:
//! facts that do not exist are facts. Every finding that is not `ok` has its fix.

mod cluster;
mod configs;
mod nodes;
mod processes;
#[cfg(test)]
mod tests;
pub mod version;

use std::{collections::BTreeSet, fmt};

use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment},
        coordination::v1::Lease,
        core::v1::{Namespace, Node, Pod},
    },
    jiff::{SignedDuration, Timestamp},
};
use mco_api::{ClusterOperator, ControllerConfig, MachineConfigNode, MachineConfigPool, label};
use serde::Serialize;

use crate::lint::Fault;

/// The result of a request.
#[derive(Clone, Debug, Default)]
pub enum Fetched<T> {
    /// The objects, or the object.
    Found(T),
    /// The object does not exist, or the API server does not serve its kind.
    #[default]
    Absent,
    /// The request failed, for example because the user may not make it.
    Failed(String),
}

impl<T> Fetched<T> {
    /// Returns the value, if there is one.
    pub fn found(&self) -> Option<&T> {
        match self {
            Self::Found(value) => Some(value),
            Self::Absent | Self::Failed(_) => None,
        }
    }

    fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    fn failure(&self) -> Option<&str> {
        match self {
            Self::Failed(text) => Some(text),
            Self::Found(_) | Self::Absent => None,
        }
    }
}

impl<T> Fetched<Vec<T>> {
    fn items(&self) -> &[T] {
        self.found().map(Vec::as_slice).unwrap_or_default()
    }
}

/// The observed state of a cluster.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Time of the observation, on the clock of this machine.
    pub now: Timestamp,
    /// Version of the program that examines the cluster.
    pub client: String,
    /// Version of the API server, such as `v1.36.4`, or the reason for which it is unknown.
    pub kubernetes: Result<String, String>,
    /// Time of the API server less that of this machine, if the API server tells its time.
    pub clock_difference: Option<SignedDuration>,
    /// Rights that an installation needs.
    pub rights: Vec<Right>,
    /// Our `CustomResourceDefinitions`, as the cluster has them.
    pub definitions: Fetched<Vec<Definition>>,
    /// Name of the namespace of the processes.
    pub installed_in: String,
    /// Namespace of the processes.
    pub namespace: Fetched<Namespace>,
    /// Status of the operator.
    pub operator: Fetched<ClusterOperator>,
    /// Sign of another operator that runs the cluster.
    pub other_operator: Option<String>,
    /// ControllerConfig of the cluster.
    pub controller_config: Fetched<ControllerConfig>,
    /// Deployments of the namespace.
    pub deployments: Fetched<Vec<Deployment>>,
    /// `DaemonSets` of the namespace.
    pub daemon_sets: Fetched<Vec<DaemonSet>>,
    /// Pods of the namespace.
    pub pods: Fetched<Vec<Pod>>,
    /// Leases of the namespace.
    pub leases: Fetched<Vec<Lease>>,
    /// All nodes.
    pub nodes: Fetched<Vec<Node>>,
    /// All `MachineConfigNodes`.
    pub machine_config_nodes: Fetched<Vec<MachineConfigNode>>,
    /// All pools.
    pub pools: Fetched<Vec<MachineConfigPool>>,
    /// Names of all `MachineConfigs`.
    pub configs: Fetched<BTreeSet<String>>,
    /// Faults of the `MachineConfigs`, as `mco check` finds them.
    pub faults: Vec<Fault>,
    /// Certificates of the config server.
    pub certificates: Fetched<Vec<Certificate>>,
}

impl Facts {
    /// Returns facts without any object.
    #[must_use]
    pub fn new(now: Timestamp, client: &str, kubernetes: Result<String, String>) -> Self {
        Self {
            now,
            client: client.to_owned(),
            kubernetes,
            clock_difference: None,
            rights: Vec::new(),
            definitions: Fetched::Absent,
            installed_in: label::NAMESPACE.to_owned(),
            namespace: Fetched::Absent,
            operator: Fetched::Absent,
            other_operator: None,
            controller_config: Fetched::Absent,
            deployments: Fetched::Absent,
            daemon_sets: Fetched::Absent,
            pods: Fetched::Absent,
            leases: Fetched::Absent,
            nodes: Fetched::Absent,
            machine_config_nodes: Fetched::Absent,
            pools: Fetched::Absent,
            configs: Fetched::Absent,
            faults: Vec::new(),
            certificates: Fetched::Absent,
        }
    }

    /// Returns true if nothing of the system exists in the cluster.
    fn is_not_installed(&self) -> bool {
        let no_workloads =
            self.deployments.items().is_empty() && self.daemon_sets.items().is_empty();
        self.operator.is_absent()
            && self.controller_config.is_absent()
            && no_workloads
            && self.pools.items().is_empty()
    }

    /// Returns the command that installs the manifests into the namespace of the processes, or the first one
    /// on a cluster of another operator.
    fn install(&self) -> String {
        if self.other_operator.is_some() {
            // The manifests would replace objects of the other operator.
            return "mco takeover --check".to_owned();
        }
        match self.installed_in.as_str() {
            label::NAMESPACE => "mco install | kubectl apply -f -".to_owned(),
            namespace => format!("mco install --namespace {namespace} | kubectl apply -f -"),
        }
    }

    /// Returns the current time on the clock of the API server.
    fn server_now(&self) -> Timestamp {
        let difference = self.clock_difference.unwrap_or(SignedDuration::ZERO);
        self.now.saturating_add(difference).unwrap_or(self.now)
    }
}

/// A right of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// The verb and its object, such as `create namespaces`.
    pub name: String,
    /// Answer of the API server; `None` if it did not answer.
    pub allowed: Option<bool>,
}

/// A `CustomResourceDefinition`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definition {
    /// Name of the definition.
    pub name: String,
    /// Presence in the cluster.
    pub state: DefinitionState,
    /// Owner, if that is another one.
    pub owner: Option<String>,
    /// Members that its schema lacks.
    pub lacks: Vec<String>,
}

/// The state of a `CustomResourceDefinition`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DefinitionState {
    /// The cluster does not have it.
    #[default]
    Missing,
    /// Its kind is served.
    Served,
    /// Its kind is not served, or cannot be used, for this reason.
    Unusable(String),
}

/// A certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The object that holds it, such as `Secret a/b`.
    pub object: String,
    /// End of its validity, if the object says it.
    pub not_after: Option<Timestamp>,
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The part is healthy.
    Ok,
    /// The part works, and something should be changed.
    Warning,
    /// The part does not work.
    Error,
}

/// A part of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// API server and its version.
    ApiServer,
    /// Rights of the user.
    Rights,
    /// `CustomResourceDefinitions`.
    Definitions,
    /// Namespace of the processes.
    Namespace,
    /// Operator process and its report.
    Operator,
    /// Controller process.
    Controller,
    /// Config server.
    Server,
    /// Daemons.
    Daemon,
    /// Nodes and their kubelets.
    Nodes,
    /// Pools.
    Pools,
    /// `MachineConfigs`.
    Configs,
    /// Drains of nodes.
    Drains,
    /// Certificates of the config server and of the cluster.
    Certificates,
    /// First boot of new machines.
    FirstBoot,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ApiServer => "API server",
            Self::Rights => "rights",
            Self::Definitions => "kinds",
            Self::Namespace => "namespace",
            Self::Operator => "operator",
            Self::Controller => "controller",
            Self::Server => "config server",
            Self::Daemon => "daemons",
            Self::Nodes => "nodes",
            Self::Pools => "pools",
            Self::Configs => "configs",
            Self::Drains => "drains",
            Self::Certificates => "certificates",
            Self::FirstBoot => "first boot",
        })
    }
}

/// A finding about one part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Severity of the finding.
    pub severity: Severity,
    /// Part of the system.
    pub part: Part,
    /// The finding, as one sentence.
    pub text: String,
    /// A command to run or a setting to change; `None` if the part is healthy.
    pub fix: Option<String>,
}

impl Finding {
    fn ok(part: Part, text: impl Into<String>) -> Self {
        Self { severity: Severity::Ok, part, text: text.into(), fix: None }
    }

    fn warning(part: Part, text: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, part, text: text.into(), fix: Some(fix.into()) }
    }

    fn error(part: Part, text: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { severity: Severity::Error, part, text: text.into(), fix: Some(fix.into()) }
    }
}

/// Returns the findings, in the order of the parts.
#[must_use]
pub fn examine(facts: &Facts) -> Vec<Finding> {
    if let Err(why) = &facts.kubernetes {
        let text = format!("the API server does not answer: {why}");
        let fix = "check the address and the credentials in the kubeconfig, and that the API server \
                   runs: kubectl get --raw /readyz";
        return vec![Finding::error(Part::ApiServer, text, fix)];
    }
    let mut found = cluster::examine(facts);
    found.extend(not_fetched(facts));
    if facts.is_not_installed() {
        let text = "mco is not installed in this cluster; to install it, run: mco install | kubectl \
                    apply -f -";
        found.push(Finding::ok(Part::Operator, text));
    } else {
        found.extend(processes::examine(facts));
        found.extend(configs::examine(facts));
    }
    found.extend(nodes::examine(facts));
    found.sort_by_key(|finding| finding.part);
    found
}

/// Returns the parts that could not be examined.
fn not_fetched(facts: &Facts) -> Vec<Finding> {
    let all = [
        (Part::Definitions, "CustomResourceDefinitions", facts.definitions.failure()),
        (Part::Namespace, "the namespace", facts.namespace.failure()),
        (Part::Operator, "the ClusterOperator", facts.operator.failure()),
        (Part::Controller, "the ControllerConfig", facts.controller_config.failure()),
        (Part::Controller, "Deployments", facts.deployments.failure()),
        (Part::Daemon, "DaemonSets", facts.daemon_sets.failure()),
        (Part::Daemon, "pods", facts.pods.failure()),
        (Part::Controller, "Leases", facts.leases.failure()),
        (Part::Nodes, "nodes", facts.nodes.failure()),
        (Part::Nodes, "MachineConfigNodes", facts.machine_config_nodes.failure()),
        (Part::Pools, "pools", facts.pools.failure()),
        (Part::Configs, "MachineConfigs", facts.configs.failure()),
        (Part::Certificates, "certificates", facts.certificates.failure()),
    ];
    let failed = all.into_iter().filter_map(|(part, what, why)| Some((part, what, why?)));
    let finding = |(part, what, why): (Part, &str, &str)| {
        let fix = "run the command as a user who may read these objects";
        Finding::warning(part, format!("{what}: not checked: {why}"), fix)
    };
    failed.map(finding).collect()
}

/// Returns a count with its noun.
fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Returns a duration in the largest unit that fits.
fn age(of: SignedDuration) -> String {
    let seconds = of.as_secs().max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}
