//! A node that has its config: see that it is so, have it uncordoned, say that all is well.

use std::time::Duration;

use mco_api::{
    MachineConfig, RenderedName,
    annotation::{self, DaemonState, DrainVerb},
};
use mco_core::{drift::Drift, machine::Machine, status::machine_config_node::Event};
use mco_host::System;
use tokio::time::Instant;
use tracing::{info, warn};

use super::{Agent, Found, Next, SyncError, update::read};
use crate::{
    cluster::{Changes, Cluster, Weight},
    decide::NodeView,
    disk, execute,
    heal::{self, Decision, Why},
    verify,
};

/// The kernel tells of changes as they happen; a look at everything now and then finds what it missed.
const LOOK_AGAIN: Duration = Duration::from_mins(30);

impl<S: System + 'static, C: Cluster> Agent<S, C> {
    /// Sees that the node is as its config says, has it uncordoned and says that all is well.
    pub(super) async fn settle(
        &mut self,
        node: &NodeView,
        config: &RenderedName,
    ) -> Result<Next, SyncError> {
        if self.verified.as_ref() != Some(config) {
            let current = self.current(config).await?;
            if self.pivots_to(&current).await? {
                return self.reboot_into(config.as_str()).await;
            }
            self.verify(config, &current).await?;
            info!("Validated on-disk state");
            self.tidy(current).await?;
        }
        if let Some(text) = self.troubles.borrow_and_update().clone() {
            return Err(SyncError::Certificates(text));
        }
        let is_said = node.state == Some(DaemonState::Done)
            && node.current.as_ref() == Some(config)
            && node.reason.is_empty();
        if is_said {
            self.waiting = None;
            self.has_settled = true;
            self.unprotect().await;
            self.note(Event::UpToDate);
            return Ok(Next::Wait(Some(Instant::now() + LOOK_AGAIN)));
        }
        info!("Completing update to target MachineConfig: {config}");
        self.note(Event::Resumed(config.to_string()));
        if let Some(next) = self.await_kubelet().await? {
            return Ok(next);
        }
        if let Some(next) = self.await_drain(node, DrainVerb::Uncordon, config).await? {
            return Ok(next);
        }
        self.done(config).await?;
        Ok(Next::Wait(Some(Instant::now() + LOOK_AGAIN)))
    }

    async fn done(&mut self, config: &RenderedName) -> Result<(), SyncError> {
        info!("Update completed for config {config} and node has been successfully uncordoned");
        let text = format!("Update completed for config {config} and node has been uncordoned");
        self.cluster.tell(Weight::Normal, "Uncordon", &text).await;
        let text = format!("Setting node {}, currentConfig {config} to Done", self.node);
        self.cluster.tell(Weight::Normal, "NodeDone", &text).await;
        let mut done = Changes::new();
        done.insert(annotation::STATE.name().to_owned(), Some(DaemonState::Done.to_string()));
        done.insert(annotation::CURRENT_CONFIG.name().to_owned(), Some(config.to_string()));
        done.insert(annotation::REASON.name().to_owned(), Some(String::new()));
        // Should the node not hear of it, the next look at it puts this right.
        self.metrics.state(&DaemonState::Done, "", &self.now());
        self.metrics.update(config.as_str(), "", &self.now());
        self.annotate(done).await?;
        info!("In desired state MachineConfig: {config}");
        self.has_settled = true;
        self.glass.note(|state| {
            state.state = DaemonState::Done.to_string();
            state.reason.clear();
        });
        self.note(Event::Recovered);
        self.note(Event::UpToDate);
        self.unprotect().await;
        Ok(())
    }

    /// Puts on record that the disk is right. Only now: one that was never right is never on record.
    async fn tidy(&self, current: MachineConfig) -> Result<(), SyncError> {
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

    /// The config that the node has: from its disk, or from the cluster where the disk has none.
    pub(super) async fn current(&self, name: &RenderedName) -> Result<MachineConfig, SyncError> {
        let recorded = self.on_host(|host| disk::current_config(&host.root)).await??;
        match recorded {
            Some(config) if config.metadata.name.as_deref() == Some(name.as_str()) => Ok(config),
            _ => Ok(self.cluster.machine_config(name.as_str()).await?),
        }
    }

    /// Refuses a disk that is not as the config says. Watches first, so that nothing slips between.
    pub(super) async fn verify(
        &mut self,
        name: &RenderedName,
        config: &MachineConfig,
    ) -> Result<(), SyncError> {
        let machine = read(config)?;
        self.guard(&machine).await?;
        let mut found = self.differences(&machine).await?;
        if !found.is_empty() && self.heal(&machine, config, &found).await? {
            found = self.differences(&machine).await?;
        }
        self.verified = found.is_empty().then(|| name.clone());
        let first = found.into_iter().next();
        let now = self.now();
        self.metrics.drift(first.as_ref().map(|_| &now));
        self.glass.note(|state| state.drift = first.as_ref().map(ToString::to_string));
        match first {
            Some(drift) => {
                let found = if self.has_settled { Found::Later } else { Found::AtStart };
                let cause = self.root_cause.clone();
                Err(SyncError::Drift { config: name.clone(), drift, found, cause })
            }
            None => Ok(()),
        }
    }

    async fn differences(&self, machine: &Machine) -> Result<Vec<Drift>, SyncError> {
        let machine = machine.clone();
        Ok(self.on_host(move |host| verify::all(host, &machine)).await??)
    }

    /// Puts right what differs where the pool wants it so; says whether anything was done.
    async fn heal(
        &mut self,
        machine: &Machine,
        config: &MachineConfig,
        found: &[Drift],
    ) -> Result<bool, SyncError> {
        let policy = self.cluster.drift_policy().await?;
        let now = self.since.elapsed();
        let (steps, subjects) = match heal::decide(&policy, machine, found, &self.healed, now) {
            Decision::Leave(Why::Policy) => return Ok(false),
            Decision::Leave(why) => {
                warn!("Leaving config drift as it is: {why}");
                return Ok(false);
            }
            Decision::Heal(steps, subjects) => (steps, subjects),
        };
        self.healed.note(&subjects, now);
        let config = config.clone();
        self.on_host(move |host| execute::repair(host, &config, &steps)).await??;
        let text = format!("Put back what config {} has at {}", machine.name, subjects.join(", "));
        info!("{text}");
        self.metrics.healed(subjects.len());
        self.cluster.tell(Weight::Warning, "ConfigDriftHealed", &text).await;
        Ok(true)
    }
}
