//! A request to stop that comes in the middle of an update waits until the machine is whole again.

use std::future::Future;

use mco_host::{Host, System};
use tokio::task::JoinError;
use tracing::{info, warn};

use super::Agent;
use crate::cluster::{Cluster, Weight};

impl<S: System + 'static, C: Cluster> Agent<S, C> {
    /// From now on a request to stop waits.
    pub(super) async fn protect(&mut self) {
        if !self.protected {
            self.protected = true;
            info!("Adding SIGTERM protection");
            let text = "Adding SIGTERM protection";
            self.cluster.tell(Weight::Normal, "AddSigtermProtection", text).await;
        }
    }

    /// From now on a request to stop is followed at once.
    pub(super) async fn unprotect(&mut self) {
        if self.protected {
            self.protected = false;
            info!("Removing SIGTERM protection");
            let text = "Removing SIGTERM protection";
            self.cluster.tell(Weight::Normal, "RemoveSigtermProtection", text).await;
        }
    }

    /// Changes the machine. Whoever asks us to stop meanwhile is told that it takes a while.
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
            self.cluster.tell(Weight::Warning, "GotSigtermDuringUpdate", text).await;
            std::future::pending::<()>().await;
        };
        finish(working, asked).await
    }
}

/// What the first comes to; the second, which never ends, may speak meanwhile.
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
