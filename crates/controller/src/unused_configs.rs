//! Deletes rendered configs that are no longer in use.
//!
//! observe (caches, `MachineOSBuilds`) -> `mco_core::prune` (pure) -> delete. Each pool keeps its
//! newest configs so that it can roll back; the annotation `rendered-history` of the pool sets
//! their number, or `all`. If a config is deleted at the moment it is needed again, the render
//! controller creates it anew with the same name and content.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::{
    ResourceExt as _,
    api::{DeleteParams, ListParams, Preconditions},
};
use mco_api::{MachineConfig, MachineConfigPool, MachineOSBuild, annotation};
use mco_cluster::{
    Api, CallError, Queue, Shutdown, health::Work, queue::Reconciled, report::chain,
};
use mco_core::{
    prune::{self, HISTORY, PruneDecision, References, RenderedView},
    rollout::NodeView,
    takeover::Tenure,
};
use tracing::{info, warn};

use crate::{Context, caches::owner, error::ActError};

/// Runs the pruning of rendered configs until shutdown is requested.
pub(crate) async fn run(context: Arc<Context>, shutdown: Shutdown) {
    if !context.caches.ready(&shutdown).await {
        return;
    }
    let queue: Arc<Queue<()>> = Arc::new(Queue::new());
    let delay = context.delays.prune;
    let configs = queue.clone();
    context.caches.configs.on_change(move |change| {
        if change.before.is_none() && change.after.is_some_and(|config| owner(config).is_some()) {
            configs.add_after((), delay);
        }
    });
    let pools = queue.clone();
    context.caches.pools.on_change(move |change| {
        let histories = |pool: Option<&Arc<MachineConfigPool>>| pool.map(|pool| history(pool));
        if histories(change.before) != histories(change.after) {
            pools.add_after((), delay);
        }
    });
    let reconcile_all = |()| {
        let context = context.clone();
        async move { reconcile(&context).await }
    };
    context.health.queue("unused-configs", &queue, Work::Short);
    queue.run(1, &shutdown, reconcile_all).await;
}

/// Returns the number of unused configs that a pool keeps; `None` for all.
fn history(pool: &MachineConfigPool) -> Option<usize> {
    match pool.annotations().get(annotation::RENDERED_HISTORY.name()).map(String::as_str) {
        None | Some("") => Some(HISTORY),
        Some("all") => None,
        Some(text) => text.parse().ok().or_else(|| {
            let pool = pool.name_any();
            warn!(
                pool,
                text, "rendered-history is neither a number nor `all`; keeping all configs"
            );
            None
        }),
    }
}

async fn reconcile(context: &Context) -> Reconciled {
    match fetch_unused(context).await {
        Ok(unused) => {
            let mut next = Reconciled::Done;
            for config in unused {
                if let Err(error) = delete_config(context, &config).await {
                    warn!(error = chain(&error), "Failed to delete unused config");
                    next = Reconciled::Retry;
                }
            }
            next
        }
        Err(error) => {
            warn!(
                error = chain(&error),
                "Cannot determine which configs are in use; skipping pruning"
            );
            Reconciled::Retry
        }
    }
}

/// Returns the rendered configs that are not in use.
async fn fetch_unused(context: &Context) -> Result<Vec<Arc<MachineConfig>>, ActError> {
    let configs = context.caches.configs.list();
    let views: Vec<RenderedView> = configs.iter().filter_map(|one| RenderedView::of(one)).collect();
    let pools = context.caches.pools.list();
    let kept: usize = pools.iter().filter_map(|pool| history(pool)).min().unwrap_or(usize::MAX);
    if views.len() <= kept {
        return Ok(Vec::new());
    }
    let builds = fetch_builds(context).await?;
    Ok(select_unused(context, &views, &pools, &builds))
}

/// Selects the rendered configs that no pool, node, MachineConfigNode or build refers to and that
/// are not part of their pool's history.
fn select_unused(
    context: &Context,
    views: &[RenderedView],
    pools: &[Arc<MachineConfigPool>],
    builds: &[MachineOSBuild],
) -> Vec<Arc<MachineConfig>> {
    let nodes = context.caches.nodes.list();
    let nodes: Vec<NodeView> = nodes.iter().map(|node: &Arc<Node>| NodeView::of(node)).collect();
    let machine_config_nodes = context.caches.machine_config_nodes.list();
    let by_pool: Vec<&MachineConfigPool> = pools.iter().map(|pool| &**pool).collect();
    let references = References::of(&nodes, &by_pool, &builds.iter().collect::<Vec<_>>())
        .with_machine_config_nodes(machine_config_nodes.iter().map(|node| &**node));
    let mut unused = Vec::new();
    for pool in pools {
        let Some(history) = history(pool) else { continue };
        let name = pool.name_any();
        let of_pool: Vec<RenderedView> =
            views.iter().filter(|view| view.pool == name).cloned().collect();
        let verdicts = prune::rendered(&of_pool, &references, history);
        let gone = verdicts.into_iter().filter(|(_, verdict)| *verdict == PruneDecision::Delete);
        let gone = gone.filter_map(|(config, _)| context.caches.configs.get(&config));
        unused.extend(gone.filter(|config| may_prune(context.tenure, config)));
    }
    unused
}

/// Returns true unless another operator rendered the config.
fn may_prune(tenure: Tenure, config: &MachineConfig) -> bool {
    match tenure {
        Tenure::Owner => true,
        Tenure::TakenOver => annotation::RENDERED_BY_MCO.is_present(config.annotations()),
    }
}

/// Lists all `MachineOSBuilds`; none if the cluster does not have the kind.
async fn fetch_builds(context: &Context) -> Result<Vec<MachineOSBuild>, ActError> {
    let api = Api::<MachineOSBuild>::all(context.client.clone());
    match api.list(&ListParams::default()).await.map_err(CallError::from) {
        Ok(builds) => Ok(builds.items),
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(source) => Err(ActError::ListBuilds { source }),
    }
}

async fn delete_config(context: &Context, config: &MachineConfig) -> Result<(), ActError> {
    let name = config.name_any();
    // Only if the object has not changed since the decision.
    let preconditions =
        Preconditions { uid: config.uid(), resource_version: config.resource_version() };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    let api = Api::<MachineConfig>::all(context.client.clone());
    match api.delete(&name, &params).await.map_err(CallError::from) {
        Ok(()) => info!(config = name, "Deleted unused rendered config"),
        Err(error) if error.is_not_found() => {}
        Err(source) => return Err(ActError::DeleteConfig { name, source }),
    }
    Ok(())
}
