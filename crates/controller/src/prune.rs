//! Removes rendered configs that nobody needs any longer.
//!
//! observe (caches, builds) -> `mco_core::prune` (pure) -> delete.
//! Each pool keeps its newest ones so that it can go back; how many, or all, says the annotation
//! `rendered-history` of the pool. Should one go that is wanted again at the same moment, rendering
//! makes it anew, with the same name and content.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Preconditions},
};
use mco_api::{MachineConfig, MachineConfigPool, MachineOSBuild, annotation};
use mco_cluster::{CallError, Queue, Shutdown, queue::Next, report::chain};
use mco_core::{
    prune::{self, HISTORY, References, RenderedView, Verdict},
    rollout::NodeView,
};
use tracing::{info, warn};

use crate::{Context, caches::owner, error::ActError};

pub(crate) async fn run(context: Arc<Context>, shutdown: Shutdown) {
    if !context.caches.ready(&shutdown).await {
        return;
    }
    let queue: Arc<Queue<()>> = Arc::new(Queue::new());
    let delay = context.settle.prune;
    let configs = queue.clone();
    context.caches.configs.on_change(move |change| {
        if change.before.is_none() && change.after.is_some_and(|config| owner(config).is_some()) {
            configs.add_after((), delay);
        }
    });
    let pools = queue.clone();
    context.caches.pools.on_change(move |change| {
        let marks = |pool: Option<&Arc<MachineConfigPool>>| pool.map(|pool| history(pool));
        if marks(change.before) != marks(change.after) {
            pools.add_after((), delay);
        }
    });
    let look = |()| {
        let context = context.clone();
        async move { sync(&context).await }
    };
    queue.run(1, &shutdown, look).await;
}

/// How many configs a pool keeps that nobody uses; `None` for all.
fn history(pool: &MachineConfigPool) -> Option<usize> {
    match pool.annotations().get(annotation::RENDERED_HISTORY.name()).map(String::as_str) {
        None | Some("") => Some(HISTORY),
        Some("all") => None,
        Some(text) => text.parse().ok().or_else(|| {
            let pool = pool.name_any();
            warn!(pool, text, "rendered-history is neither a number nor `all`, so all are kept");
            None
        }),
    }
}

async fn sync(context: &Context) -> Next {
    match decide(context).await {
        Ok(gone) => {
            let mut next = Next::Wait;
            for config in gone {
                if let Err(error) = remove(context, &config).await {
                    warn!(error = chain(&error), "A config that nobody needs stays for now");
                    next = Next::Retry;
                }
            }
            next
        }
        Err(error) => {
            warn!(error = chain(&error), "Nobody knows which configs are needed, so all stay");
            Next::Retry
        }
    }
}

/// The configs that nobody needs.
async fn decide(context: &Context) -> Result<Vec<Arc<MachineConfig>>, ActError> {
    let configs = context.caches.configs.list();
    let views: Vec<RenderedView> = configs.iter().filter_map(|one| RenderedView::of(one)).collect();
    let pools = context.caches.pools.list();
    let kept: usize = pools.iter().filter_map(|pool| history(pool)).min().unwrap_or(usize::MAX);
    if views.len() <= kept {
        return Ok(Vec::new());
    }
    let builds = builds(context).await?;
    let nodes = context.caches.nodes.list();
    let nodes: Vec<NodeView> = nodes.iter().map(|node: &Arc<Node>| NodeView::of(node)).collect();
    let reports = context.caches.reports.list();
    let by_pool: Vec<&MachineConfigPool> = pools.iter().map(|pool| &**pool).collect();
    let references = References::of(&nodes, &by_pool, &builds.iter().collect::<Vec<_>>())
        .with_reports(reports.iter().map(|report| &**report));
    let mut gone = Vec::new();
    for pool in &pools {
        let Some(history) = history(pool) else { continue };
        let name = pool.name_any();
        let of_pool: Vec<RenderedView> =
            views.iter().filter(|view| view.pool == name).cloned().collect();
        let verdicts = prune::rendered(&of_pool, &references, history);
        let unused = verdicts.into_iter().filter(|(_, verdict)| *verdict == Verdict::Go);
        gone.extend(unused.filter_map(|(config, _)| context.caches.configs.get(&config)));
    }
    Ok(gone)
}

/// All builds; none where the cluster does not know of builds.
async fn builds(context: &Context) -> Result<Vec<MachineOSBuild>, ActError> {
    let api = Api::<MachineOSBuild>::all(context.client.clone());
    match api.list(&ListParams::default()).await.map_err(CallError::from) {
        Ok(builds) => Ok(builds.items),
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(source) => Err(ActError::ListBuilds { source }),
    }
}

async fn remove(context: &Context, config: &MachineConfig) -> Result<(), ActError> {
    let name = config.name_any();
    // Only if it is still the very object that was decided on.
    let preconditions =
        Preconditions { uid: config.uid(), resource_version: config.resource_version() };
    let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    let api = Api::<MachineConfig>::all(context.client.clone());
    match api.delete(&name, &params).await.map_err(CallError::from) {
        Ok(_) => info!(config = name, "Rendered config that nobody uses is removed"),
        Err(error) if error.is_not_found() => {}
        Err(source) => return Err(ActError::RemoveConfig { name, source }),
    }
    Ok(())
}
