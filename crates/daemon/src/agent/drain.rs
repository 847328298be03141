//! Requests drain and uncordon from the drain controller by annotation, and waits for its answer.

use std::time::Duration;

use mco_api::{
    RenderedName,
    annotation::{self, DrainRequest, DrainVerb},
};
use mco_cluster::report::chain;
use mco_core::status::update_conditions::{DrainAnnotations, DrainEvent, UpdateEvent};
use mco_host::System;
use tokio::time::Instant;
use tracing::{info, warn};

use super::{AfterSync, Agent, SyncError};
use crate::{
    cluster::{Cluster, EventType},
    decide::{self, NodeAnnotations},
    machine_config_node::StatusChange,
    state::Waiting,
};

impl<S: System + 'static, C: Cluster> Agent<S, C> {
    /// Requests a drain or uncordon and waits for it; returns none once it is completed.
    pub(super) async fn await_drain(
        &mut self,
        node: &NodeAnnotations,
        verb: DrainVerb,
        config: &RenderedName,
    ) -> Result<Option<AfterSync>, SyncError> {
        let request = decide::drain_request(verb, config);
        if node.requested_drain.as_ref() == Some(&request) && node.has_completed_drain(&request) {
            if self.drain_wait.is_none() && verb == DrainVerb::Drain {
                info!("drain is already completed on this node");
            }
            return Ok(self.drain_completed(&request));
        }
        if node.requested_drain.as_ref() != Some(&request) {
            if verb == DrainVerb::Drain {
                info!("Update prepared; requesting cordon and drain via annotation to controller");
                self.cluster
                    .publish_event(EventType::Normal, "Cordon", "Cordoned node to apply update")
                    .await;
                let text = "Draining node to update config.";
                self.cluster.publish_event(EventType::Normal, "Drain", text).await;
            }
            // Published before the request, so that an observer of the request sees the wait, too.
            let since = Waiting { what: request.to_string(), since: self.now() };
            self.glass.update(|state| state.waiting_for = Some(since));
            let key = annotation::DESIRED_DRAIN.name().to_owned();
            self.annotate([(key, Some(request.to_string()))].into()).await?;
            let node = NodeAnnotations::read(&self.node_state.annotations)?;
            if node.has_completed_drain(&request) {
                return Ok(self.drain_completed(&request));
            }
        }
        let limit = match verb {
            DrainVerb::Drain => self.drain_limit().await,
            DrainVerb::Uncordon => self.limits.uncordon,
        };
        self.wait_for_drain(request, limit).map(Some)
    }

    /// Returns the drain timeout of the node's pool, or the default.
    async fn drain_limit(&self) -> Duration {
        let timeout = self.cluster.drain_timeout().await.unwrap_or_else(|error| {
            warn!(error = chain(&error), "Failed to fetch the drain timeout of the pool");
            None
        });
        timeout.unwrap_or(self.limits.drain)
    }

    fn wait_for_drain(
        &mut self,
        request: DrainRequest,
        limit: Duration,
    ) -> Result<AfterSync, SyncError> {
        let now = Instant::now();
        let since = match &self.drain_wait {
            Some((waiting, since)) if *waiting == request => *since,
            _ => {
                let since = Waiting { what: request.to_string(), since: self.now() };
                self.glass.update(|state| _ = state.waiting_for.get_or_insert(since));
                now
            }
        };
        let verb = request.verb;
        self.drain_wait = Some((request, since));
        if now >= since + limit {
            return Err(SyncError::DrainTimeout { verb, node: self.node.clone(), limit });
        }
        Ok(AfterSync::Wait(Some(since + limit)))
    }

    fn drain_completed(&mut self, request: &DrainRequest) -> Option<AfterSync> {
        if self.drain_wait.take().is_some() && request.verb == DrainVerb::Drain {
            info!("drain complete");
        }
        self.glass.update(|state| state.waiting_for = None);
        match request.verb {
            DrainVerb::Drain => {
                let texts =
                    DrainAnnotations { desired: request.to_string(), last: request.to_string() };
                self.report_status(StatusChange::DrainCompleted(texts));
            }
            DrainVerb::Uncordon => self.report_event(UpdateEvent::Drain(DrainEvent::Uncordoned)),
        }
        None
    }
}
