//! What the agent has to do with configs that a machine must prove healthy with.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use mco_api::{
    MachineConfig, NodeName, RenderedName,
    duration::{self, BadDuration},
};
use mco_cluster::report::chain;
use mco_host::{Answer, System};
use tokio::time::Instant;
use tracing::warn;

use super::{Agent, Next, SyncError};
use crate::{
    cluster::Cluster,
    confirm::{self, Probe, standby},
    disk, first_boot,
    state::Waiting,
};

/// An API server that takes longer than that is none to build on.
const LIMIT: Duration = Duration::from_secs(20);

/// How often a kubelet that is missed is asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// Asks for the node that the machine is.
pub(crate) struct OwnNode {
    pub(crate) client: Client,
    pub(crate) node: NodeName,
}

impl Probe for OwnNode {
    async fn cluster(&self) -> Answer {
        let nodes: Api<Node> = Api::all(self.client.clone());
        match tokio::time::timeout(LIMIT, nodes.get_metadata_opt(self.node.as_str())).await {
            // Whoever refuses is there, too.
            Ok(Ok(_) | Err(kube::Error::Api(_))) => Answer::Yes,
            Ok(Err(error)) => Answer::No(format!("the cluster cannot be reached: {error}")),
            Err(_) => Answer::No(format!(
                "the cluster cannot be reached: no answer within {} seconds",
                LIMIT.as_secs()
            )),
        }
    }
}

impl<S: System + 'static, C: Cluster> Agent<S, C> {
    /// Has a machine that joins boot the image of its config, where it has another one; says whether it
    /// must reboot for it. Any other must have booted with all that its extensions are made of.
    pub(super) async fn pivots_to(&self, config: &MachineConfig) -> Result<bool, SyncError> {
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

    /// Waits for a kubelet that was well before the update, so that a config which breaks it in place
    /// goes no further than this node; none once it is well.
    pub(super) async fn await_kubelet(&mut self) -> Result<Option<Next>, SyncError> {
        let answer = self.on_host(|host| confirm::kubelet(host)).await??;
        let Answer::No(why) = answer else {
            if self.missed.take().is_some() {
                self.glass.note(|state| state.waiting_for = None);
            }
            return Ok(None);
        };
        let now = Instant::now();
        let since = *self.missed.get_or_insert(now);
        if now >= since + self.limits.kubelet {
            return Err(SyncError::Unwell(why));
        }
        let waiting = Waiting { what: "the kubelet".to_owned(), since: self.now() };
        self.glass.note(|state| _ = state.waiting_for.get_or_insert(waiting));
        Ok(Some(Next::Wait(Some(now + PAUSE))))
    }

    /// Sees that the machine takes the config back by itself, should no daemon come up after the reboot.
    pub(super) async fn leave_standby(&self) -> Result<(), SyncError> {
        let Some(program) = self.standby.clone() else { return Ok(()) };
        let left = self.on_host(move |host| standby::arrange(host, &program)).await?;
        if let Err(error) = left {
            warn!(
                error = chain(&error),
                "The machine cannot take the config back without a daemon"
            );
        }
        Ok(())
    }

    /// Refuses a config that was taken back, and sees that the one that comes is confirmed.
    pub(super) async fn expect_confirmation(
        &self,
        to: &RenderedName,
        is_asked_for: bool,
    ) -> Result<(), SyncError> {
        let said = self.cluster.confirm_minutes().await?;
        let deadline = match said.as_deref().map(|said| (said, time(said))) {
            None => self.limits.confirm,
            Some((_, Ok(time))) => time,
            Some((said, Err(bad))) => {
                warn!("{said:?} is {bad}; configs are confirmed as by default");
                self.limits.confirm
            }
        };
        let config = to.to_string();
        let refusal = self
            .on_host(move |host| -> Result<_, SyncError> {
                confirm::prepare(host, deadline)?;
                Ok(confirm::refusal(&host.root, &config, is_asked_for)?)
            })
            .await??;
        match refusal {
            Some(back) => Err(SyncError::TakenBack(back)),
            None => Ok(()),
        }
    }
}

/// How long a machine has: minutes, or a time such as 90s.
fn time(text: &str) -> Result<Duration, BadDuration> {
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
    fn a_number_is_minutes_and_anything_else_says_its_unit() {
        for (text, want) in [("15", 900), (" 0 ", 0), ("90s", 90), ("1h30m", 5400)] {
            assert_eq!(time(text), Ok(Duration::from_secs(want)), "{text}");
        }
        assert!(time("soon").is_err() && time("-1").is_err() && time("").is_err());
    }
}
