//! One leader among several processes, by the protocol of client-go.
//!
//! A Lease is taken and kept with full updates that carry the resource version read before, so of
//! two that try at once one is refused. Whether another holder's lease has run out is judged by how
//! long *we* have seen it unchanged, never by its timestamps: clocks of two machines differ. So a
//! process of ours and one of the reference's can stand in line for the same Lease.
//!
//! Two never write at once. A leader's time counts from when it *sent* the renewal that succeeded last
//! and ends before anybody else may take the lease; [`Fence`] refuses writes from then on, even if the
//! process was stopped meanwhile and does not know yet.

mod fence;
mod timings;

use std::{future::Future, time::Duration};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{Api, api::PostParams};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{debug, info, warn};

pub use self::{
    fence::{Fence, Shut},
    timings::{BadTimings, Timings},
};
use crate::{CallError, Clock, Shutdown, error::Refused, report};

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
    /// Open while we lead; what the work writes goes through it.
    pub fence: Fence,
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

/// The lease as last seen, and since when it has looked like that; for one of ours, since when at the
/// latest others may have seen it.
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
            // What is lost is seen before anything else is done.
            biased;
            () = self.renew(&mut observed) => Ended::Lost,
            () = work(shutdown.child()) => Ended::Released,
        };
        self.fence.shut();
        match ended {
            Ended::Lost => warn!(lease = self.name, "Lost the lease"),
            Ended::Released => self.release(observed).await,
        }
        ended
    }

    async fn acquire(&self, observed: &mut Option<Observed>) {
        loop {
            // A call that hangs is not waited for: its connection may be dead.
            let taken = timeout(self.timings.renew, self.take(observed)).await;
            match taken {
                Err(_) => warn!(lease = self.name, "The API server does not answer"),
                Ok(Ok(true)) => return,
                Ok(Ok(false)) => debug!(lease = self.name, "Another process leads"),
                Ok(Err(error)) => {
                    let error = report::chain(&error);
                    warn!(lease = self.name, error, "Cannot take the lease");
                }
            }
            sleep(self.pause(observed.as_ref())).await;
        }
    }

    /// How long to wait before the next try to take the lease: not longer than its holder has it.
    fn pause(&self, observed: Option<&Observed>) -> Duration {
        // Jitter, as the protocol has it, so that those who wait do not all try at once.
        let jitter = |by: f64| self.timings.retry.mul_f64(fastrand::f64() * by);
        let pause = self.timings.retry + jitter(1.2);
        let left = |seen: &Observed| lease_time(&seen.lease).saturating_sub(seen.since.elapsed());
        match observed.filter(|seen| !is_free(&seen.lease)).map(left) {
            Some(left) if !left.is_zero() => pause.min(left + jitter(0.1)),
            Some(_) | None => pause,
        }
    }

    /// Returns when the lease could not be renewed in time.
    async fn renew(&self, observed: &mut Option<Observed>) {
        loop {
            let Some(until) = self.ends(observed.as_ref()) else { return };
            let next = Instant::now() + self.timings.retry;
            let renewed = timeout_at(until, async {
                tokio::time::sleep_until(next).await;
                self.take(observed).await
            });
            match renewed.await {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => {
                    warn!(lease = self.name, "Another process took the lease");
                    return;
                }
                Ok(Err(error)) => {
                    let error = report::chain(&error);
                    warn!(lease = self.name, error, "Cannot renew the lease");
                }
                Err(_) => return,
            }
        }
    }

    /// When our time is over, if the lease is ours.
    fn ends(&self, observed: Option<&Observed>) -> Option<Instant> {
        let ours = observed.filter(|seen| self.is_ours(&seen.lease));
        ours.map(|seen| seen.since + self.timings.renew)
    }

    /// One try to take or renew the lease; whether it is ours now.
    async fn take(&self, observed: &mut Option<Observed>) -> Result<bool, CallError> {
        // While we hold it, nobody else may write it: no need to read it first.
        if let Some(ours) = observed.as_ref().filter(|seen| self.is_ours(&seen.lease)) {
            let renewed = self.claim(&ours.lease);
            match self.replace(&renewed, observed).await {
                Ok(()) => return Ok(true),
                Err(error) if error.refused() == Some(Refused::Conflict) => {}
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        let Some(lease) = self.api.get_opt(&self.name).await? else {
            let (claimed, sent) = (self.claim(&Lease::default()), Instant::now());
            let lease = self.api.create(&PostParams::default(), &claimed).await?;
            self.hold(lease, sent, observed);
            return Ok(true);
        };
        let since = match observed {
            Some(seen) if seen.lease.spec == lease.spec => seen.since,
            _ => Instant::now(),
        };
        let free = self.is_ours(&lease) || is_free(&lease) || since.elapsed() >= lease_time(&lease);
        let claimed = free.then(|| self.claim(&lease));
        if !(self.is_ours(&lease) && self.ends(observed.as_ref()).is_some()) {
            *observed = Some(Observed { lease, since });
        }
        let Some(claimed) = claimed else { return Ok(false) };
        self.replace(&claimed, observed).await?;
        Ok(true)
    }

    async fn replace(
        &self,
        lease: &Lease,
        observed: &mut Option<Observed>,
    ) -> Result<(), CallError> {
        let sent = Instant::now();
        let lease = self.api.replace(&self.name, &PostParams::default(), lease).await?;
        self.hold(lease, sent, observed);
        Ok(())
    }

    /// The lease is ours; others may have seen it since `sent`.
    fn hold(&self, lease: Lease, sent: Instant, observed: &mut Option<Observed>) {
        *observed = Some(Observed { lease, since: sent });
        self.fence.open_until(sent + self.timings.renew);
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
