//! Leader election with client-go's protocol, so that processes of `mco` and of the reference can
//! compete for the same Lease.
//!
//! A candidate acquires and renews a Lease with full updates that carry the resource version it
//! read, so that one of two concurrent updates is rejected with a conflict. Expiry of another
//! holder's lease is measured by the time for which the candidate has observed it unchanged, never
//! by its timestamps, because clocks of two machines differ.
//!
//! Two leaders never write at the same time. A leader's time counts from when it *sent* the last
//! successful renewal and ends before another candidate may acquire the lease; [`Fence`] rejects
//! writes from then on, even if the process was suspended and has not noticed yet.

mod fence;
mod timings;

use std::{future::Future, time::Duration};

use http::Method;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::api::PostParams;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::{debug, info, warn};

pub use self::{
    fence::{Fence, NotLeading},
    timings::{BadTimings, Timings},
};
use crate::{
    Api, CallError, Clock, Shutdown,
    client::{Deadline, TimedOut},
    error::Rejection,
    report,
};

/// Time that the work of a leader has to end after a shutdown was requested.
pub(crate) const WORK_GRACE: Duration = Duration::from_secs(10);

/// A candidate for a lease.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Leases of the lease's namespace.
    pub api: Api<Lease>,
    /// Name of the lease.
    pub name: String,
    /// Identity of this process, different for every process.
    pub identity: String,
    /// Durations of the lease and its renewals.
    pub timings: Timings,
    /// Clock for the timestamps in the lease.
    pub clock: Clock,
    /// Open while this process leads; its writes go through it.
    pub fence: Fence,
}

/// Returns a unique identity for this process: its host name and a random part.
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

/// The end of leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeadershipEnd {
    /// The process was shut down, or its work is done; the lease was released.
    Released,
    /// The lease was not renewed in time; another process may lead.
    Lost,
    /// The process was shut down, but its work did not end in time and was dropped. The lease was
    /// not released, because a write may still be under way; it expires.
    Unfinished,
}

/// The lease as last observed. `since` is the time from which it has been unchanged; for a lease of
/// this process, the earliest time at which other candidates may have seen it.
#[derive(Debug)]
struct Observed {
    lease: Lease,
    since: Instant,
}

impl Candidate {
    /// Acquires the lease, runs `work` while holding it, and releases it.
    ///
    /// `work` gets a shutdown request of its own, and `WORK_GRACE` to end after it. When the lease
    /// is lost, `work` is dropped at once, because another process may be writing from then on.
    pub async fn lead<F>(
        &self,
        shutdown: &Shutdown,
        work: impl FnOnce(Shutdown) -> F,
    ) -> LeadershipEnd
    where
        F: Future<Output = ()>,
    {
        let mut observed = None;
        tokio::select! {
            () = shutdown.requested() => return LeadershipEnd::Released,
            () = self.acquire(&mut observed) => {}
        }
        info!(lease = self.name, identity = self.identity, "Acquired the lease");
        let ended = tokio::select! {
            // The loss of the lease is handled before anything else.
            biased;
            () = self.renew(&mut observed) => LeadershipEnd::Lost,
            () = work(shutdown.child()) => LeadershipEnd::Released,
            () = overdue(shutdown) => LeadershipEnd::Unfinished,
        };
        self.fence.shut();
        match ended {
            LeadershipEnd::Unfinished => {
                warn!(lease = self.name, after = ?WORK_GRACE, "Dropped the work of the leader");
            }
            LeadershipEnd::Lost => warn!(lease = self.name, "Lost the lease"),
            LeadershipEnd::Released => self.release(observed).await,
        }
        ended
    }

    async fn acquire(&self, observed: &mut Option<Observed>) {
        loop {
            // A request that hangs is not awaited: its connection may be dead.
            let taken = timeout(self.timings.renew, self.take(observed)).await;
            match taken {
                Err(_) => warn!(lease = self.name, "Timed out waiting for the API server"),
                Ok(Ok(true)) => return,
                Ok(Ok(false)) => debug!(lease = self.name, "Another process leads"),
                Ok(Err(error)) => {
                    let error = report::chain(&error);
                    warn!(lease = self.name, error, "Failed to acquire the lease");
                }
            }
            sleep(self.pause(observed.as_ref())).await;
        }
    }

    /// Returns the time until the next attempt to acquire the lease, not longer than the remaining
    /// time of its holder.
    fn pause(&self, observed: Option<&Observed>) -> Duration {
        // Jitter, as in client-go, so that candidates do not all try at once.
        let jitter = |by: f64| self.timings.retry.mul_f64(fastrand::f64() * by);
        let pause = self.timings.retry + jitter(1.2);
        let left = |seen: &Observed| lease_time(&seen.lease).saturating_sub(seen.since.elapsed());
        match observed.filter(|seen| !is_free(&seen.lease)).map(left) {
            Some(left) if !left.is_zero() => pause.min(left + jitter(0.1)),
            Some(_) | None => pause,
        }
    }

    /// Renews the lease until a renewal fails or times out.
    async fn renew(&self, observed: &mut Option<Observed>) {
        let mut next = Instant::now();
        loop {
            let Some(until) = self.ends(observed.as_ref()) else { return };
            // From the last attempt's start, so that the next one follows a lost answer at once.
            next = Instant::now().max(next + self.timings.retry);
            let renewed = timeout_at(until, async {
                tokio::time::sleep_until(next).await;
                self.take(observed).await
            });
            match renewed.await {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => {
                    warn!(lease = self.name, "Another process acquired the lease");
                    return;
                }
                Ok(Err(error)) => {
                    let error = report::chain(&error);
                    warn!(lease = self.name, error, "Failed to renew the lease");
                }
                Err(_) => return,
            }
        }
    }

    /// Returns the end of this process's leadership, if it holds the lease.
    fn ends(&self, observed: Option<&Observed>) -> Option<Instant> {
        let ours = observed.filter(|seen| self.is_ours(&seen.lease));
        ours.map(|seen| seen.since + self.timings.renew)
    }

    /// Tries once to acquire or renew the lease. Returns true if this process holds it.
    async fn take(&self, observed: &mut Option<Observed>) -> Result<bool, CallError> {
        // The holder need not read the lease first, because no other process may write it.
        if let Some(ours) = observed.as_ref().filter(|seen| self.is_ours(&seen.lease)) {
            let renewed = self.claim(&ours.lease);
            match self.replace(&renewed, observed).await {
                Ok(()) => return Ok(true),
                Err(error) if error.rejection() == Some(Rejection::Conflict) => {}
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        let Some(lease) = self.limited(Method::GET, self.api.get_opt(&self.name)).await? else {
            let (claimed, sent) = (self.claim(&Lease::default()), Instant::now());
            let params = PostParams::default();
            let created = self.api.create(&params, &claimed);
            let lease = self.limited(Method::POST, created).await?;
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
        let (sent, params) = (Instant::now(), PostParams::default());
        let replaced = self.api.replace(&self.name, &params, lease);
        let lease = self.limited(Method::PUT, replaced).await?;
        self.hold(lease, sent, observed);
        Ok(())
    }

    /// Sends a request that times out early enough for a second one before the lease is lost.
    async fn limited<T>(
        &self,
        method: Method,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, CallError> {
        let after = self.timings.renew.saturating_sub(self.timings.retry) / 2;
        if let Ok(result) = timeout(after, request).await {
            return Ok(result?);
        }
        let path = format!("leases/{}", self.name);
        let failure = TimedOut { deadline: Deadline::FirstByte, method, path, after };
        Err(kube::Error::Service(failure.into()).into())
    }

    /// Records that this process holds the lease, as seen by others since `sent`.
    fn hold(&self, lease: Lease, sent: Instant, observed: &mut Option<Observed>) {
        *observed = Some(Observed { lease, since: sent });
        self.fence.open_until(sent + self.timings.renew);
    }

    async fn release(&self, observed: Option<Observed>) {
        let Some(seen) = observed.filter(|seen| self.is_ours(&seen.lease)) else { return };
        let mut released = self.replace_with_free(seen.lease).await;
        // The renewal that the end of the work cancelled may have been stored.
        if released.as_ref().is_err_and(|e| e.rejection() == Some(Rejection::Conflict)) {
            released = match self.limited(Method::GET, self.api.get_opt(&self.name)).await {
                Ok(Some(lease)) if self.is_ours(&lease) => self.replace_with_free(lease).await,
                // Another process holds the lease, or deleted it.
                Ok(_) => return,
                Err(error) => Err(error),
            };
        }
        match released {
            Ok(()) => info!(lease = self.name, "Released the lease"),
            Err(error) => {
                let error = report::chain(&error);
                warn!(lease = self.name, error, "Failed to release the lease");
            }
        }
    }

    /// Replaces `lease`, which this process holds, with a lease that has no holder.
    async fn replace_with_free(&self, mut lease: Lease) -> Result<(), CallError> {
        let now = MicroTime(self.clock.now());
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(now.clone());
        spec.acquire_time = Some(now);
        let params = PostParams::default();
        let replaced = self.api.replace(&self.name, &params, &lease);
        self.limited(Method::PUT, replaced).await.map(drop)
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        holder(lease) == self.identity
    }

    /// Returns `lease` with this process as its holder.
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

/// Waits until the work of a leader has had its time after a shutdown was requested.
async fn overdue(shutdown: &Shutdown) {
    shutdown.requested().await;
    sleep(WORK_GRACE).await;
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

fn is_free(lease: &Lease) -> bool {
    holder(lease).is_empty()
}

/// Returns the duration that the holder wrote into the lease.
fn lease_time(lease: &Lease) -> Duration {
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or(0);
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

#[cfg(test)]
mod tests;
