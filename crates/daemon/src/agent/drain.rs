//! Requests drain and uncordon from the drain controller by annotation.

use mco_api::annotation::{self, DrainRequest, DrainVerb};
use mco_core::{lifecycle::Outcome, status::update_conditions::DrainAnnotations};
use mco_host::System;
use tracing::info;

use super::{Agent, SyncError};
use crate::{
    cluster::{Cluster, EventType},
    machine_config_node::StatusChange,
};

impl<S: System + 'static, C: Cluster> Agent<S, C> {
    /// Requests a drain or an uncordon.
    pub(super) async fn request(&mut self, request: DrainRequest) -> Result<Outcome, SyncError> {
        if request.verb == DrainVerb::Drain {
            info!("Update prepared; requesting cordon and drain via annotation to controller");
            let text = "Cordoned node to apply update";
            self.cluster.publish_event(EventType::Normal, "Cordon", text).await;
            let text = "Draining node to update config.";
            self.cluster.publish_event(EventType::Normal, "Drain", text).await;
        }
        if let Some(preparation) = &mut self.preparation {
            preparation.has_requested_drain = true;
        }
        let key = annotation::DESIRED_DRAIN.name().to_owned();
        self.annotate([(key, Some(request.to_string()))].into()).await?;
        Ok(Outcome::Done)
    }

    /// Reports that the drain controller drained the node.
    pub(super) fn report_drained(&self, request: &DrainRequest, was_awaited: bool) {
        if was_awaited {
            info!("drain complete");
        } else {
            info!("drain is already completed on this node");
        }
        let texts = DrainAnnotations { desired: request.to_string(), last: request.to_string() };
        self.report_status(StatusChange::DrainCompleted(texts));
    }
}
