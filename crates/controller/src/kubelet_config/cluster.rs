//! The MachineConfigs of the settings of nodes and of features, for every pool.

use std::sync::PoisonError;

use kube::ResourceExt as _;
use mco_api::{MachineConfigPool, MachineConfigSpec, label};
use mco_cluster::{Note, queue::Reconciled, report::chain};
use mco_core::{
    cluster_settings::ClusterSettings,
    generated,
    kubelet::{self, LatencyProfile, Origin},
};
use tracing::{info, warn};

use super::{Controller, Pass};
use crate::{error::ActError, generated as write, metrics::Action};

impl Controller {
    /// Brings the MachineConfigs of the cluster's settings up to date. A setting that is refused
    /// leaves them as they are.
    pub(super) async fn reconcile_cluster(&self, pass: &Pass) -> Reconciled {
        let mut outcome = Reconciled::Done;
        let now = self.context.clock.now();
        for pool in pass.live_pools() {
            let context = &self.context;
            let base = Pass::base(context, pool);
            let inputs = pass.inputs(pool, base.as_deref());
            let node = kubelet::node_config(&inputs);
            let node = node.map_err(|error| chain(&error));
            let features = kubelet::features(&inputs);
            let features = features.map_err(|error| chain(&error));
            let specs = [
                (Origin::NodeConfig, Action::NodeConfig, "NodeConfigFailed", node),
                (Origin::Features, Action::Features, "FeatureGateFailed", features),
            ];
            for (origin, action, reason, spec) in specs {
                let name = pool.name_any();
                let refused = spec.as_ref().err().map(String::as_str).unwrap_or_default();
                self.events.publish(pool, reason, refused).await;
                let applied = match spec {
                    Ok(spec) => self.apply(origin, pool, spec).await,
                    Err(cause) => {
                        warn!(pool = name, cause, "Refused the settings of nodes");
                        continue;
                    }
                };
                match applied {
                    Ok(true) => context.metrics.record_action(action, label::CLUSTER, now),
                    Ok(false) => {}
                    Err(error) => {
                        let error = chain(&error);
                        warn!(pool = name, error, "Failed to apply the settings of nodes");
                        outcome = Reconciled::Retry;
                    }
                }
            }
        }
        outcome
    }

    /// Applies the MachineConfig of a pool, or deletes it if there is nothing to set. Returns true
    /// if there is something to set.
    async fn apply(
        &self,
        origin: Origin,
        pool: &MachineConfigPool,
        spec: Option<MachineConfigSpec>,
    ) -> Result<bool, ActError> {
        let (context, role) = (&self.context, pool.name_any());
        let name = origin.name(&role);
        if let Some(spec) = spec {
            let wanted = generated::machine_config(&name, &role, spec, &context.build, None);
            write::apply(context, &wanted).await?;
            self.delete_legacy_of(origin, pool).await?;
            return Ok(true);
        }
        let known = context.caches.configs.get(&name);
        if known.is_some_and(|known| kubelet::is_own(&known, &context.build)) {
            write::delete(context, &name).await?;
        }
        Ok(false)
    }

    /// Returns the latency profile that applies. A change that skips the profile in between is not
    /// carried out: the one that applies already stays.
    pub(super) async fn latency(&self, settings: &ClusterSettings) -> LatencyProfile {
        // An unknown profile is reported where the settings of nodes are generated from it.
        let wanted = match kubelet::latency_profile(settings.node.as_ref()) {
            Ok(wanted) => wanted,
            Err(error) => {
                warn!(error = chain(&error), "Refused the latency profile of workers");
                LatencyProfile::Unset
            }
        };
        let applied = self.context.caches.configs.get(&Origin::NodeConfig.name("worker"));
        let applied = kubelet::applied_latency(applied.as_deref());
        let refused = applied.filter(|applied| !kubelet::is_transition_allowed(*applied, wanted));
        let change = refused.map(|applied| (applied, wanted));
        let is_new = {
            let mut known = self.prohibited.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *known, change) != change
        };
        let Some((applied, wanted)) = change else { return wanted };
        if let Some(node) = settings.node.as_ref().filter(|_| is_new) {
            // Compat: the text of the reference.
            let text = format!(
                "Skipping the Update Node event, name: {}, transition not allowed from old \
                 WorkerLatencyProfile: {:?} to new WorkerLatencyProfile: {:?}",
                node.name_any(),
                applied.as_str(),
                wanted.as_str()
            );
            info!(applied = applied.as_str(), wanted = wanted.as_str(), "Kept latency profile");
            self.reporter.publish(&Note::normal(node, "ActionProhibited", text)).await;
        }
        applied
    }
}
