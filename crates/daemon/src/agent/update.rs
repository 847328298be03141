//! Moves a node from one config to another.

use std::fmt::Display;

use mco_api::{
    RenderedName,
    annotation::{self, DaemonState, DrainRequest, DrainVerb, PostConfigAction, Topology},
};
use mco_apply::{
    ParsedConfig,
    execute::{self, ExecuteError, Outcome as Executed},
    ledger::{self, Ledger},
};
use mco_cluster::report::chain;
use mco_core::{
    lifecycle::{Action, NodeAnnotations, Outcome, Planned, Progress, Stage, Update},
    plan::{self, Circumstances, Force, NodePlan, Step},
    status::update_conditions::{DrainEvent, DrainRequired, UpdateEvent},
};
use mco_host::System;
use tracing::{info, warn};

use super::{
    Agent, SyncError,
    report::{drains, flags, parts},
};
use crate::{
    cluster::{Cluster, EventType, Rules},
    state::SharedState,
};

/// An update that is being prepared.
#[derive(Debug)]
pub(super) struct Preparation {
    pub(super) update: Update,
    /// Config of the node.
    pub(super) from: ParsedConfig,
    /// Desired config.
    pub(super) to: ParsedConfig,
    /// The steps of the update.
    pub(super) plan: Option<NodePlan>,
    /// True if this daemon requested the drain.
    pub(super) has_requested_drain: bool,
}

impl<S: System + 'static, C: Cluster> Agent<S, C> {
    /// Fetches both configs of an update and prepares its confirmation.
    pub(super) async fn begin(&mut self, update: Update) -> Result<Outcome, SyncError> {
        self.report_event(UpdateEvent::NeedsUpdate);
        self.publish_boot_resync(&update).await;
        self.cluster.check_pool().await?;
        let target = self.cluster.machine_config(update.to.as_str()).await?;
        let from = self.current_config(&update.from).await?;
        self.require_confirmation(&update).await?;
        let to = ParsedConfig::read(target)?;
        let (plan, has_requested_drain) = (None, false);
        let prepared = update.clone();
        self.preparation = Some(Preparation { update, from, to, plan, has_requested_drain });
        Ok(Outcome::Begun(prepared))
    }

    /// Compat: publishes `BootResync` when a daemon starts on a node that has an update to do
    /// (pkg/daemon/daemon.go).
    async fn publish_boot_resync(&mut self, update: &Update) {
        if self.state.is_first_attempt() {
            let (node, Update { from, to, .. }) = (&self.node, update);
            let text = format!("Booting node {node}, currentConfig {from}, desiredConfig {to}");
            self.cluster.publish_event(EventType::Normal, "BootResync", &text).await;
        }
    }

    /// Plans an update.
    pub(super) async fn plan(&mut self, update: &Update) -> Result<Outcome, SyncError> {
        if update.force {
            info!("Skipping preflight config drift check; {} present", execute::FORCE_FILE);
        }
        let node = NodeAnnotations::read(&self.node_state.annotations)?;
        // Compat: a node that failed stays failed until it is done (pkg/daemon/update.go).
        if !node.is_failing() {
            let state = Some(DaemonState::Working.to_string());
            self.annotate([(annotation::STATE.name().to_owned(), state)].into()).await?;
            self.metrics.state(&DaemonState::Working, "", &self.now());
        }
        let plan = self.steps(update.force).await?;
        let required = drains(&plan);
        let is_required = required == DrainRequired::Yes;
        info!("Drain calculated for node disruption: {is_required} for config {}", update.to);
        self.report_event(UpdateEvent::Prepared(required));
        if !is_required {
            info!("Changes do not require drain, skipping.");
            self.report_event(UpdateEvent::Drain(DrainEvent::NotNeeded));
        } else if node.topology == Some(Topology::SingleReplica) {
            self.report_event(UpdateEvent::Drain(DrainEvent::NotNeeded));
            let text = "Drain not required, skipping";
            self.cluster.publish_event(EventType::Normal, "Drain", text).await;
        }
        let drain_limit = if is_required { self.drain_limit().await } else { None };
        if let Some(preparation) = &mut self.preparation {
            preparation.plan = Some(plan);
        }
        Ok(Outcome::Planned(Planned { drain: is_required, drain_limit }))
    }

    /// Returns the drain timeout of the node's pool, if it sets one.
    async fn drain_limit(&self) -> Option<std::time::Duration> {
        self.cluster.drain_timeout().await.unwrap_or_else(|error| {
            warn!(error = chain(&error), "Failed to fetch the drain timeout of the pool");
            None
        })
    }

    /// Returns the steps of the update that is being prepared.
    async fn steps(&mut self, force: bool) -> Result<NodePlan, SyncError> {
        let Rules { policies, overrides } = self.cluster.rules(self.limits.policies).await?;
        let facts = self.on_host(|host| host.system.facts()).await??;
        let circumstances = Circumstances {
            force: if force { Force::Yes } else { Force::No },
            kernel_fips: facts.kernel_fips,
            overrides,
            ..Circumstances::default()
        };
        let Some(Preparation { from, to, .. }) = &self.preparation else {
            return Err(SyncError::Unprepared);
        };
        let (from, to) = (&from.machine, &to.machine);
        info!("Checking Reconcilable for config {} to {}", from.name, to.name);
        let plan = plan::node(from, to, &policies, &circumstances)
            .inspect_err(|refusal| self.refuse(&from.name, &to.name, refusal))?;
        let (old, new, steps) = (from.clone(), to.clone(), plan.clone());
        self.on_host(move |host| host.check_paths(&old, &new, &steps))
            .await?
            .inspect_err(|error| self.refuse(&from.name, &to.name, error))
            .map_err(SyncError::Obstructed)?;
        if plan.diff.users.is_some() {
            info!("SSH Keys reconcilable");
        }
        info!("Changes detected from {} to {}: {}", from.name, to.name, flags(&plan));
        info!("Starting update from {} to {}: {}", from.name, to.name, flags(&plan));
        for verdict in &plan.decisions {
            info!("Calculated node disruption action: {verdict}");
        }
        Ok(plan)
    }

    fn refuse(&self, from: &str, to: &str, refusal: &dyn Display) {
        let (from, to) = (from.to_owned(), to.to_owned());
        self.report_event(UpdateEvent::NotPrepared { from, to, why: refusal.to_string() });
    }

    /// Records the prepared update on the disk and executes it.
    pub(super) async fn apply(&mut self) -> Result<Outcome, SyncError> {
        let Some(Preparation { update, from, to, plan: Some(plan), has_requested_drain }) =
            self.preparation.take()
        else {
            return Err(SyncError::Unprepared);
        };
        let node = NodeAnnotations::read(&self.node_state.annotations)?;
        let is_drained =
            drains(&plan) == DrainRequired::Yes && node.topology != Some(Topology::SingleReplica);
        if is_drained {
            self.report_drained(&request_of(&update.to), has_requested_drain);
        }
        self.stop_drift_watch().await;
        self.report_event(UpdateEvent::Applying(parts(&plan)));
        self.publish_os_update_started(&plan).await;
        self.current = None;
        let (glass, planned, target) = (self.glass.clone(), plan.clone(), to.clone());
        let outcome = self
            .change(move |host| {
                let mut observer = |step: &Step| record_step(&glass, step);
                execute::begin(host, &from, &target, planned, &mut observer)
            })
            .await?;
        let outcome = self.finish_update(outcome, &plan).await?;
        self.current = Some(to);
        Ok(outcome)
    }

    /// Resumes an update that is recorded on the disk.
    pub(super) async fn resume(&mut self, action: &Action) -> Result<Outcome, SyncError> {
        info!(?action, "Resuming update");
        self.stop_drift_watch().await;
        self.current = None;
        let opened = self.on_host(|host| ledger::open(&host.root)).await??;
        let Some((update, progress)) = opened else { return Ok(Outcome::Done) };
        let plan = update.plan.clone();
        let glass = self.glass.clone();
        if progress.stage == Stage::Applying && progress.fault.is_some() {
            let is_undone = *action == Action::Undo;
            if is_undone || self.has_other_actions(&plan).await? {
                return self.withdraw(update, progress).await;
            }
        }
        if *action == Action::Undo {
            let undone =
                self.change(move |host| execute::roll_back_failed(host, &update, &progress));
            return Ok(undone.await?.map(|_| Outcome::Applied)?);
        }
        if *action == Action::ApplyAgain {
            warn!(
                config = update.to.metadata.name,
                "The machine booted its previous system; applying the config again"
            );
        }
        self.report_event(UpdateEvent::Applying(parts(&plan)));
        let is_again = *action == Action::ApplyAgain;
        let outcome = self
            .change(move |host| {
                let mut observer = |step: &Step| record_step(&glass, step);
                if is_again {
                    execute::apply_again(host, &update, &mut observer)
                } else {
                    execute::proceed(host, &update, &progress, &mut observer)
                }
            })
            .await?;
        self.finish_update(outcome, &plan).await
    }

    /// Returns true if the policies of the cluster no longer require the actions of a plan.
    async fn has_other_actions(&self, plan: &NodePlan) -> Result<bool, SyncError> {
        let rules = self.cluster.rules(self.limits.policies).await?;
        Ok(!plan.conforms_to(&rules.policies))
    }

    /// Rolls back an update whose service action fails, and which is planned anew or not desired
    /// any more.
    async fn withdraw(&mut self, update: Ledger, done: Progress) -> Result<Outcome, SyncError> {
        let config = update.to.metadata.name.clone();
        self.change(move |host| execute::withdraw(host, &update, &done)).await??;
        info!(config, "Rolled back the config, because another config or action is required");
        Ok(Outcome::Applied)
    }

    async fn finish_update(
        &mut self,
        outcome: Result<Executed, ExecuteError>,
        plan: &NodePlan,
    ) -> Result<Outcome, SyncError> {
        outcome.inspect_err(|_| {
            let last = self.glass.get().last_step.unwrap_or_default();
            if plan.steps.iter().any(|step| is_pivot(step) && step.to_string() == last) {
                self.metrics.pivot(true);
            }
        })?;
        self.report_applied(plan).await;
        Ok(Outcome::Applied)
    }

    /// Reports the reboot and starts it.
    pub(super) async fn reboot_into(&mut self, config: String) -> Result<Outcome, SyncError> {
        info!("Performing post config change action: Reboot for config {config}");
        self.report_event(UpdateEvent::Rebooting);
        let text = format!("Node will reboot into config {config}");
        self.cluster.publish_event(EventType::Normal, "Reboot", &text).await;
        let key = annotation::POST_CONFIG_ACTION.name().to_owned();
        let value = Some(PostConfigAction::Rebooting.to_string());
        if let Err(error) = self.annotate([(key, value)].into()).await {
            warn!(error = chain(&error), "Could not update annotation");
        }
        self.install_standby().await?;
        // Updates that are not written in time are written after the reboot.
        self.cluster.flush().await;
        self.unprotect().await;
        let target = config.clone();
        let rebooted = self.on_host(move |host| execute::reboot(host, &target)).await?;
        rebooted.inspect_err(|_| self.metrics.reboot_failed())?;
        Ok(Outcome::RebootStarted(config))
    }
}

fn request_of(config: &RenderedName) -> DrainRequest {
    DrainRequest { verb: DrainVerb::Drain, config: config.to_string() }
}

fn is_pivot(step: &Step) -> bool {
    matches!(step, Step::StageOs(_) | Step::StageKernel(_) | Step::StageExtensions { .. })
}

fn record_step(glass: &SharedState, step: &Step) {
    glass.update(|state| state.last_step = Some(step.to_string()));
}
