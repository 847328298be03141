//! Delays a shutdown that is requested in the middle of an update.

use std::future::Future;

use mco_host::{Host, System};
use tokio::task::JoinError;
use tracing::{info, warn};

use super::Agent;
use crate::cluster::{Cluster, EventType};

impl<S: System + 'static, C: Cluster> Agent<S, C> {
    /// Makes later shutdown requests wait.
    pub(super) async fn protect(&mut self) {
        if !self.protected {
            self.protected = true;
            info!("Adding SIGTERM protection");
            let text = "Adding SIGTERM protection";
            self.cluster.publish_event(EventType::Normal, "AddSigtermProtection", text).await;
        }
    }

    /// Makes later shutdown requests take effect at once.
    pub(super) async fn unprotect(&mut self) {
        if self.protected {
            self.protected = false;
            info!("Removing SIGTERM protection");
            let text = "Removing SIGTERM protection";
            self.cluster.publish_event(EventType::Normal, "RemoveSigtermProtection", text).await;
        }
    }

    /// Runs work that changes the machine; a shutdown request meanwhile publishes an event and
    /// waits.
    pub(super) async fn change<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Host<S>) -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        self.protect().await;
        let working = self.host.work(work);
        tokio::pin!(working);
        let asked = async {
            self.shutdown.requested().await;
            warn!("Got SIGTERM, but actively updating");
            let text = "Got SIGTERM, but actively updating";
            self.cluster.publish_event(EventType::Warning, "GotSigtermDuringUpdate", text).await;
            std::future::pending::<()>().await;
        };
        finish(working, asked).await
    }
}

/// Returns the output of `work`, polling `meanwhile`, which must never end, along with it.
async fn finish<T>(work: impl Future<Output = T>, meanwhile: impl Future<Output = ()>) -> T {
    let meanwhile = async {
        meanwhile.await;
        std::future::pending::<T>().await
    };
    tokio::select! {
        done = work => done,
        never = meanwhile => never,
    }
}
