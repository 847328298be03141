//! The drain part of the simulated controller: cordons, evicts, answers requests.

use k8s_openapi::api::core::v1::Node;
use mco_api::annotation::{self, DrainVerb};
use mco_core::drain::{self, Limits, PendingRequest};

use crate::{
    queue::Event,
    world::{World, annotate, annotated, set_unschedulable},
};

fn pending_request(node: &Node) -> PendingRequest {
    let value = |key: &str| Some(annotated(node, key)).filter(|text| !text.is_empty());
    let (desired, applied) =
        (annotation::DESIRED_DRAIN.name(), annotation::LAST_APPLIED_DRAIN.name());
    drain::pending_request(value(desired), value(applied))
}

impl World {
    pub(crate) fn drain_receives(&mut self, node: usize, object: &Node) {
        match pending_request(object) {
            PendingRequest::None | PendingRequest::Invalid { .. } => {
                self.controller.drains.remove(&node);
            }
            PendingRequest::Request(request) => match request.verb {
                DrainVerb::Uncordon => self.uncordon(node, object),
                DrainVerb::Drain => {
                    if !self.controller.drains.contains_key(&node) {
                        self.controller.drains.insert(node, self.now);
                        self.queue.push(self.now, Event::Drain(node));
                    }
                }
            },
        }
    }

    fn uncordon(&mut self, node: usize, object: &Node) {
        self.controller.drains.remove(&node);
        let answer = annotated(object, annotation::DESIRED_DRAIN.name()).to_owned();
        self.host(node).cordoned_by_controller = false;
        self.host(node).cordoned_by_user = false;
        self.count_unavailable(node);
        self.log_node(node, "uncordoned");
        self.write(node, |object| {
            set_unschedulable(object, false);
            annotate(object, annotation::LAST_APPLIED_DRAIN.name(), &answer);
        });
    }

    /// Runs one attempt of a drain.
    pub(crate) fn drain_attempt(&mut self, node: usize) {
        let Some(since) = self.controller.drains.get(&node).copied() else { return };
        let object = self.node(node).object.clone();
        let wanted = match pending_request(&object) {
            PendingRequest::Request(request) => request.verb == DrainVerb::Drain,
            PendingRequest::None | PendingRequest::Invalid { .. } => false,
        };
        if !self.controller.up || !wanted {
            self.controller.drains.remove(&node);
            return;
        }
        if !std::mem::replace(&mut self.host(node).cordoned_by_controller, true) {
            self.log_node(node, "cordoned");
            self.write(node, |object| set_unschedulable(object, true));
            self.count_unavailable(node);
        }
        if self.evict(node) {
            let age = std::time::Duration::from_millis(self.now - since);
            let pause = if age.as_secs() < 90 {
                5_000
            } else {
                drain::retry_after(&Limits::REFERENCE, age).as_millis()
            };
            self.queue.push(self.now + u64::try_from(pause).unwrap_or(300_000), Event::Drain(node));
            return;
        }
        self.controller.drains.remove(&node);
        self.log_node(node, "drained");
        let answer = annotated(&object, annotation::DESIRED_DRAIN.name()).to_owned();
        self.write(node, |object| {
            annotate(object, annotation::LAST_APPLIED_DRAIN.name(), &answer);
        });
    }
}
