//! What a daemon does once on the machine that it starts on.

use mco_api::annotation;
use mco_cluster::report::chain;
use mco_host::{System, SystemError};
use tracing::warn;

use super::{Agent, SyncError, fail::LONGEST_REASON};
use crate::cluster::{Cluster, Weight};

/// Releases of long ago read kernel arguments from it.
const TUNING: &str = "/etc/pivot/kernel-args";

impl<S: System + 'static, C: Cluster> Agent<S, C> {
    /// Makes the machine ready, and hears why the last update did not come up, if it did not.
    ///
    /// Compat: a machine that cannot be made ready is degraded, and tried again (`pkg/daemon/daemon.go`).
    /// Better: once it is ready it is left alone.
    pub(super) async fn prepare(&mut self) -> Result<(), SyncError> {
        if self.is_prepared {
            return Ok(());
        }
        let duty = self.known.duty;
        let fault = self
            .on_host(move |host| -> Result<_, SystemError> {
                host.system.prepare(duty)?;
                if host.root.exists(TUNING)? {
                    warn!("{TUNING} is not read: put kernelArguments into a MachineConfig");
                }
                let fault = host.system.finalization_fault();
                Ok(fault.unwrap_or_else(|error| {
                    warn!("failed to query for deployment failure: {}", chain(&error));
                    None
                }))
            })
            .await??;
        let fault: Option<String> = fault.map(|it| it.chars().take(LONGEST_REASON).collect());
        self.root_cause.clone_from(&fault);
        self.tell_fault(fault).await?;
        self.is_prepared = true;
        Ok(())
    }

    /// Says on the node what went wrong when the last boot ended, and when nothing did any longer.
    async fn tell_fault(&mut self, fault: Option<String>) -> Result<(), SyncError> {
        let key = annotation::FINALIZE_FAILURE.name();
        let said = self.known.annotations.get(key).map(String::as_str).unwrap_or_default();
        let text = fault.unwrap_or_default();
        if said == text {
            return Ok(());
        }
        if !text.is_empty() {
            warn!("Failed to finalize previous deployment: {text}");
            self.cluster.tell(Weight::Warning, "FailedFinalization", &text).await;
        }
        self.annotate([(key.to_owned(), Some(text))].into()).await
    }
}
