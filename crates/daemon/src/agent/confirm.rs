//! The part of the agent that deals with configs that must be confirmed after a reboot.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Client;
use mco_api::{
    MachineConfig, NodeName, RenderedName,
    duration::{self, DurationError},
};
use mco_cluster::report::chain;
use mco_host::{CheckResult, System};
use tokio::time::Instant;
use tracing::warn;

use super::{AfterSync, Agent, SyncError};
use crate::{
    cluster::Cluster,
    confirm::{self, Probe, standby},
    disk, first_boot,
    state::Waiting,
};

/// Timeout of a request to the API server.
const API_TIMEOUT: Duration = Duration::from_secs(20);

/// Pause between two checks of an unhealthy kubelet.
const KUBELET_INTERVAL: Duration = Duration::from_secs(1);

/// Probes the API server by reading the machine's own Node.
pub(crate) struct OwnNode {
    pub(crate) client: Client,
    pub(crate) node: NodeName,
}

impl Probe for OwnNode {
    async fn check_api_server(&self) -> CheckResult {
        let nodes: kube::Api<Node> = kube::Api::all(self.client.clone());
        match tokio::time::timeout(API_TIMEOUT, nodes.get_metadata_opt(self.node.as_str())).await {
            // An API server that refuses the request is reachable, too.
            Ok(Ok(_) | Err(kube::Error::Api(_))) => CheckResult::Passed,
            Ok(Err(error)) => {
                CheckResult::Failed(format!("failed to reach the API server: {error}"))
            }
            Err(_) => CheckResult::Failed(format!(
                "failed to reach the API server: no response within {} seconds",
                API_TIMEOUT.as_secs()
            )),
        }
    }
}

impl<S: System + 'static, C: Cluster> Agent<S, C> {
    /// Stages the OS image of the config on a machine that joins with another one; returns true if
    /// the machine must reboot into the image. On any other machine, checks that the packages of
    /// the config's extensions are installed.
    pub(super) async fn pivot_if_needed(&self, config: &MachineConfig) -> Result<bool, SyncError> {
        let machine = super::update::read(config)?;
        self.on_host(move |host| -> Result<_, SyncError> {
            if disk::initial_annotations(&host.root)?.is_none() {
                host.system.check_extensions(&machine.spec.extensions)?;
                return Ok(false);
            }
            Ok(first_boot::pivot(host, &machine)?)
        })
        .await?
    }

    /// Waits for a kubelet that was healthy before the update, so that a config that breaks the
    /// kubelet reaches no other node; returns none once the kubelet is healthy.
    pub(super) async fn await_kubelet(&mut self) -> Result<Option<AfterSync>, SyncError> {
        let answer = self.on_host(|host| confirm::kubelet(host)).await??;
        let CheckResult::Failed(why) = answer else {
            if self.kubelet_down_since.take().is_some() {
                self.glass.update(|state| state.waiting_for = None);
            }
            return Ok(None);
        };
        let now = Instant::now();
        let since = *self.kubelet_down_since.get_or_insert(now);
        if now >= since + self.limits.kubelet {
            return Err(SyncError::KubeletUnhealthy(why));
        }
        let waiting = Waiting { what: "the kubelet".to_owned(), since: self.now() };
        self.glass.update(|state| _ = state.waiting_for.get_or_insert(waiting));
        Ok(Some(AfterSync::Wait(Some(now + KUBELET_INTERVAL))))
    }

    /// Installs the standby unit, which rolls the config back if no daemon starts after the reboot.
    pub(super) async fn install_standby(&self) -> Result<(), SyncError> {
        let Some(program) = self.standby.clone() else { return Ok(()) };
        let left = self.on_host(move |host| standby::arrange(host, &program)).await?;
        if let Err(error) = left {
            warn!(error = chain(&error), "Failed to install the standby unit");
        }
        Ok(())
    }

    /// Refuses a config that was rolled back, and requires a confirmation of the next one.
    pub(super) async fn require_confirmation(
        &self,
        to: &RenderedName,
        is_forced: bool,
    ) -> Result<(), SyncError> {
        let value = self.cluster.confirmation_time().await?;
        let deadline = match value.as_deref().map(|value| (value, parse_time(value))) {
            None => self.limits.confirm,
            Some((_, Ok(time))) => time,
            Some((value, Err(bad))) => {
                warn!(value, error = %bad, "Ignored an invalid confirmation time");
                self.limits.confirm
            }
        };
        let config = to.to_string();
        let refusal = self
            .on_host(move |host| -> Result<_, SyncError> {
                confirm::prepare(host, deadline)?;
                Ok(confirm::refusal(&host.root, &config, is_forced)?)
            })
            .await??;
        match refusal {
            Some(back) => Err(SyncError::RolledBack(back)),
            None => Ok(()),
        }
    }
}

/// Parses a confirmation time: minutes, or a duration such as 90s.
fn parse_time(text: &str) -> Result<Duration, DurationError> {
    let text = text.trim();
    match text.parse::<u64>() {
        Ok(minutes) => Ok(Duration::from_secs(minutes.saturating_mul(60))),
        Err(_) => duration::parse(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_number_is_minutes_and_a_duration_has_a_unit() {
        for (text, want) in [("15", 900), (" 0 ", 0), ("90s", 90), ("1h30m", 5400)] {
            assert_eq!(parse_time(text), Ok(Duration::from_secs(want)), "{text}");
        }
        assert!(
            parse_time("soon").is_err() && parse_time("-1").is_err() && parse_time("").is_err()
        );
    }
}
