//! What the agent has to do with configs that a machine must prove healthy with.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use mco_api::{MachineConfig, NodeName, RenderedName};
use mco_host::{Answer, System};
use tokio::time::Instant;
use tracing::warn;

use super::{Agent, Next, SyncError};
use crate::{
    cluster::Cluster,
    confirm::{self, Probe},
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

    /// Refuses a config that was taken back, and sees that the one that comes is confirmed.
    pub(super) async fn expect_confirmation(
        &self,
        to: &RenderedName,
        is_asked_for: bool,
    ) -> Result<(), SyncError> {
        let said = self.cluster.confirm_minutes().await?;
        let minutes = said.as_deref().map(|said| said.trim().parse::<u64>());
        let deadline = match minutes {
            None => self.limits.confirm,
            Some(Ok(minutes)) => Duration::from_secs(minutes.saturating_mul(60)),
            Some(Err(_)) => {
                warn!("{said:?} is no number of minutes; configs are confirmed as by default");
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
