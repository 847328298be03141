//! The drain part of the simulated controller: cordons, evicts, answers requests.

use k8s_openapi::api::core::v1::Node;
use mco_api::annotation::{self, DrainVerb};
use mco_core::drain::{self, Handshake, Limits, PendingRequest};

use crate::{
    Bug, HandshakePoint, Invariant,
    queue::Event,
    world::{World, annotate, annotated, is_cordoned, remove, set_unschedulable},
};

fn handshake(node: &Node) -> Handshake<'_> {
    Handshake::of(node.metadata.annotations.as_ref())
}

impl World {
    pub(crate) fn drain_receives(&mut self, node: usize, object: &Node) {
        match drain::pending_request(&handshake(object)) {
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
        let is_ours = handshake(object).owns_cordon() || self.has_bug(Bug::AnyCordon);
        if is_ours {
            let host = self.host(node);
            if host.cordoned_by_user && !host.cordoned_by_controller {
                let name = self.node(node).name.clone();
                self.violate(Invariant::UserCordonKept, &name);
            }
            let host = self.host(node);
            host.cordoned_by_controller = false;
            host.cordoned_by_user = false;
            self.count_unavailable(node);
            self.log_node(node, "uncordoned");
        }
        self.write_drain(node, |object| {
            if is_ours {
                set_unschedulable(object, false);
            }
            annotate(object, annotation::LAST_APPLIED_DRAIN.name(), &answer);
            remove(object, annotation::DRAIN_RECORD.name());
        });
        self.reach(HandshakePoint::Uncordoned, node);
    }

    /// Writes a node on behalf of the drain controller, which gets the new object with the
    /// response.
    fn write_drain(&mut self, node: usize, change: impl FnOnce(&mut Node)) {
        self.write(node, change);
        let record = self.node(node);
        let (version, object) = (record.version, record.object.clone());
        self.update_cache(node, version, &object);
        if let Some(pool) = self.node(node).pool.clone() {
            self.enqueue(pool);
        }
        self.drain_receives(node, &object);
    }

    /// Runs one attempt of a drain, on the node as the controller's cache has it.
    pub(crate) fn drain_attempt(&mut self, node: usize) {
        let Some(since) = self.controller.drains.get(&node).copied() else { return };
        let Some(object) = self.controller.seen.get(&node).cloned() else { return };
        let wanted = match drain::pending_request(&handshake(&object)) {
            PendingRequest::Request(request) => request.verb == DrainVerb::Drain,
            PendingRequest::None | PendingRequest::Invalid { .. } => false,
        };
        if !self.controller.up || !wanted {
            self.controller.drains.remove(&node);
            return;
        }
        if !is_cordoned(&object) || !handshake(&object).is_recorded {
            self.cordon(node);
            if !self.controller.drains.contains_key(&node) {
                // The daemon has withdrawn its request meanwhile.
                return;
            }
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
        if self.node(node).version != self.controller.version(node) {
            // The acknowledgement conflicts: the node has changed since the controller saw it.
            self.queue.push(self.now + 50, Event::Drain(node));
            return;
        }
        self.controller.drains.remove(&node);
        self.log_node(node, "drained");
        let answer = annotated(&object, annotation::DESIRED_DRAIN.name()).to_owned();
        self.write_drain(node, |object| {
            annotate(object, annotation::LAST_APPLIED_DRAIN.name(), &answer);
            remove(object, annotation::DRAIN_RECORD.name());
        });
        self.reach(HandshakePoint::Drained, node);
    }

    fn cordon(&mut self, node: usize) {
        if !std::mem::replace(&mut self.host(node).cordoned_by_controller, true) {
            self.log_node(node, "cordoned");
        }
        let forgets = !self.has_bug(Bug::OldAnswer);
        self.write_drain(node, |object| {
            set_unschedulable(object, true);
            if forgets {
                annotate(object, annotation::DRAIN_RECORD.name(), "{}");
                remove(object, annotation::LAST_APPLIED_DRAIN.name());
            }
        });
        self.count_unavailable(node);
        self.reach(HandshakePoint::Cordoned, node);
    }
}
