//! The state of the processes: of the controller, as its Lease shows it, and of workloads.

use std::time::Duration;

use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment},
    coordination::v1::Lease,
};

/// Shortest lease duration that is assumed. A released Lease has a duration of one second.
const MIN_DURATION: Duration = Duration::from_secs(15);

/// Time in which another process acquires an expired or released Lease.
const TAKEOVER: Duration = Duration::from_secs(15);

/// The state of the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControllerState {
    /// There is no Lease: no controller was started yet, or it runs without leader election.
    NoLease,
    /// The Lease is held and renewed, or another process may still acquire it.
    Running,
    /// The Lease is not renewed any more.
    Silent {
        /// Last holder of the Lease; empty if it was released.
        holder: String,
        /// Time without a renewal that a running controller never reaches.
        limit: Duration,
    },
}

/// Returns the state of the controller from its Lease, which the caller has observed `unchanged`
/// for that long.
///
/// The timestamps in the Lease are not compared with a clock: clocks of two machines differ.
#[must_use]
pub fn controller_state(lease: Option<&Lease>, unchanged: Duration) -> ControllerState {
    let Some(lease) = lease else { return ControllerState::NoLease };
    let limit = silence_limit(lease);
    if unchanged < limit {
        return ControllerState::Running;
    }
    let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
    ControllerState::Silent { holder: holder.unwrap_or_default(), limit }
}

/// Returns the time without a change of the Lease after which its holder does not run.
#[must_use]
pub fn silence_limit(lease: &Lease) -> Duration {
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    let seconds = u64::try_from(seconds.unwrap_or_default()).unwrap_or_default();
    Duration::from_secs(seconds).max(MIN_DURATION) + TAKEOVER
}

/// The pods of a Deployment or a DaemonSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Number of pods that should run.
    pub desired: i32,
    /// Number of pods that are ready.
    pub ready: i32,
}

impl Workload {
    /// Returns the pods of a Deployment; `None` before its status was written.
    #[must_use]
    pub fn of_deployment(deployment: &Deployment) -> Option<Self> {
        let status = deployment.status.as_ref()?;
        status.observed_generation?;
        let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas);
        let ready = status.available_replicas.unwrap_or_default();
        Some(Self { desired: replicas.unwrap_or(1), ready })
    }

    /// Returns the pods of a DaemonSet; `None` before its status was written.
    #[must_use]
    pub fn of_daemon_set(daemon_set: &DaemonSet) -> Option<Self> {
        let status = daemon_set.status.as_ref()?;
        status.observed_generation?;
        Some(Self { desired: status.desired_number_scheduled, ready: status.number_ready })
    }

    /// Returns true if no pod is ready. A workload that should have no pods is not down: a cluster
    /// with a hosted control plane has no nodes for the config server.
    pub(super) fn is_down(self) -> bool {
        self.desired > 0 && self.ready == 0
    }

    /// Returns the state of a workload without ready pods as text.
    pub(super) fn cause(self, kind: &str, namespace: &str, name: &str) -> String {
        let pods =
            if self.desired == 1 { "1 pod".to_owned() } else { format!("{} pods", self.desired) };
        format!(
            "none of the {pods} of the {kind} {namespace}/{name} is ready; see: kubectl describe pods -n \
             {namespace} -l k8s-app={name}"
        )
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::coordination::v1::LeaseSpec;

    use super::*;

    #[test]
    fn a_controller_is_silent_when_its_lease_stays_unchanged_beyond_its_duration() {
        let lease = |holder: &str, seconds: i32| Lease {
            spec: Some(LeaseSpec {
                holder_identity: Some(holder.to_owned()),
                lease_duration_seconds: Some(seconds),
                ..LeaseSpec::default()
            }),
            ..Lease::default()
        };
        let silent = |holder: &str, seconds| ControllerState::Silent {
            holder: holder.to_owned(),
            limit: Duration::from_secs(seconds),
        };
        let cases = [
            (None, 1000, ControllerState::NoLease),
            (Some(lease("a", 15)), 0, ControllerState::Running),
            (Some(lease("a", 15)), 29, ControllerState::Running),
            (Some(lease("a", 15)), 30, silent("a", 30)),
            (Some(lease("a", 137)), 151, ControllerState::Running),
            (Some(lease("a", 137)), 152, silent("a", 152)),
            // A controller that stopped, and one that is replaced.
            (Some(lease("", 1)), 29, ControllerState::Running),
            (Some(lease("", 1)), 30, silent("", 30)),
            // Another client wrote it.
            (Some(lease("a", -5)), 29, ControllerState::Running),
            (Some(Lease::default()), 30, silent("", 30)),
        ];
        for (lease, seconds, expected) in cases {
            let found = controller_state(lease.as_ref(), Duration::from_secs(seconds));
            assert_eq!(found, expected, "{lease:?} unchanged for {seconds} s");
        }
    }
}
