//! The drain controller is asked by annotation and answers by annotation.

use mco_api::{
    RenderedName,
    annotation::{self, DrainRequest, DrainVerb},
};
use mco_core::status::machine_config_node::{DrainEvent, DrainTexts, Event};
use mco_host::System;
use tokio::time::Instant;
use tracing::info;

use super::{Agent, Next, SyncError};
use crate::{
    cluster::{Cluster, Weight},
    decide::{self, NodeView},
    report::What,
    state::Waiting,
};

impl<S: System + 'static, C: Cluster> Agent<S, C> {
    /// Has the node drained or uncordoned; none once that is done.
    pub(super) async fn await_drain(
        &mut self,
        node: &NodeView,
        verb: DrainVerb,
        config: &RenderedName,
    ) -> Result<Option<Next>, SyncError> {
        let request = decide::request(verb, config);
        if node.asked.as_ref() == Some(&request) && node.has_answer(&request) {
            if self.waiting.is_none() && verb == DrainVerb::Drain {
                info!("drain is already completed on this node");
            }
            return Ok(self.answered(&request));
        }
        if node.asked.as_ref() != Some(&request) {
            if verb == DrainVerb::Drain {
                info!("Update prepared; requesting cordon and drain via annotation to controller");
                self.cluster.tell(Weight::Normal, "Cordon", "Cordoned node to apply update").await;
                let text = "Draining node to update config.";
                self.cluster.tell(Weight::Normal, "Drain", text).await;
            }
            // Shown before it is asked for, so that whoever sees the question sees that we wait.
            let since = Waiting { what: request.to_string(), since: self.now() };
            self.glass.note(|state| state.waiting_for = Some(since));
            let key = annotation::DESIRED_DRAIN.name().to_owned();
            self.annotate([(key, Some(request.to_string()))].into()).await?;
            let node = NodeView::read(&self.known.annotations)?;
            if node.has_answer(&request) {
                return Ok(self.answered(&request));
            }
        }
        self.wait_for(request).map(Some)
    }

    fn wait_for(&mut self, request: DrainRequest) -> Result<Next, SyncError> {
        let now = Instant::now();
        let since = match &self.waiting {
            Some((waiting, since)) if *waiting == request => *since,
            _ => {
                let since = Waiting { what: request.to_string(), since: self.now() };
                self.glass.note(|state| _ = state.waiting_for.get_or_insert(since));
                now
            }
        };
        let limit = match request.verb {
            DrainVerb::Drain => self.limits.drain,
            DrainVerb::Uncordon => self.limits.uncordon,
        };
        let verb = request.verb;
        self.waiting = Some((request, since));
        if now >= since + limit {
            return Err(SyncError::NoAnswer { verb, node: self.node.clone() });
        }
        Ok(Next::Wait(Some(since + limit)))
    }

    fn answered(&mut self, request: &DrainRequest) -> Option<Next> {
        if self.waiting.take().is_some() && request.verb == DrainVerb::Drain {
            info!("drain complete");
        }
        self.glass.note(|state| state.waiting_for = None);
        match request.verb {
            DrainVerb::Drain => {
                let texts = DrainTexts { desired: request.to_string(), last: request.to_string() };
                self.say(What::DrainOver(texts));
            }
            DrainVerb::Uncordon => self.note(Event::Drain(DrainEvent::Uncordoned)),
        }
        None
    }
}
