//! The cluster by its API: one watch on one node, and everything else by name.

use std::{fmt, time::Duration};

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, Client, ResourceExt as _, api::ListParams, core::PartialObjectMeta};
use mco_api::{
    MachineConfig, MachineConfigPool, MachineConfiguration, NodeName,
    annotation::{self, DriftPolicy},
    label,
    machine_configuration::disruption::ClusterPolicies,
};
use mco_cluster::{CallError, Note, Reporter, apply, report::chain};
use mco_core::{
    membership::Pools,
    plan::{default_policies, merge_policies},
};
use mco_host::Duty;
use tokio::sync::watch;
use tracing::{info, warn};

use super::{
    Changes, Cluster, ClusterError, NodeState, Rules, Weight,
    follow::{Listening, follow_object},
};
use crate::{
    Surroundings,
    report::{Mouth, Said},
};

/// The cluster by its API.
pub struct ApiCluster {
    node: NodeName,
    client: Client,
    nodes: Api<Node>,
    configs: Api<MachineConfig>,
    settings: Api<MachineConfiguration>,
    reporter: Reporter,
    mouth: Mouth,
    last_words: Duration,
    /// The node as it was when we started; events point at it.
    object: Node,
}

impl fmt::Debug for ApiCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiCluster").field("node", &self.node).finish_non_exhaustive()
    }
}

impl ApiCluster {
    /// The cluster as seen by the daemon of `node`, which must exist.
    pub async fn new(
        node: NodeName,
        around: &Surroundings,
        mouth: Mouth,
    ) -> Result<Self, ClusterError> {
        let client = around.clients.own.clone();
        let nodes: Api<Node> = Api::all(around.clients.node.clone());
        let object = nodes
            .get(node.as_str())
            .await
            .map_err(|error| failed(format!("read node {node}"), error))?;
        let configs = Api::all(client.clone());
        let settings = Api::all(client.clone());
        let reporter = around.reporter.clone();
        let last_words = around.limits.last_words;
        Ok(Self { node, client, nodes, configs, settings, reporter, mouth, last_words, object })
    }
}

/// Keeps `seen` at what the cluster says of the node; ends only when nobody listens any longer.
pub async fn follow(client: Client, node: NodeName, seen: watch::Sender<NodeState>) {
    let nodes: Api<PartialObjectMeta<Node>> = Api::all(client);
    let tell = |object: Option<PartialObjectMeta<Node>>| {
        if seen.is_closed() {
            return Listening::No;
        }
        if let Some(object) = object {
            seen.send_replace(state(&object.metadata));
        }
        Listening::Yes
    };
    Box::pin(follow_object(nodes, node.as_str(), tell)).await;
}

impl Cluster for ApiCluster {
    async fn machine_config(&self, name: &str) -> Result<MachineConfig, ClusterError> {
        let found = self.configs.get_opt(name).await;
        found
            .map_err(|error| failed(format!("read MachineConfig {name}"), error))?
            .ok_or_else(|| ClusterError::NoConfig(name.to_owned()))
    }

    async fn pool_config(&self) -> Result<Option<MachineConfig>, ClusterError> {
        pool_config(&self.client, &self.node).await
    }

    async fn rules(&self, limit: Duration) -> Result<Rules, ClusterError> {
        let found = self.settings.get_opt(label::CLUSTER).await;
        let found =
            found.map_err(|error| failed("read the node disruption policies".to_owned(), error))?;
        if let Some(rules) = current_rules(found) {
            return Ok(rules);
        }
        info!("Waiting for the operator to take up the latest node disruption policies");
        let mut current = None;
        let tell = |object: Option<MachineConfiguration>| {
            current = current_rules(object);
            if current.is_some() { Listening::No } else { Listening::Yes }
        };
        let following = Box::pin(follow_object(self.settings.clone(), label::CLUSTER, tell));
        // Whether it came in time is told by what was found.
        drop(tokio::time::timeout(limit, following).await);
        current.ok_or(ClusterError::StalePolicies)
    }

    async fn check_pool(&self) -> Result<(), ClusterError> {
        pool(&self.client, &self.node).await.map(drop)
    }

    async fn drift_policy(&self) -> Result<DriftPolicy, ClusterError> {
        let pool = pool(&self.client, &self.node).await?;
        let annotations = pool.and_then(|pool| pool.metadata.annotations).unwrap_or_default();
        let policy = annotation::DRIFT_POLICY.get(&annotations).unwrap_or_else(|error| {
            warn!(error = chain(&error), "The pool's drift policy makes no sense");
            None
        });
        Ok(policy.unwrap_or(DriftPolicy::Degrade))
    }

    async fn confirm_minutes(&self) -> Result<Option<String>, ClusterError> {
        let pool = pool(&self.client, &self.node).await?;
        let annotations = pool.and_then(|pool| pool.metadata.annotations).unwrap_or_default();
        Ok(annotation::CONFIRM_MINUTES.get(&annotations).ok().flatten())
    }

    async fn annotate(&self, changes: &Changes) -> Result<NodeState, ClusterError> {
        let node = self.node.as_str();
        let patched = apply::patch_annotations(&self.nodes, node, changes).await;
        patched.map(|object| state(&object.metadata)).map_err(|source| ClusterError::Call {
            what: format!("patch node {node}"),
            source: Box::new(source),
        })
    }

    fn note(&self, said: Said) {
        self.mouth.say(said);
    }

    async fn flush(&self) {
        self.mouth.flush(self.last_words).await;
    }

    async fn tell(&self, weight: Weight, reason: &'static str, text: &str) {
        let note = match weight {
            Weight::Normal => Note::normal(&self.object, reason, text),
            Weight::Warning => Note::warning(&self.object, reason, text),
        };
        self.reporter.publish(&note).await;
    }
}

/// What matters of a node.
pub(crate) fn state(node: &ObjectMeta) -> NodeState {
    let has_role = |role: &str| {
        let label = format!("{}{role}", label::NODE_ROLE_PREFIX);
        node.labels.as_ref().is_some_and(|labels| labels.contains_key(&label))
    };
    let is_control_plane = ["master", "control-plane"].into_iter().any(has_role);
    NodeState {
        version: version(node.resource_version.as_ref()),
        annotations: node.annotations.clone().unwrap_or_default(),
        duty: if is_control_plane { Duty::ControlPlane } else { Duty::Worker },
    }
}

/// Versions are numbers on every server there is; one that is not counts as the newest.
fn version(text: Option<&String>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or(u64::MAX)
}

fn failed(what: String, error: kube::Error) -> ClusterError {
    ClusterError::Call { what, source: Box::new(CallError::from(error)) }
}

/// The rules in force; none while the operator has yet to say what their latest change comes to.
fn current_rules(settings: Option<MachineConfiguration>) -> Option<Rules> {
    let policies = current_policies(settings.as_ref())?;
    let overrides = settings.and_then(|it| it.spec.irreconcilable_validation_overrides);
    Some(Rules { policies, overrides: overrides.map(|it| it.storage).unwrap_or_default() })
}

/// The policies in force; none while the operator has yet to say what the latest change comes to.
///
/// Where no operator says anything, the administrator's entries are merged here: a cluster without
/// one must not reboot for what its administrator said is harmless.
fn current_policies(settings: Option<&MachineConfiguration>) -> Option<ClusterPolicies> {
    let Some(settings) = settings else { return Some(default_policies()) };
    let status = settings.status.as_ref();
    let said = status
        .and_then(|status| status.node_disruption_policy_status.as_ref()?.cluster_policies.clone());
    let Some(said) = said else {
        let own = settings.spec.node_disruption_policy.clone().unwrap_or_default();
        return Some(merge_policies(&own));
    };
    let observed = status.map(|status| status.observed_generation).unwrap_or_default();
    (settings.metadata.generation.unwrap_or_default() == observed).then_some(said)
}

/// The config that the pool of a node is to have; none while there is no such pool or config.
pub async fn pool_config(
    client: &Client,
    node: &NodeName,
) -> Result<Option<MachineConfig>, ClusterError> {
    let pool = pool(client, node).await?;
    let name = pool.map(|pool| pool.spec.configuration.rendered.name.clone()).unwrap_or_default();
    if name.is_empty() {
        return Ok(None);
    }
    let configs: Api<MachineConfig> = Api::all(client.clone());
    let found = configs.get_opt(&name).await;
    found.map_err(|error| failed(format!("read MachineConfig {name}"), error))
}

/// The pool of a node; none while there is none.
async fn pool(client: &Client, node: &NodeName) -> Result<Option<MachineConfigPool>, ClusterError> {
    let named = |error| failed(format!("find the pool of node {node}"), error);
    let nodes: Api<Node> = Api::all(client.clone());
    let Some(object) = nodes.get_opt(node.as_str()).await.map_err(named)? else { return Ok(None) };
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let pools = pools.list(&ListParams::default()).await.map_err(named)?.items;
    let member = Pools::new(&pools).of(node.as_str(), object.labels())?;
    let is_primary = |pool: &MachineConfigPool| Some(pool.name_any().as_str()) == member.primary();
    Ok(pools.into_iter().find(is_primary))
}
