//! Completes a node that has its desired config: verifies the disk, has the node uncordoned, and
//! reports Done.

use std::time::Duration;

use mco_api::{
    MachineConfig, RenderedName,
    annotation::{self, DaemonState, DrainVerb},
};
use mco_core::{drift::Drift, machine::Machine, status::update_conditions::UpdateEvent};
use mco_host::System;
use tokio::time::Instant;
use tracing::{info, warn};

use super::{AfterSync, Agent, DriftDetected, SyncError, error::DRIFT_REASON, update::read};
use crate::{
    cluster::{Changes, Cluster, EventType},
    decide::NodeAnnotations,
    disk, execute,
    heal::{self, NotRepaired, RepairDecision},
    verify,
};

/// Interval of full verifications, which find changes that inotify missed.
const VERIFY_INTERVAL: Duration = Duration::from_mins(30);

/// The event that a node reports with Done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Completion {
    /// A config was applied.
    Update,
    /// Drift from the config that the node already had was repaired.
    DriftRepair,
}

impl Completion {
    /// Returns the event, from the annotations before Done is reported.
    fn of(node: &NodeAnnotations, config: &RenderedName) -> Self {
        let is_current = node.current.as_ref() == Some(config);
        if is_current && node.is_failing() && node.reason.starts_with(DRIFT_REASON) {
            Self::DriftRepair
        } else {
            Self::Update
        }
    }
}

impl<S: System + 'static, C: Cluster> Agent<S, C> {
    /// Verifies the disk against the config, has the node uncordoned and reports Done.
    pub(super) async fn complete(
        &mut self,
        node: &NodeAnnotations,
        config: &RenderedName,
    ) -> Result<AfterSync, SyncError> {
        if self.verified.as_ref() != Some(config) {
            let current = self.current_config(config).await?;
            if self.pivot_if_needed(&current).await? {
                return self.reboot_into(config.as_str()).await;
            }
            self.verify(config, &current).await?;
            info!("Validated on-disk state");
            self.record_verified(current).await?;
        }
        if let Some(text) = self.certificate_errors.borrow_and_update().clone() {
            return Err(SyncError::Certificates(text));
        }
        let is_reported = node.state == Some(DaemonState::Done)
            && node.current.as_ref() == Some(config)
            && node.reason.is_empty();
        if is_reported {
            self.drain_wait = None;
            self.has_completed = true;
            self.unprotect().await;
            self.report_event(UpdateEvent::UpToDate);
            return Ok(AfterSync::Wait(Some(Instant::now() + VERIFY_INTERVAL)));
        }
        let completed = Completion::of(node, config);
        match completed {
            Completion::Update => info!("Completing update to target MachineConfig: {config}"),
            Completion::DriftRepair => info!(%config, "Config drift cleared"),
        }
        self.report_event(UpdateEvent::Resumed(config.to_string()));
        if let Some(next) = self.await_kubelet().await? {
            return Ok(next);
        }
        if let Some(next) = self.await_drain(node, DrainVerb::Uncordon, config).await? {
            return Ok(next);
        }
        self.report_done(config, completed).await?;
        Ok(AfterSync::Wait(Some(Instant::now() + VERIFY_INTERVAL)))
    }

    async fn report_done(
        &mut self,
        config: &RenderedName,
        completed: Completion,
    ) -> Result<(), SyncError> {
        let text = match completed {
            Completion::Update => {
                info!(
                    "Update completed for config {config} and node has been successfully uncordoned"
                );
                format!("Update completed for config {config} and node has been uncordoned")
            }
            Completion::DriftRepair => {
                format!("Config drift from config {config} cleared and node has been uncordoned")
            }
        };
        self.cluster.publish_event(EventType::Normal, "Uncordon", &text).await;
        let text = format!("Setting node {}, currentConfig {config} to Done", self.node);
        self.cluster.publish_event(EventType::Normal, "NodeDone", &text).await;
        let mut done = Changes::new();
        done.insert(annotation::STATE.name().to_owned(), Some(DaemonState::Done.to_string()));
        done.insert(annotation::CURRENT_CONFIG.name().to_owned(), Some(config.to_string()));
        done.insert(annotation::REASON.name().to_owned(), Some(String::new()));
        // If the patch fails, the next sync sets the metrics again.
        self.metrics.state(&DaemonState::Done, "", &self.now());
        self.metrics.update(config.as_str(), "", &self.now());
        self.annotate(done).await?;
        info!("In desired state MachineConfig: {config}");
        self.has_completed = true;
        self.publish_transition(DaemonState::Done.as_str(), "");
        self.report_event(UpdateEvent::Recovered);
        self.report_event(UpdateEvent::UpToDate);
        self.unprotect().await;
        Ok(())
    }

    /// Records the config after the disk was verified against it. Not earlier: an unverified config
    /// is never recorded.
    async fn record_verified(&self, current: MachineConfig) -> Result<(), SyncError> {
        let tidied = self.on_host(move |host| -> Result<(), disk::DiskError> {
            if disk::current_config(&host.root)?.is_none() {
                disk::record_config(&host.root, &current)?;
            }
            if disk::tidy_first_boot(&host.root)? {
                warn!("Failed to complete machine-config-daemon-firstboot before joining cluster!");
            }
            disk::has_joined(&host.root)
        });
        Ok(tidied.await??)
    }

    /// Returns the config of the node: from its disk, or from the API server if none is recorded
    /// there.
    pub(super) async fn current_config(
        &self,
        name: &RenderedName,
    ) -> Result<MachineConfig, SyncError> {
        let recorded = self.on_host(|host| disk::current_config(&host.root)).await??;
        match recorded {
            Some(config) if config.metadata.name.as_deref() == Some(name.as_str()) => Ok(config),
            _ => Ok(self.cluster.machine_config(name.as_str()).await?),
        }
    }

    /// Fails if the disk differs from the config. Starts the drift watch first, so that no change
    /// is missed in between.
    pub(super) async fn verify(
        &mut self,
        name: &RenderedName,
        config: &MachineConfig,
    ) -> Result<(), SyncError> {
        let machine = read(config)?;
        self.start_drift_watch(&machine).await?;
        let mut found = self.differences(&machine).await?;
        if !found.is_empty() && self.repair_drift(&machine, config, &found).await? {
            found = self.differences(&machine).await?;
        }
        self.verified = found.is_empty().then(|| name.clone());
        let first = found.into_iter().next();
        let now = self.now();
        self.metrics.drift(first.as_ref().map(|_| &now));
        self.glass.update(|state| state.drift = first.as_ref().map(ToString::to_string));
        match first {
            Some(drift) => {
                let detected = if self.has_completed {
                    DriftDetected::WhileRunning
                } else {
                    DriftDetected::AtStart
                };
                let cause = self.root_cause.clone();
                Err(SyncError::Drift { config: name.clone(), drift, detected, cause })
            }
            None => Ok(()),
        }
    }

    async fn differences(&self, machine: &Machine) -> Result<Vec<Drift>, SyncError> {
        let machine = machine.clone();
        Ok(self.on_host(move |host| verify::differences(host, &machine)).await??)
    }

    /// Repairs drift if the pool's policy asks for it; returns true if anything was repaired.
    async fn repair_drift(
        &mut self,
        machine: &Machine,
        config: &MachineConfig,
        found: &[Drift],
    ) -> Result<bool, SyncError> {
        let policy = self.cluster.drift_policy().await?;
        let now = self.since.elapsed();
        let (steps, subjects) = match heal::decide(&policy, machine, found, &self.repairs, now) {
            RepairDecision::Leave(NotRepaired::Policy) => return Ok(false),
            RepairDecision::Leave(why) => {
                warn!(reason = %why, "Config drift left unrepaired");
                return Ok(false);
            }
            RepairDecision::Repair(steps, subjects) => (steps, subjects),
        };
        self.repairs.record(&subjects, now);
        let config = config.clone();
        self.on_host(move |host| execute::repair(host, &config, &steps)).await??;
        let text =
            format!("Repaired drift from config {} at {}", machine.name, subjects.join(", "));
        info!("{text}");
        self.metrics.healed(subjects.len());
        self.cluster.publish_event(EventType::Warning, "ConfigDriftHealed", &text).await;
        Ok(true)
    }
}
