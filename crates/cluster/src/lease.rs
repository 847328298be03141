//! One leader among several processes, by the protocol of client-go.
//!
//! A Lease is taken and kept with full updates that carry the resource version read before, so of
//! two that try at once one is refused. Whether another holder's lease has run out is judged by how
//! long *we* have seen it unchanged, never by its timestamps: clocks of two machines differ. So a
//! process of ours and one of the reference's can stand in line for the same Lease.

use std::{future::Future, time::Duration};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{Api, api::PostParams};
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

use crate::{CallError, Clock, Shutdown, report};

/// How long a lease holds, and how often it is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// How long an unchanged lease keeps others out.
    pub lease: Duration,
    /// How long the leader tries to renew before it gives up; shorter than the lease.
    pub renew: Duration,
    /// Pause between two tries.
    pub retry: Duration,
}

impl Timings {
    /// Survive a minute without an API server, as OpenShift asks of its operators.
    pub const HIGHLY_AVAILABLE: Self = Self::seconds(137, 107, 26);
    /// The only API server is restarted now and then, and takes longer.
    pub const SINGLE_NODE: Self = Self::seconds(270, 240, 60);

    const fn seconds(lease: u64, renew: u64, retry: u64) -> Self {
        let of = Duration::from_secs;
        Self { lease: of(lease), renew: of(renew), retry: of(retry) }
    }
}

/// Who stands for which lease.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Leases of the namespace that the lease is in.
    pub api: Api<Lease>,
    /// The lease.
    pub name: String,
    /// Who we are, different for every process that ever stands.
    pub identity: String,
    /// How long and how often.
    pub timings: Timings,
    /// Tells the times that are written into the lease, for people to read.
    pub clock: Clock,
}

/// A name for this process that no other has: its host and a random part.
#[must_use]
pub fn identity() -> String {
    let kernel = |file: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/kernel/{file}")).unwrap_or_default();
        text.trim().to_owned()
    };
    let (host, uuid) = (kernel("hostname"), kernel("random/uuid"));
    if uuid.is_empty() {
        format!("{host}_{:016x}", fastrand::u64(..))
    } else {
        format!("{host}_{uuid}")
    }
}

/// How leading ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// We were told to stop, or the work was done; the lease is free again.
    Released,
    /// The lease could not be renewed; another process may lead by now.
    Lost,
}

/// The lease as last seen, and since when it has looked like that.
#[derive(Debug)]
struct Observed {
    lease: Lease,
    since: Instant,
}

impl Candidate {
    /// Waits for the lease, does `work` while holding it, and gives it back.
    ///
    /// `work` gets a request to stop of its own. When the lease is lost it is dropped where it
    /// stands, because from then on somebody else may be writing.
    pub async fn lead<F>(&self, shutdown: &Shutdown, work: impl FnOnce(Shutdown) -> F) -> Ended
    where
        F: Future<Output = ()>,
    {
        let mut observed = None;
        tokio::select! {
            () = shutdown.requested() => return Ended::Released,
            () = self.acquire(&mut observed) => {}
        }
        info!(lease = self.name, identity = self.identity, "Leading");
        let ended = tokio::select! {
            () = self.renew(&mut observed) => Ended::Lost,
            () = work(shutdown.child()) => Ended::Released,
        };
        match ended {
            Ended::Lost => warn!(lease = self.name, "Lost the lease"),
            Ended::Released => self.release(observed).await,
        }
        ended
    }

    async fn acquire(&self, observed: &mut Option<Observed>) {
        loop {
            match self.take(observed).await {
                Ok(true) => return,
                Ok(false) => debug!(lease = self.name, "Another process leads"),
                Err(error) => {
                    warn!(
                        lease = self.name,
                        error = report::chain(&error),
                        "Cannot take the lease"
                    );
                }
            }
            // Jitter, as the protocol has it, so that those who wait do not all try at once.
            sleep(self.timings.retry.mul_f64(1.0 + fastrand::f64() * 1.2)).await;
        }
    }

    /// Returns when the lease could not be renewed in time.
    async fn renew(&self, observed: &mut Option<Observed>) {
        loop {
            sleep(self.timings.retry).await;
            let renewed = timeout(self.timings.renew, async {
                loop {
                    match self.take(observed).await {
                        Ok(true) => return,
                        Ok(false) => warn!(lease = self.name, "Another process took the lease"),
                        Err(error) => {
                            let error = report::chain(&error);
                            warn!(lease = self.name, error, "Cannot renew the lease");
                        }
                    }
                    sleep(self.timings.retry).await;
                }
            });
            if renewed.await.is_err() {
                return;
            }
        }
    }

    /// One try to take or renew the lease; whether it is ours now.
    async fn take(&self, observed: &mut Option<Observed>) -> Result<bool, CallError> {
        // While we hold it, nobody else may write it: no need to read it first.
        if let Some(ours) = observed.as_ref().filter(|seen| self.is_ours(&seen.lease)) {
            let renewed = self.claim(&ours.lease);
            if self.replace(&renewed, observed).await.is_ok() {
                return Ok(true);
            }
        }
        let Some(lease) = self.api.get_opt(&self.name).await? else {
            let claimed = self.claim(&Lease::default());
            let lease = self.api.create(&PostParams::default(), &claimed).await?;
            *observed = Some(Observed { lease, since: Instant::now() });
            return Ok(true);
        };
        let since = match observed {
            Some(seen) if seen.lease.spec == lease.spec => seen.since,
            _ => Instant::now(),
        };
        let free = self.is_ours(&lease) || is_free(&lease) || since.elapsed() >= lease_time(&lease);
        let claimed = free.then(|| self.claim(&lease));
        *observed = Some(Observed { lease, since });
        let Some(claimed) = claimed else { return Ok(false) };
        self.replace(&claimed, observed).await?;
        Ok(true)
    }

    async fn replace(
        &self,
        lease: &Lease,
        observed: &mut Option<Observed>,
    ) -> Result<(), CallError> {
        let lease = self.api.replace(&self.name, &PostParams::default(), lease).await?;
        *observed = Some(Observed { lease, since: Instant::now() });
        Ok(())
    }

    async fn release(&self, observed: Option<Observed>) {
        let Some(seen) = observed.filter(|seen| self.is_ours(&seen.lease)) else { return };
        let mut lease = seen.lease;
        let now = MicroTime(self.clock.now());
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(now.clone());
        spec.acquire_time = Some(now);
        match self.api.replace(&self.name, &PostParams::default(), &lease).await {
            Ok(_) => info!(lease = self.name, "Gave the lease back"),
            Err(error) => {
                let error = report::chain(&CallError::from(error));
                warn!(lease = self.name, error, "Cannot give the lease back");
            }
        }
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        holder(lease) == self.identity
    }

    /// `lease` with us as its holder from now on.
    fn claim(&self, lease: &Lease) -> Lease {
        let now = MicroTime(self.clock.now());
        let before = lease.spec.clone().unwrap_or_default();
        let (acquired, transitions) = if self.is_ours(lease) {
            (before.acquire_time.unwrap_or_else(|| now.clone()), before.lease_transitions)
        } else if lease.spec.is_some() {
            (now.clone(), Some(before.lease_transitions.unwrap_or(0).saturating_add(1)))
        } else {
            (now.clone(), Some(0))
        };
        let seconds = i32::try_from(self.timings.lease.as_secs()).unwrap_or(i32::MAX);
        let mut claimed = lease.clone();
        claimed.metadata.name = Some(self.name.clone());
        claimed.spec = Some(LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(seconds),
            acquire_time: Some(acquired),
            renew_time: Some(now),
            lease_transitions: transitions,
            ..before
        });
        claimed
    }
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

fn is_free(lease: &Lease) -> bool {
    holder(lease).is_empty()
}

/// How long the holder said that its lease holds.
fn lease_time(lease: &Lease) -> Duration {
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or(0);
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

#[cfg(test)]
mod tests;
