//! The cluster through its API: one watch on one node, and everything else by name.

use std::{fmt, time::Duration};

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Client, ResourceExt as _, api::ListParams, core::PartialObjectMeta};
use mco_api::{
    MachineConfig, MachineConfigPool, MachineConfiguration, NodeName,
    annotation::{self, DriftPolicy},
    label,
    machine_configuration::disruption::ClusterPolicies,
};
use mco_cluster::{
    Api, CallError, Note, Reporter, apply,
    report::chain,
    watch::{self, Observed},
};
use mco_core::{
    drain,
    membership::Pools,
    plan::{default_policies, merge_policies},
};
use mco_host::MachineRole;
use tokio::{sync::watch::Sender, time::Instant};
use tracing::{info, warn};

use super::{
    Changes, Cluster, ClusterError, EventType, NodeState, Rules,
    object_watch::{AfterChange, follow, watch_one},
};
use crate::{
    DaemonContext,
    machine_config_node::{StatusSender, StatusUpdate},
};

/// The cluster through its API.
pub struct ApiCluster {
    node: NodeName,
    client: Client,
    nodes: Api<Node>,
    configs: Api<MachineConfig>,
    settings: Api<MachineConfiguration>,
    reporter: Reporter,
    status: StatusSender,
    status_flush: Duration,
    /// The Node at the start; events refer to it.
    object: Node,
}

impl fmt::Debug for ApiCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiCluster").field("node", &self.node).finish_non_exhaustive()
    }
}

impl ApiCluster {
    /// Connects the daemon of `node`, which must exist, to its cluster.
    pub async fn new(
        node: NodeName,
        around: &DaemonContext,
        status: StatusSender,
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
        let status_flush = around.limits.status_flush;
        Ok(Self { node, client, nodes, configs, settings, reporter, status, status_flush, object })
    }
}

/// Keeps `observed` at the metadata of the node; ends when all receivers are dropped.
pub async fn watch_node(
    client: Client,
    node: NodeName,
    config: watch::Config,
    observed: Sender<NodeState>,
) {
    let nodes: Api<PartialObjectMeta<Node>> = Api::all(client);
    let config = config.metadata_only();
    let on_change = |state: Observed<PartialObjectMeta<Node>>| {
        if observed.is_closed() {
            return AfterChange::Stop;
        }
        if let Some(object) = state.object {
            let since = Some(state.list_requested);
            observed.send_replace(NodeState { since, ..node_state(&object.metadata) });
        }
        AfterChange::Continue
    };
    let states = watch::object(&nodes, node.as_str(), config);
    Box::pin(follow(states, on_change, |_| {})).await;
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
        info!("Waiting for the operator to publish the merged node disruption policies");
        let mut current = None;
        let on_change = |object: Option<MachineConfiguration>| {
            current = current_rules(object);
            if current.is_some() { AfterChange::Stop } else { AfterChange::Continue }
        };
        let following = Box::pin(watch_one(
            self.settings.clone(),
            label::CLUSTER,
            watch::Config::default(),
            on_change,
        ));
        // A timeout shows in `current`.
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
            warn!(error = chain(&error), "Ignored an invalid drift policy on the pool");
            None
        });
        Ok(policy.unwrap_or(DriftPolicy::Degrade))
    }

    async fn confirmation_time(&self) -> Result<Option<String>, ClusterError> {
        let pool = pool(&self.client, &self.node).await?;
        let annotations = pool.and_then(|pool| pool.metadata.annotations).unwrap_or_default();
        Ok(annotation::CONFIRM_MINUTES.get(&annotations).ok().flatten())
    }

    async fn drain_timeout(&self) -> Result<Option<Duration>, ClusterError> {
        let pool = pool(&self.client, &self.node).await?;
        let annotations = pool.and_then(|pool| pool.metadata.annotations).unwrap_or_default();
        // An invalid timeout is reported by the drain controller, which then uses the default, too.
        Ok(annotations
            .contains_key(annotation::DRAIN_TIMEOUT.name())
            .then(|| drain::Limits::of(&annotations, drain::Limits::REFERENCE).0.overdue))
    }

    async fn annotate(&self, changes: &Changes) -> Result<NodeState, ClusterError> {
        let node = self.node.as_str();
        let patched = apply::patch_annotations(&self.nodes, node, changes).await;
        patched.map(|object| answered_state(&object.metadata)).map_err(|source| {
            ClusterError::Call { what: format!("patch node {node}"), source: Box::new(source) }
        })
    }

    fn report_status(&self, update: StatusUpdate) {
        self.status.send(update);
    }

    async fn flush(&self) {
        self.status.flush(self.status_flush).await;
    }

    async fn publish_event(&self, event_type: EventType, reason: &'static str, text: &str) {
        let note = match event_type {
            EventType::Normal => Note::normal(&self.object, reason, text),
            EventType::Warning => Note::warning(&self.object, reason, text),
        };
        self.reporter.publish(&note).await;
    }
}

/// Extracts the state of a node from the metadata in the answer to a write.
pub(crate) fn answered_state(node: &ObjectMeta) -> NodeState {
    NodeState { since: Some(Instant::now()), ..node_state(node) }
}

/// Extracts the state of a node from its metadata.
fn node_state(node: &ObjectMeta) -> NodeState {
    let has_role = |role: &str| {
        let label = format!("{}{role}", label::NODE_ROLE_PREFIX);
        node.labels.as_ref().is_some_and(|labels| labels.contains_key(&label))
    };
    let is_control_plane = ["master", "control-plane"].into_iter().any(has_role);
    NodeState {
        version: version(node.resource_version.as_ref()),
        since: None,
        annotations: node.annotations.clone().unwrap_or_default(),
        role: if is_control_plane { MachineRole::ControlPlane } else { MachineRole::Worker },
    }
}

/// Resource versions are numbers on all known API servers; any other text counts as the newest.
fn version(text: Option<&String>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or(u64::MAX)
}

fn failed(what: String, error: kube::Error) -> ClusterError {
    ClusterError::Call { what, source: Box::new(CallError::from(error)) }
}

/// Returns the current settings; none while the operator has not published those of the latest
/// generation.
fn current_rules(settings: Option<MachineConfiguration>) -> Option<Rules> {
    let policies = current_policies(settings.as_ref())?;
    let overrides = settings.and_then(|it| it.spec.irreconcilable_validation_overrides);
    Some(Rules { policies, overrides: overrides.map(|it| it.storage).unwrap_or_default() })
}

/// Returns the current policies; none while the operator has not published those of the latest
/// generation.
///
/// Without an operator, the administrator's entries are merged here: a cluster without an operator
/// must not reboot for changes that its administrator declared harmless.
fn current_policies(settings: Option<&MachineConfiguration>) -> Option<ClusterPolicies> {
    let Some(settings) = settings else { return Some(default_policies()) };
    let status = settings.status.as_ref();
    let published = status
        .and_then(|status| status.node_disruption_policy_status.as_ref()?.cluster_policies.clone());
    let Some(published) = published else {
        let own = settings.spec.node_disruption_policy.clone().unwrap_or_default();
        return Some(merge_policies(&own));
    };
    let observed = status.map(|status| status.observed_generation).unwrap_or_default();
    (settings.metadata.generation.unwrap_or_default() == observed).then_some(published)
}

/// Fetches the rendered config of a node's pool; none while the pool or its config does not exist.
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

/// Fetches the primary pool of a node; none while it has none.
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
