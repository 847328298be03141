//! Decides about an update that the disk records: continue, undo, reboot, confirm or close it.

use std::time::Duration;

use super::{
    Action, Decision, HealthDecision, Phase, Resume, Stage, UnfinishedUpdate,
    health::{self, START_COST},
    resume,
    turn::Turn,
};

impl Turn<'_> {
    /// Decides about an unfinished update.
    ///
    /// Before the daemon has joined the cluster, only a config that the machine has rebooted into is
    /// confirmed or rolled back: joining the cluster may be the very thing that the config broke.
    pub(super) fn unfinished(mut self, update: &UnfinishedUpdate) -> Decision {
        self.state.verified = None;
        let has_joined = self.seen.node.is_some();
        let progress = &update.progress;
        let was_booted = progress.back_in.is_some();
        let found = resume(progress, &update.began_in, &self.seen.disk.boot_id);
        if found != Resume::Verify {
            self.state.confirming = None;
        }
        match found {
            Resume::Continue(_) if self.is_superseded(update) => {
                self.act(Phase::RollingBack, Action::Undo)
            }
            Resume::Continue(done) if has_joined => {
                self.act(Phase::Applying, Action::Continue(done))
            }
            Resume::Undo if has_joined || was_booted => self.act(Phase::RollingBack, Action::Undo),
            Resume::Reboot if progress.stage == Stage::Returning => {
                self.reboot(update.from.clone())
            }
            Resume::Reboot if has_joined => self.reboot(update.to.clone()),
            Resume::Verify => match update.deadline.filter(|_| !progress.confirmed) {
                Some(deadline) => self.confirm(update, deadline),
                None if !has_joined => self.act(Phase::Starting, Action::Connect),
                // Once: a machine that falls back to its previous system again needs its
                // administrator.
                None if !update.is_booted && progress.again_in.is_none() => {
                    self.act(Phase::Applying, Action::ApplyAgain)
                }
                None => self.act(Phase::Verifying, Action::Close),
            },
            Resume::Continue(_) | Resume::Undo | Resume::Reboot => {
                self.act(Phase::Starting, Action::Connect)
            }
        }
    }

    /// Returns true if a service action of the update fails, and the node needs it no longer: another
    /// config is desired, or the force file asks to write everything again.
    fn is_superseded(&self, update: &UnfinishedUpdate) -> bool {
        let Some(node) = &self.seen.node else { return false };
        let is_other = node.desired.as_ref().is_some_and(|it| it.as_str() != update.to);
        update.progress.fault.is_some() && (is_other || self.seen.disk.force)
    }

    /// Confirms the config that the machine has rebooted into, or rolls it back.
    fn confirm(mut self, update: &UnfinishedUpdate, deadline: Duration) -> Decision {
        let before = Duration::from_secs(update.progress.waited);
        let (since, spent) = *self.state.confirming.get_or_insert((self.now, before + START_COST));
        let waited = spent + self.now.saturating_sub(since);
        let Some(health) = self.state.health.take() else {
            return self.act(Phase::Confirming, Action::CheckHealth);
        };
        match health::decide(&health, waited, deadline) {
            HealthDecision::Keep => self.act(Phase::Confirming, Action::Confirm),
            HealthDecision::RollBack(why) => self.act(Phase::RollingBack, Action::RollBack(why)),
            HealthDecision::Wait(pause) => {
                let mut decision = self.wait(Phase::Confirming, pause);
                // Not at every check, because the ledger would only grow.
                if waited >= before + START_COST {
                    decision.action = Action::RecordWait(waited);
                }
                decision
            }
        }
    }
}
