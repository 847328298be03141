//! Moves a node from one config to another.

use mco_api::{
    MachineConfig, RenderedName,
    annotation::{self, DaemonState, DrainVerb, PostConfigAction, Topology},
};
use mco_cluster::report::chain;
use mco_core::{
    machine::Machine,
    plan::{self, Circumstances, Force, NodePlan, Refusal, Step},
    status::update_conditions::{DrainEvent, DrainRequired, UpdateEvent},
};
use mco_host::System;
use tracing::{info, warn};

use super::{
    AfterSync, Agent, SyncError,
    report::{drains, parts},
};
use crate::{
    cluster::{Cluster, EventType, Rules},
    decide::NodeAnnotations,
    execute::{self, ExecuteError, Outcome},
    ledger::{self, Resume},
    state::SharedState,
};

impl<S: System + 'static, C: Cluster> Agent<S, C> {
    /// Updates the node from one config to another.
    pub(super) async fn update(
        &mut self,
        node: &NodeAnnotations,
        from: &RenderedName,
        to: &RenderedName,
        force: bool,
    ) -> Result<AfterSync, SyncError> {
        self.report_event(UpdateEvent::NeedsUpdate);
        self.publish_boot_resync(from, to).await;
        self.cluster.check_pool().await?;
        let target = self.cluster.machine_config(to.as_str()).await?;
        let source = self.current_config(from).await?;
        self.require_confirmation(to, force).await?;
        if force {
            info!("Skipping preflight config drift check; {} present", execute::FORCE_FILE);
        } else {
            let verified = self.verify(from, &source).await;
            verified.map_err(SyncError::before_update)?;
            info!("Preflight config drift check successful");
        }
        // Compat: a node that failed stays failed until it is done (pkg/daemon/update.go).
        if !node.is_failing() {
            let state = Some(DaemonState::Working.to_string());
            self.annotate([(annotation::STATE.name().to_owned(), state)].into()).await?;
            self.metrics.state(&DaemonState::Working, "", &self.now());
        }
        let plan = self.plan(&source, &target, force).await?;
        let drains = drains(&plan);
        info!(
            "Drain calculated for node disruption: {} for config {to}",
            drains == DrainRequired::Yes
        );
        self.report_event(UpdateEvent::Prepared(drains));
        if drains == DrainRequired::No {
            info!("Changes do not require drain, skipping.");
            self.report_event(UpdateEvent::Drain(DrainEvent::NotNeeded));
        } else if node.topology == Some(Topology::SingleReplica) {
            self.report_event(UpdateEvent::Drain(DrainEvent::NotNeeded));
            self.cluster
                .publish_event(EventType::Normal, "Drain", "Drain not required, skipping")
                .await;
        } else if let Some(next) = self.await_drain(node, DrainVerb::Drain, to).await? {
            return Ok(next);
        }
        self.stop_drift_watch().await;
        // Each config has the full kubelet timeout.
        self.kubelet_down_since = None;
        self.report_event(UpdateEvent::Applying(parts(&plan)));
        self.publish_os_update_started(&plan).await;
        let (glass, planned) = (self.glass.clone(), plan.clone());
        let outcome = self
            .change(move |host| {
                execute::begin(host, &source, &target, planned, &mut |step| {
                    record_step(&glass, step);
                })
            })
            .await?;
        self.finish_update(outcome, &plan, to.as_str()).await
    }

    /// Compat: publishes `BootResync` when a daemon starts on a node that has an update to do
    /// (pkg/daemon/daemon.go).
    async fn publish_boot_resync(&mut self, from: &RenderedName, to: &RenderedName) {
        if !self.has_completed && self.failures == 0 && self.drain_wait.is_none() {
            let node = &self.node;
            let text = format!("Booting node {node}, currentConfig {from}, desiredConfig {to}");
            self.cluster.publish_event(EventType::Normal, "BootResync", &text).await;
        }
    }

    /// Resumes an update that was started earlier.
    pub(super) async fn resume(&mut self, resume: Resume) -> Result<AfterSync, SyncError> {
        info!(?resume, "Resuming update");
        self.stop_drift_watch().await;
        let opened = self.on_host(|host| ledger::open(&host.root)).await??;
        let Some((update, progress)) = opened else { return Ok(AfterSync::SyncAgain) };
        let target = update.to.metadata.name.clone().unwrap_or_default();
        let plan = update.plan.clone();
        let witnessed = self.glass.clone();
        let outcome = match resume {
            Resume::Verify => {
                self.report_event(UpdateEvent::Rebooted);
                self.on_host(|host| ledger::close(&host.root)).await??;
                return Ok(AfterSync::SyncAgain);
            }
            Resume::Reboot => Ok(Outcome::RebootDue),
            Resume::Undo => {
                self.change(move |host| execute::roll_back_failed(host, &update, &progress)).await?
            }
            Resume::Continue(done) => {
                self.report_event(UpdateEvent::Applying(parts(&plan)));
                self.change(move |host| {
                    execute::proceed(host, &update, done, &mut |step| record_step(&witnessed, step))
                })
                .await?
            }
        };
        self.finish_update(outcome, &plan, &target).await
    }

    /// Clears the Rebooting annotation after the reboot.
    pub(super) async fn clear_rebooting(&mut self) -> Result<AfterSync, SyncError> {
        self.report_event(UpdateEvent::Rebooted);
        let key = annotation::POST_CONFIG_ACTION.name().to_owned();
        self.annotate([(key, Some(String::new()))].into()).await?;
        Ok(AfterSync::SyncAgain)
    }

    async fn finish_update(
        &mut self,
        outcome: Result<Outcome, ExecuteError>,
        plan: &NodePlan,
        config: &str,
    ) -> Result<AfterSync, SyncError> {
        let outcome = outcome.inspect_err(|_| {
            let last = self.glass.get().last_step.unwrap_or_default();
            if plan.steps.iter().any(|step| is_pivot(step) && step.to_string() == last) {
                self.metrics.pivot(true);
            }
        })?;
        self.report_applied(plan).await;
        match outcome {
            Outcome::Applied => Ok(AfterSync::SyncAgain),
            Outcome::RebootDue => self.reboot_into(config).await,
        }
    }

    /// Reports the reboot and starts it.
    pub(super) async fn reboot_into(&mut self, config: &str) -> Result<AfterSync, SyncError> {
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
        let config = config.to_owned();
        let rebooted = self.on_host(move |host| execute::reboot(host, &config)).await?;
        rebooted.inspect_err(|_| self.metrics.reboot_failed())?;
        Ok(AfterSync::Rebooting)
    }

    async fn plan(
        &mut self,
        source: &MachineConfig,
        target: &MachineConfig,
        force: bool,
    ) -> Result<NodePlan, SyncError> {
        let Rules { policies, overrides } = self.cluster.rules(self.limits.policies).await?;
        let facts = self.on_host(|host| host.system.facts()).await??;
        let circumstances = Circumstances {
            force: if force { Force::Yes } else { Force::No },
            kernel_fips: facts.kernel_fips,
            overrides,
            ..Circumstances::default()
        };
        let (from, to) = (read(source)?, read(target)?);
        info!("Checking Reconcilable for config {} to {}", from.name, to.name);
        let plan = plan::node(&from, &to, &policies, &circumstances)
            .inspect_err(|refusal| self.refuse(&from, &to, refusal))?;
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

    fn refuse(&self, from: &Machine, to: &Machine, refusal: &Refusal) {
        let (from, to) = (from.name.clone(), to.name.clone());
        self.report_event(UpdateEvent::NotPrepared { from, to, why: refusal.to_string() });
    }
}

fn is_pivot(step: &Step) -> bool {
    matches!(step, Step::StageOs(_) | Step::StageKernel(_) | Step::StageExtensions { .. })
}

fn record_step(glass: &SharedState, step: &Step) {
    glass.update(|state| state.last_step = Some(step.to_string()));
}

/// Compat: the parts that differ, in the reference's words (pkg/daemon/update.go).
fn flags(plan: &NodePlan) -> String {
    let diff = &plan.diff;
    format!(
        "&{{osUpdate:{} kargs:{} fips:{} passwd:{} files:{} units:{} kernelType:{} extensions:{}}}",
        diff.os_image.is_some(),
        diff.kernel_arguments.is_some(),
        diff.fips.is_some(),
        diff.users.is_some(),
        !diff.files.is_empty(),
        !diff.units.is_empty(),
        diff.kernel_type.is_some(),
        diff.extensions.is_some(),
    )
}

pub(super) fn read(config: &MachineConfig) -> Result<Machine, SyncError> {
    let name = config.metadata.name.clone().unwrap_or_default();
    Machine::read(config).map_err(|source| SyncError::Config { config: name, source })
}
