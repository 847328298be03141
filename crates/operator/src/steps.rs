//! The steps of a reconcile, in their order.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt as _;
use mco_api::{MachineConfigPool, MachineConfigPoolSpec, annotation::Topology, label};
use mco_cluster::{
    Api, CallError,
    apply::{self, Changes, Precondition},
};
use mco_core::takeover::Tenure;
use serde_json::json;
use tracing::info;

use crate::{
    Context, controller_config,
    facts::{self, RenderConfigError},
    machine_configuration,
    manifests::Stage,
};

/// A step that failed.
#[derive(Debug, thiserror::Error)]
#[error("{step} failed")]
pub(crate) struct StepError {
    /// Name of the step in the reference.
    pub(crate) step: &'static str,
    /// Cause of the failure.
    pub(crate) source: Box<dyn std::error::Error + Send + Sync>,
}

impl StepError {
    fn new(
        step: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { step, source: source.into() }
    }
}

/// Built-in pools of every cluster, and if upgrades wait for them.
const POOLS: [(&str, Required); 2] = [("master", Required::Yes), ("worker", Required::No)];

/// Built-in pool of a control plane with an arbiter.
const ARBITER: (&str, Required) = ("arbiter", Required::Yes);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Required {
    Yes,
    No,
}

/// Runs all steps. Those that deploy processes do not depend on each other: a failure of one is reported
/// and does not keep the others from being repaired.
pub(crate) async fn apply_all(context: &Context) -> Result<(), StepError> {
    let definitions = context.definitions.repair(&context.client).await;
    definitions.map_err(|source| StepError::new("CustomResourceDefinitions", source))?;
    machine_configuration::apply_log_level(context);
    let wanted = match context.tenure {
        Tenure::Owner => Box::pin(facts::render(context)).await.map(Some),
        // The ControllerConfig is the other operator's, and so are the objects that it is made of.
        Tenure::TakenOver => Ok(None),
    };
    let (wanted, mut outcome) = match wanted {
        Ok(wanted) => (wanted, Ok(())),
        Err(source) => (None, Err(StepError::new("RenderConfig", source))),
    };
    let tls = Box::pin(apply_tls(context)).await;
    outcome = outcome.and(tls.map_err(|source| StepError::new("RenderConfig", source)));
    let configuration = machine_configuration::apply(context).await;
    let configuration =
        configuration.map_err(|source| StepError::new("MachineConfiguration", source));
    outcome = outcome.and(configuration);
    let pools = apply_pools(context).await;
    if let Err(source) = pools {
        return outcome.and(Err(StepError::new("MachineConfigPools", source)));
    }
    outcome = outcome.and(deploy(context, Stage::NetworkPolicies).await);
    outcome = outcome.and(deploy(context, Stage::MachineConfigController).await);
    let config = controller_config::apply(context, wanted.as_deref()).await;
    let stage = Stage::MachineConfigController.as_str();
    outcome = outcome.and(config.map_err(|source| StepError::new(stage, source)));
    outcome = outcome.and(deploy(context, Stage::MachineConfigDaemon).await);
    let joining = context.join_objects.apply(&context.client).await;
    let stage = Stage::MachineConfigServer.as_str();
    outcome = outcome.and(joining.map_err(|source| StepError::new(stage, source)));
    outcome.and(deploy(context, Stage::MachineConfigServer).await)
}

/// Applies the TLS profile of the cluster to the processes that the operator deploys.
async fn apply_tls(context: &Context) -> Result<(), RenderConfigError> {
    let Some(operands) = &context.operands else { return Ok(()) };
    operands.set_tls(facts::tls::settings(context).await?);
    Ok(())
}

/// Applies the objects of a stage, if the operator deploys processes.
async fn deploy(context: &Context, stage: Stage) -> Result<(), StepError> {
    let Some(operands) = &context.operands else { return Ok(()) };
    let applied = operands.apply(stage, |condition| context.platform.holds(condition)).await;
    applied.map_err(|source| StepError::new(stage.as_str(), source))
}

async fn apply_pools(context: &Context) -> Result<(), CallError> {
    let api = Api::<MachineConfigPool>::all(context.client.clone());
    let has_arbiter = context.platform.topology() == Some(Topology::HighlyAvailableArbiter);
    for (name, required) in POOLS.into_iter().chain(has_arbiter.then_some(ARBITER)) {
        let wanted = pool(name, required);
        let Some(found) = context.pools.get(name) else {
            context.pools.learn_new(apply::ensure(&api, name, &wanted).await?);
            info!(pool = name, "Created pool");
            continue;
        };
        // Only the labels belong to the operator; the rest belongs to the administrator.
        let labels: Changes = wanted
            .labels()
            .iter()
            .filter(|(key, value)| found.labels().get(*key) != Some(value))
            .map(|(key, value)| (key.clone(), Some(value.clone())))
            .collect();
        if !labels.is_empty() {
            let patch = json!({"metadata": {"labels": labels}});
            context.pools.learn(apply::merge(&api, name, patch, Precondition::Any).await?);
        }
    }
    Ok(())
}

/// Returns the pools that every cluster has.
#[must_use]
pub fn built_in_pools() -> Vec<MachineConfigPool> {
    POOLS.iter().map(|(name, required)| pool(name, *required)).collect()
}

fn pool(name: &str, required: Required) -> MachineConfigPool {
    let selector = |key: String, value: &str| {
        Some(LabelSelector {
            match_labels: Some([(key, value.to_owned())].into()),
            match_expressions: None,
        })
    };
    let mut pool = MachineConfigPool::new(
        name,
        MachineConfigPoolSpec {
            machine_config_selector: selector(label::ROLE.to_owned(), name),
            node_selector: selector(format!("{}{name}", label::NODE_ROLE_PREFIX), ""),
            ..MachineConfigPoolSpec::default()
        },
    );
    let labels = pool.metadata.labels.get_or_insert_default();
    labels.insert(label::BUILT_IN_POOL.to_owned(), String::new());
    labels.insert(format!("{}{name}", label::POOL_PREFIX), String::new());
    if required == Required::Yes {
        labels.insert(label::REQUIRED_FOR_UPGRADE.to_owned(), String::new());
    }
    pool
}
