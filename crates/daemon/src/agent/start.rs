//! Prepares the machine once after the daemon started.

use mco_api::annotation;
use mco_cluster::report::chain;
use mco_host::{System, SystemError};
use tracing::warn;

use super::{Agent, SyncError, error::MAX_REASON};
use crate::cluster::{Cluster, EventType};

/// File from which old releases read kernel arguments.
const TUNING: &str = "/etc/pivot/kernel-args";

impl<S: System + 'static, C: Cluster> Agent<S, C> {
    /// Prepares the machine, and reads the error of the last deployment's finalization, if it
    /// failed.
    ///
    /// Compat: a machine that cannot be prepared is degraded, and the preparation retried
    /// (`pkg/daemon/daemon.go`). Better: a successful preparation is not repeated.
    pub(super) async fn prepare(&mut self) -> Result<(), SyncError> {
        let role = self.node_state.role;
        let fault = self
            .on_host(move |host| -> Result<_, SystemError> {
                host.system.prepare(role)?;
                if host.root.exists(TUNING)? {
                    warn!("Ignoring {TUNING}; use kernelArguments of a MachineConfig instead");
                }
                let fault = host.system.finalization_fault();
                Ok(fault.unwrap_or_else(|error| {
                    warn!("failed to query for deployment failure: {}", chain(&error));
                    None
                }))
            })
            .await??;
        let fault: Option<String> = fault.map(|it| it.chars().take(MAX_REASON).collect());
        self.root_cause.clone_from(&fault);
        self.report_finalization_failure(fault).await
    }

    /// Annotates the node with the finalization error of the last deployment, or clears the
    /// annotation.
    async fn report_finalization_failure(
        &mut self,
        fault: Option<String>,
    ) -> Result<(), SyncError> {
        let key = annotation::FINALIZE_FAILURE.name();
        let annotated =
            self.node_state.annotations.get(key).map(String::as_str).unwrap_or_default();
        let text = fault.unwrap_or_default();
        if annotated == text {
            return Ok(());
        }
        if !text.is_empty() {
            warn!("Failed to finalize previous deployment: {text}");
            self.cluster.publish_event(EventType::Warning, "FailedFinalization", &text).await;
        }
        self.annotate([(key.to_owned(), Some(text))].into()).await
    }
}
