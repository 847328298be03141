//! Decides about an update that was not begun yet: check, plan, drain, apply.

use mco_api::{
    RenderedName,
    annotation::{DrainVerb, Topology},
};

use super::{
    Action, Cause, Decision, NodeAnnotations, Occasion, Phase, Update, observe::drain_request,
    turn::Turn,
};

impl Turn<'_> {
    /// Updates the node from one config to another.
    pub(super) fn update(
        mut self,
        node: &NodeAnnotations,
        from: &RenderedName,
        to: &RenderedName,
    ) -> Decision {
        let update = Update { from: from.clone(), to: to.clone(), force: self.seen.disk.force };
        let Some(prepared) = self.state.prepared.clone().filter(|it| it.update == update) else {
            self.state.prepared = None;
            return self.act(Phase::Planning, Action::Begin(update));
        };
        let back = self.seen.disk.rolled_back.as_ref();
        let is_forced = update.force && !self.seen.disk.abandoned;
        if let Some(back) = back.filter(|back| back.config == to.as_str() && !is_forced) {
            return self.fail(Cause::RolledBack(back.clone()));
        }
        if !update.force && !prepared.is_preflighted {
            let action = Action::Verify(from.clone(), Occasion::Preflight);
            return self.act(Phase::Planning, action);
        }
        let Some(planned) = prepared.planned else {
            return self.act(Phase::Planning, Action::Plan(update));
        };
        if planned.drain && node.topology != Some(Topology::SingleReplica) {
            let request = drain_request(DrainVerb::Drain, to);
            if !(node.has_requested(&request) && node.has_completed(&request)) {
                let limit = planned.drain_limit.unwrap_or(self.limits.drain);
                return self.request(Phase::Draining, request, limit);
            }
        }
        self.state.request = None;
        self.state.verified = None;
        // Each config has the full kubelet timeout.
        self.state.kubelet_down_since = None;
        self.act(Phase::Applying, Action::Apply(update))
    }
}
