//! The steps of a reconcile, and the order in which their failures are reported.

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

/// Step that reads the facts of the cluster.
const RENDER_CONFIG: &str = "RenderConfig";

/// Built-in pools of every cluster, and if upgrades wait for them.
const POOLS: [(&str, Required); 2] = [("master", Required::Yes), ("worker", Required::No)];

/// Built-in pool of a control plane with an arbiter.
const ARBITER: (&str, Required) = ("arbiter", Required::Yes);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Required {
    Yes,
    No,
}

/// Runs all steps, each as soon as those that it needs have ended. A failure of one does not keep the
/// others from running, and neither does a wait. Returns the failures, in the order of the steps below,
/// whichever step failed first.
///
/// 1. The kinds.
/// 2. The facts of the cluster, and then the ControllerConfig, the policies of the MachineConfiguration and
///    the pools: all need the kinds.
/// 3. The TLS profile, and then the objects of the processes, whose flags have it. The server's
///    rights need the namespace of the join tokens.
pub(crate) async fn apply_all(context: &Context) -> Vec<StepError> {
    machine_configuration::apply_log_level(context);
    let of_kinds = async {
        let definitions = context.definitions.repair(&context.client).await;
        let definitions = failed("CustomResourceDefinitions", definitions);
        let (of_config, configuration, pools) = tokio::join!(
            Box::pin(apply_controller_config(context)),
            Box::pin(machine_configuration::apply(context)),
            apply_pools(context),
        );
        let configuration = failed("MachineConfiguration", configuration);
        (definitions, of_config, configuration, failed("MachineConfigPools", pools))
    };
    let of_processes = async {
        let tls = failed(RENDER_CONFIG, Box::pin(apply_tls(context)).await);
        let deployed = tokio::join!(
            deploy(context, Stage::NetworkPolicies),
            deploy(context, Stage::MachineConfigController),
            deploy(context, Stage::MachineConfigDaemon),
            deploy_server(context),
        );
        (tls, deployed)
    };
    let ((definitions, (facts, config), configuration, pools), (tls, deployed)) =
        tokio::join!(of_kinds, of_processes);
    let (policies, controller, daemon, (joining, server)) = deployed;
    let in_order = [
        definitions,
        facts,
        tls,
        configuration,
        pools,
        policies,
        controller,
        config,
        daemon,
        joining,
        server,
    ];
    in_order.into_iter().flatten().collect()
}

/// Returns the failure of a step.
fn failed<E>(step: &'static str, outcome: Result<(), E>) -> Option<StepError>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    outcome.err().map(|source| StepError { step, source: source.into() })
}

/// Applies the ControllerConfig that the facts of the cluster give. Returns the failure to read the facts,
/// and that of the ControllerConfig.
async fn apply_controller_config(context: &Context) -> (Option<StepError>, Option<StepError>) {
    let rendered = match context.tenure {
        Tenure::Owner => Box::pin(facts::render(context)).await.map(Some),
        // The ControllerConfig is the other operator's, and so are the objects that it is made of.
        Tenure::TakenOver => Ok(None),
    };
    let (wanted, facts) = match rendered {
        Ok(wanted) => (wanted, Ok(())),
        Err(error) => (None, Err(error)),
    };
    let applied = controller_config::apply(context, wanted.as_deref()).await;
    let stage = Stage::MachineConfigController.as_str();
    (failed(RENDER_CONFIG, facts), failed(stage, applied))
}

/// Applies the TLS profile of the cluster to the processes that the operator deploys.
async fn apply_tls(context: &Context) -> Result<(), RenderConfigError> {
    let Some(operands) = &context.operands else { return Ok(()) };
    operands.set_tls(facts::tls::settings(context).await?);
    Ok(())
}

/// Applies the objects of a stage, if the operator deploys processes.
async fn deploy(context: &Context, stage: Stage) -> Option<StepError> {
    let operands = context.operands.as_ref()?;
    let applied = operands.apply(stage, |condition| context.platform.holds(condition)).await;
    failed(stage.as_str(), applied)
}

/// Creates the objects that new machines join with, and applies those of the config server. Returns the
/// failures of both.
async fn deploy_server(context: &Context) -> (Option<StepError>, Option<StepError>) {
    let stage = Stage::MachineConfigServer;
    let joining = context.join_objects.apply(&context.client).await;
    (failed(stage.as_str(), joining), deploy(context, stage).await)
}

/// Applies the built-in pools. A failure of one does not keep the others from being applied; the first one
/// is returned.
async fn apply_pools(context: &Context) -> Result<(), CallError> {
    let api = Api::<MachineConfigPool>::all(context.client.clone());
    let has_arbiter = context.platform.topology() == Some(Topology::HighlyAvailableArbiter);
    let mut failure = Ok(());
    for (name, required) in POOLS.into_iter().chain(has_arbiter.then_some(ARBITER)) {
        failure = failure.and(apply_pool(context, &api, name, required).await);
    }
    failure
}

async fn apply_pool(
    context: &Context,
    api: &Api<MachineConfigPool>,
    name: &str,
    required: Required,
) -> Result<(), CallError> {
    let wanted = pool(name, required);
    let Some(found) = context.pools.get(name) else {
        context.pools.learn_new(apply::ensure(api, name, &wanted).await?);
        info!(pool = name, "Created pool");
        return Ok(());
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
        context.pools.learn(apply::merge(api, name, patch, Precondition::Any).await?);
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
