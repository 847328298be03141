//! Carries out one action of the daemon.

use std::collections::BTreeMap;

use mco_api::{
    RenderedName,
    annotation::{self, Recovery},
};
use mco_apply::{
    confirm,
    execute::FORCE_FILE,
    force,
    forget::{self, Unfinished},
    ledger,
};
use mco_core::{
    lifecycle::{Action, CheckResult, Outcome, Phase},
    status::update_conditions::UpdateEvent,
};
use mco_host::System;

use tracing::{info, warn};

use super::{Agent, SyncError};
use crate::cluster::{Cluster, EventType};

impl<S: System + 'static, C: Cluster> Agent<S, C> {
    /// Carries out an action.
    pub(super) async fn carry_out(&mut self, action: Action) -> Result<Outcome, SyncError> {
        match action {
            Action::Wait => {
                if self.state.phase == Phase::Done {
                    // A parsed config takes memory, and is read again when it is needed.
                    (self.current, self.preparation) = (None, None);
                    self.unprotect().await;
                    self.report_event(UpdateEvent::UpToDate);
                }
                Ok(Outcome::Done)
            }
            // The agent runs in the cluster.
            Action::Connect => Ok(Outcome::Done),
            Action::Prepare => self.prepare().await.map(|()| Outcome::Prepared),
            Action::SetInitialAnnotations(annotations) => {
                let pairs = annotations.into_iter().map(|(key, value)| (key, Some(value)));
                self.annotate(pairs.collect()).await?;
                Ok(Outcome::Done)
            }
            Action::Adopt => self.adopt().await,
            Action::ClearRebooting => self.clear_rebooting().await,
            Action::Verify(config, occasion) => self.verify(config, occasion).await,
            Action::Repair(config, steps, subjects) => self.repair(&config, steps, &subjects).await,
            Action::Begin(update) => self.begin(update).await,
            Action::Plan(update) => self.plan(&update).await,
            Action::Request(request) => self.request(request).await,
            Action::Apply(_) => self.apply().await,
            Action::Continue(_) | Action::ApplyAgain | Action::Undo => self.resume(&action).await,
            Action::Abandon => self.abandon().await,
            Action::Force => self.force().await,
            Action::Forget => self.forget().await,
            Action::Reboot(config) => self.reboot_into(config).await,
            Action::Close => {
                self.report_event(UpdateEvent::Rebooted);
                self.on_host(|host| ledger::close(&host.root)).await??;
                Ok(Outcome::Done)
            }
            Action::CheckHealth => self.check_health().await,
            Action::RecordWait(_) | Action::Confirm | Action::RollBack(_) => {
                self.on_host(move |host| confirm::carry_out(host, &action)).await??;
                Ok(Outcome::Done)
            }
            Action::CheckKubelet => self.check_kubelet().await,
            Action::RemoveForceFile(config) => self.remove_force_file(&config).await,
            Action::ReportDone(config, completed) => self.report_done(&config, completed).await,
            Action::Fail(cause) => {
                let fault = self.error_of(cause);
                self.unprotect().await;
                if let Some(fault) = fault {
                    self.fail(&fault).await;
                }
                Ok(Outcome::Done)
            }
        }
    }

    /// Clears the Rebooting annotation after the reboot.
    async fn clear_rebooting(&mut self) -> Result<Outcome, SyncError> {
        self.report_event(UpdateEvent::Rebooted);
        let key = annotation::POST_CONFIG_ACTION.name().to_owned();
        self.annotate([(key, Some(String::new()))].into()).await?;
        Ok(Outcome::Done)
    }

    /// Removes the force file of a node that has its config.
    async fn remove_force_file(&mut self, config: &RenderedName) -> Result<Outcome, SyncError> {
        self.on_host(|host| force::withdraw(&host.root)).await??;
        let text = format!("Removed {FORCE_FILE}: the node is Done with config {config}");
        info!("{text}");
        self.cluster.publish_event(EventType::Normal, "ForceFileRemoved", &text).await;
        Ok(Outcome::Done)
    }

    /// Forgets the recorded update at the request of the administrator.
    async fn abandon(&mut self) -> Result<Outcome, SyncError> {
        self.stop_drift_watch().await;
        if self.on_host(|host| ledger::abandon(&host.root)).await?? {
            let text = "Abandoned the unfinished update; the desired config is applied in full";
            warn!("{text}");
            self.cluster.publish_event(EventType::Warning, "UpdateAbandoned", text).await;
        }
        let key = annotation::RECOVER.name().to_owned();
        self.annotate([(key, None)].into()).await?;
        Ok(Outcome::Done)
    }

    /// Creates the force file at the request of the administrator.
    async fn force(&mut self) -> Result<Outcome, SyncError> {
        // Before the annotation is removed: a crash in between must not lose the request.
        self.on_host(|host| host.root.write(FORCE_FILE, b"", 0o600)).await??;
        let text = format!("Created {FORCE_FILE}, as annotation {} asks", annotation::RECOVER);
        warn!("{text}");
        self.cluster.publish_event(EventType::Warning, "ForceFileCreated", &text).await;
        let key = annotation::RECOVER.name().to_owned();
        self.annotate([(key, None)].into()).await?;
        Ok(Outcome::Done)
    }

    /// Removes the daemon's own files from the machine at the request of the administrator.
    async fn forget(&mut self) -> Result<Outcome, SyncError> {
        self.stop_drift_watch().await;
        (self.current, self.preparation) = (None, None);
        // First: another task must not write a record anew after it was removed.
        self.managed.send_replace(false);
        let removed = self.on_host(|host| forget::forget(host, Unfinished::Refuse)).await??;
        let text =
            "Removed the records of this program; the files and units of MachineConfigs stay";
        warn!(removed = removed.len(), "{text}");
        self.cluster.publish_event(EventType::Normal, "NodeForgotten", text).await;
        let mut answer = BTreeMap::new();
        annotation::RECOVER.set(&mut answer, &Recovery::Forgotten);
        self.annotate(answer.into_iter().map(|(key, value)| (key, Some(value))).collect()).await?;
        Ok(Outcome::Done)
    }

    /// Checks the health of the machine; the cluster was reached by joining it.
    async fn check_health(&self) -> Result<Outcome, SyncError> {
        let health = self.on_host(|host| confirm::check(host)).await??;
        Ok(Outcome::Health(health.with_cluster(CheckResult::Passed)))
    }
}
