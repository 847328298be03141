//! Completes a node that has its desired config: verifies the disk, repairs drift, and reports
//! Done.

use std::sync::Arc;

use mco_api::{
    MachineConfig, RenderedName,
    annotation::{self, DaemonState},
};
use mco_apply::{ParsedConfig, confirm, disk, execute, force, verify};
use mco_core::{
    drift::Drift,
    lifecycle::{Completion, Drifted, Occasion, Outcome},
    machine::Machine,
    plan::Step,
    status::update_conditions::{DrainEvent, UpdateEvent},
};
use mco_host::System;
use tracing::{info, warn};

use super::{Agent, SyncError};
use crate::cluster::{Changes, Cluster, EventType};

impl<S: System + 'static, C: Cluster> Agent<S, C> {
    /// Compares the disk with a config. Starts the drift watch first, so that no change is missed in
    /// between.
    pub(super) async fn verify(
        &mut self,
        config: RenderedName,
        occasion: Occasion,
    ) -> Result<Outcome, SyncError> {
        let current = match &self.preparation {
            Some(it) if occasion == Occasion::Preflight => it.from.clone(),
            Some(_) | None => self.current_config(&config).await?,
        };
        if occasion == Occasion::Complete && self.pivot_if_needed(&current).await? {
            return Ok(Outcome::PivotDue(config));
        }
        self.start_drift_watch(&current.machine).await?;
        // The watch has no event for a force file that was written before it.
        self.disk.force = self.on_host(|host| force::is_requested(&host.root)).await??;
        let drifts = self.differences(&current.machine).await?;
        if !drifts.is_empty() {
            let policy = self.cluster.drift_policy().await?;
            let machine = current.machine.clone();
            return Ok(Outcome::Drifted(Drifted { config, occasion, machine, drifts, policy }));
        }
        self.metrics.drift(None);
        self.glass.update(|state| state.drift = None);
        match occasion {
            Occasion::Preflight => info!("Preflight config drift check successful"),
            Occasion::Complete => {
                info!("Validated on-disk state");
                self.record_verified(current.object).await?;
            }
        }
        Ok(Outcome::Verified(config, occasion))
    }

    async fn differences(&self, machine: &Arc<Machine>) -> Result<Vec<Drift>, SyncError> {
        let machine = Arc::clone(machine);
        Ok(self.on_host(move |host| verify::differences(host, &machine)).await??)
    }

    /// Repairs drift from a config.
    pub(super) async fn repair(
        &mut self,
        name: &RenderedName,
        steps: Vec<Step>,
        subjects: &[String],
    ) -> Result<Outcome, SyncError> {
        let config = self.current_config(name).await?;
        self.on_host(move |host| execute::repair(host, &config, &steps)).await??;
        let text = format!("Repaired drift from config {name} at {}", subjects.join(", "));
        info!("{text}");
        self.metrics.healed(subjects.len());
        self.cluster.publish_event(EventType::Warning, "ConfigDriftHealed", &text).await;
        Ok(Outcome::Repaired)
    }

    /// Reports the node as Done.
    pub(super) async fn report_done(
        &mut self,
        config: &RenderedName,
        completed: Completion,
    ) -> Result<Outcome, SyncError> {
        self.glass.update(|state| state.waiting_for = None);
        // Another config was desired since, so that one that was rolled back may be tried again.
        let name = config.to_string();
        self.on_host(move |host| confirm::refusal(&host.root, &name, false)).await??;
        self.report_event(UpdateEvent::Drain(DrainEvent::Uncordoned));
        let text = match completed {
            Completion::Update => {
                info!(
                    "Update completed for config {config} and node has been successfully uncordoned"
                );
                format!("Update completed for config {config} and node has been uncordoned")
            }
            Completion::DriftRepair => {
                info!(%config, "Config drift cleared");
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
        // If the patch fails, the next attempt sets the metrics again.
        self.metrics.state(&DaemonState::Done, "", &self.now());
        self.metrics.update(config.as_str(), "", &self.now());
        self.annotate(done).await?;
        info!("In desired state MachineConfig: {config}");
        self.publish_transition(DaemonState::Done.as_str(), "");
        self.report_event(UpdateEvent::Recovered);
        Ok(Outcome::Reported)
    }

    /// Records the config after the disk was verified against it. Not earlier: an unverified config
    /// is never recorded.
    async fn record_verified(&self, current: Arc<MachineConfig>) -> Result<(), SyncError> {
        let tidied = self.on_host(move |host| -> Result<(), disk::DiskError> {
            if disk::current_name(&host.root)?.is_none() {
                disk::record_config(&host.root, &current)?;
            }
            if disk::tidy_first_boot(&host.root)? {
                warn!("Failed to complete machine-config-daemon-firstboot before joining cluster!");
            }
            disk::has_joined(&host.root)
        });
        Ok(tidied.await??)
    }

    /// Returns the config of the node: the one that was read last, that of the disk, or that of the
    /// API server if none is recorded.
    pub(super) async fn current_config(
        &mut self,
        name: &RenderedName,
    ) -> Result<ParsedConfig, SyncError> {
        if let Some(known) = self.current.as_ref().filter(|known| known.is(name.as_str())) {
            return Ok(known.clone());
        }
        let recorded = self.on_host(|host| disk::current_config(&host.root)).await??;
        let config = match recorded {
            Some(config) if config.metadata.name.as_deref() == Some(name.as_str()) => config,
            _ => self.cluster.machine_config(name.as_str()).await?,
        };
        let config = ParsedConfig::read(config)?;
        self.current = Some(config.clone());
        Ok(config)
    }
}
