//! What the agent has to do with configs that a machine must prove healthy with.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use mco_api::{MachineConfig, NodeName, RenderedName};
use mco_host::{Answer, System};
use tracing::warn;

use super::{Agent, SyncError};
use crate::{
    cluster::Cluster,
    confirm::{self, Probe},
    disk, first_boot,
};

/// An API server that takes longer than that is none to build on.
const LIMIT: Duration = Duration::from_secs(20);

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
