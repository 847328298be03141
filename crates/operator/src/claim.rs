//! The claim of an installation to a cluster: two operators in different namespaces hold different
//! Leases, and must not both lead.
//!
//! The ClusterOperator is the claim, because the cluster has one. It is created with the namespace of
//! its installation; without the annotation, it belongs to the standard namespace. An operator of
//! another namespace waits until it is deleted, which `mco uninstall` does.
//!
//! An operator that had the claim keeps it while no ClusterOperator can be created: its kind may be the
//! very object that has to be repaired. An operator that never had it changes nothing but the kinds.

use std::{sync::atomic::Ordering, time::Duration};

use futures::StreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Client, ResourceExt as _};
use mco_api::{ClusterOperator, label};
use mco_cluster::{Api, CallError, Health, Shutdown, client::namespace, report::chain, watch};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::{Context, cluster_operator};

/// Pause after a failure to read the ClusterOperator.
const RETRY: Duration = Duration::from_secs(2);

/// Time after which the ClusterOperator is read again although no change of it was heard of.
const RECHECK: Duration = Duration::from_mins(1);

/// Returns the reason for which an operator in the namespace `own` must not lead while the ClusterOperator
/// exists.
pub(crate) fn refusal(found: &ObjectMeta, own: &str) -> Option<String> {
    let holder = label::installed_in(found.annotations.as_ref());
    (holder != own).then(|| {
        format!(
            "the installation in namespace {holder} has the ClusterOperator {}; the operator in \
             namespace {own} changes nothing while it exists: remove one installation with `mco \
             uninstall`",
            label::CLUSTER_OPERATOR
        )
    })
}

/// Marks a new ClusterOperator as that of an installation in the namespace `own`.
pub(crate) fn mark(new: &mut ClusterOperator, own: &str) {
    if own != label::NAMESPACE {
        let key = label::INSTALLATION_NAMESPACE.to_owned();
        new.annotations_mut().insert(key, own.to_owned());
    }
}

/// Creates the ClusterOperator if it does not exist. Returns true if this installation has the cluster.
pub(crate) async fn acquire(context: &Context) -> bool {
    let found = match cluster_operator::ensure(context).await {
        Ok(found) => Some(found.metadata.clone()),
        Err(error) => {
            warn!(error = chain(&error), "Failed to create ClusterOperator");
            read(context, &error).await
        }
    };
    let Some(found) = found else { return context.has_claim.load(Ordering::Acquire) };
    let refusal = refusal(&found, namespace(&context.client));
    let is_held = refusal.is_none();
    context.has_claim.store(is_held, Ordering::Release);
    context.config.health.set_idle(refusal.clone());
    if let Some(reason) = refusal {
        warn!(reason, "Left the cluster to another installation");
    }
    is_held
}

/// Reads the ClusterOperator, after `failure` to create one: another installation may have it.
async fn read(context: &Context, failure: &CallError) -> Option<ObjectMeta> {
    let api = Api::<ClusterOperator>::all(context.client.clone());
    if let Ok(found) = api.get(label::CLUSTER_OPERATOR).await {
        return Some(found.metadata);
    }
    // The kind was deleted, so that no installation has the cluster. An operator that has it repairs all
    // kinds in its reconcile; another one would never get it.
    if failure.is_not_found()
        && !context.has_claim.load(Ordering::Acquire)
        && let Err(error) = context.definitions.repair(&context.client).await
    {
        warn!(error = chain(&error), "Failed to repair the CustomResourceDefinitions");
    }
    None
}

/// Waits until no other installation has the ClusterOperator. Returns false if shutdown is requested
/// before.
pub(crate) async fn wait(client: &Client, health: &Health, shutdown: &Shutdown) -> bool {
    let free = async {
        let api = Api::<ClusterOperator>::all(client.clone());
        let mut said = String::new();
        loop {
            let found = match api.get(label::CLUSTER_OPERATOR).await.map_err(CallError::from) {
                Ok(found) => Some(found),
                // The kind may not exist yet, either: the operator that leads installs it.
                Err(error) if error.is_not_found() => None,
                Err(error) => {
                    warn!(error = chain(&error), "Failed to read the ClusterOperator");
                    sleep(RETRY).await;
                    continue;
                }
            };
            let refusal = found.as_ref().and_then(|it| refusal(&it.metadata, namespace(client)));
            let Some(reason) = refusal else {
                health.set_idle(None);
                return;
            };
            if said != reason {
                info!(reason, "Waiting, and changing nothing");
                health.set_idle(Some(reason.clone()));
                said = reason;
            }
            // Ends without a change too, in case that the watch is silent.
            drop(timeout(RECHECK, replaced(&api, found.and_then(|it| it.metadata.uid))).await);
        }
    };
    tokio::select! {
        () = shutdown.requested() => false,
        () = free => true,
    }
}

/// Waits until the ClusterOperator of that UID is gone.
async fn replaced(api: &Api<ClusterOperator>, uid: Option<String>) {
    let mut states = watch::object(api, label::CLUSTER_OPERATOR, watch::Config::default());
    while let Some(state) = states.next().await {
        let Ok(state) = state else { continue };
        if state.object.and_then(|found| found.metadata.uid) != uid {
            return;
        }
    }
}
