//! The part of the agent that deals with configs that must be confirmed after a reboot.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Client;
use mco_api::{
    NodeName,
    duration::{self, DurationError},
};
use mco_apply::{
    ParsedConfig,
    confirm::{self, standby},
    disk, first_boot,
};
use mco_cluster::report::chain;
use mco_core::{
    lifecycle::{CheckResult, Outcome, Phase, Update},
    status::update_conditions::UpdateEvent,
};
use mco_host::System;
use tracing::{info, warn};

use super::{Agent, SyncError};
use crate::{cluster::Cluster, startup::Probe};

/// Timeout of a request to the API server.
const API_TIMEOUT: Duration = Duration::from_secs(20);

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
    pub(super) async fn pivot_if_needed(&self, config: &ParsedConfig) -> Result<bool, SyncError> {
        let machine = config.machine.clone();
        self.on_host(move |host| -> Result<_, SyncError> {
            if disk::initial_annotations(&host.root)?.is_none() {
                host.system.check_extensions(&machine.spec.extensions)?;
                return Ok(false);
            }
            Ok(first_boot::pivot(host, &machine)?)
        })
        .await?
    }

    /// Checks a kubelet that was healthy before the update.
    pub(super) async fn check_kubelet(&mut self) -> Result<Outcome, SyncError> {
        if let (Phase::Verifying | Phase::Starting, Some(config)) =
            (self.phase_before, self.disk.current.clone())
        {
            info!("Completing update to target MachineConfig: {config}");
            self.report_event(UpdateEvent::Resumed(config.to_string()));
        }
        let answer: CheckResult = self.on_host(|host| confirm::kubelet(host)).await??;
        Ok(Outcome::Kubelet(answer))
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

    /// Requires a confirmation of the next config, and forgets a rolled back config if it may be
    /// retried.
    pub(super) async fn require_confirmation(&self, update: &Update) -> Result<(), SyncError> {
        let value = self.cluster.confirmation_time().await?;
        let deadline = match value.as_deref().map(|value| (value, parse_time(value))) {
            None => self.limits.confirm,
            Some((_, Ok(time))) => time,
            Some((value, Err(bad))) => {
                warn!(value, error = %bad, "Ignored an invalid confirmation time");
                self.limits.confirm
            }
        };
        // After a rollback, the request of an abandoned update is there again.
        let is_forced = update.force && !self.disk.abandoned;
        let config = update.to.to_string();
        self.on_host(move |host| -> Result<(), SyncError> {
            confirm::prepare(host, deadline)?;
            confirm::refusal(&host.root, &config, is_forced)?;
            Ok(())
        })
        .await?
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
