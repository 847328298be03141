//! Boots, reboots and failures of simulated machines.

use super::{Activity, Host, NotReadyCause, Power};
use crate::{
    Fault, Flaw, HandshakePoint, Invariant,
    queue::Event,
    world::{Disruption, World, set_ready},
};

impl World {
    /// Reboots a machine at the request of its daemon.
    pub(super) fn reboot(&mut self, node: usize) {
        let update = self.host(node).update.clone().unwrap_or_default();
        let disruption = self.disruption(&update.from, &update.to);
        let drain_due = disruption != Disruption::Needs { drain: false, reboot: true };
        if drain_due && !(self.is_cordoned(node) && self.pods.to_evict(node).is_empty()) {
            let name = self.node(node).name.clone();
            self.violate(Invariant::DrainBeforeReboot, &name);
        }
        // A daemon that confirms its config has not joined the cluster.
        if self.host(node).has_joined {
            self.announce_reboot(node);
        }
        self.log_node(node, "rebooting");
        let lost = self.fault_occurs(Fault::LostMachine);
        self.power_off(node, if lost { Power::Lost } else { Power::Rebooting });
        self.reach(HandshakePoint::Rebooting, node);
        if !lost {
            let time = self.setup.times.reboot;
            self.queue.push(self.now + time, Event::Boot(node));
        }
    }

    fn power_off(&mut self, node: usize, power: Power) {
        self.reboots += 1;
        let host = self.host(node);
        host.restart_daemon();
        host.power = power;
        self.count_unavailable(node);
        self.write(node, |object| set_ready(object, "Unknown"));
    }

    pub(crate) fn boot(&mut self, node: usize) {
        let old = self.fault_occurs(Fault::OldBoot);
        let late = self.fault_occurs(Fault::LateReady);
        let host = self.host(node);
        host.power = Power::On;
        host.boots += 1;
        if !old {
            host.booted = host.disk.clone();
        }
        host.not_ready.retain(|cause| *cause == NotReadyCause::External);
        host.activity = Activity::Starting;
        let (booted, run) = (host.booted.clone(), host.run);
        if self.setup.flaws.get(&booted) == Some(&Flaw::NotReadyAtBoot) {
            self.host(node).not_ready.insert(NotReadyCause::BootFailure);
        }
        if late {
            self.host(node).not_ready.insert(NotReadyCause::External);
            self.queue.push(self.now + 180_000, Event::Recovers(node));
        }
        self.count_unavailable(node);
        self.log_node(node, &format!("booted {booted}"));
        self.report_ready(node);
        self.queue.push(self.now + 1_000, Event::Daemon { node, run });
    }

    pub(super) fn report_ready(&mut self, node: usize) {
        let status = if self.host(node).is_ready() { "True" } else { "False" };
        self.write(node, |object| set_ready(object, status));
    }

    /// Makes a node unready for some minutes, by an external problem.
    pub(crate) fn blip(&mut self, node: usize) {
        if self.hosts.get(node).is_some_and(Host::is_ready) {
            self.host(node).not_ready.insert(NotReadyCause::External);
            self.log_node(node, "not ready, because of an external problem");
            self.report_ready(node);
            self.queue.push(self.now + 180_000, Event::Recovers(node));
        }
    }

    pub(crate) fn recovers(&mut self, node: usize) {
        self.host(node).not_ready.remove(&NotReadyCause::External);
        if self.host(node).power == Power::On {
            self.report_ready(node);
        }
    }

    pub(crate) fn late_failure(&mut self, node: usize) {
        let booted = self.host(node).booted.clone();
        if self.setup.flaws.get(&booted) == Some(&Flaw::NotReadyLater) {
            self.host(node).not_ready.insert(NotReadyCause::LateFailure);
            self.log_node(node, &format!("not ready any more, because of {booted}"));
            self.report_ready(node);
        }
    }

    /// Restarts a machine that is lost, or that runs another system than its config asks for.
    pub(crate) fn restart_by_administrator(&mut self, node: usize) {
        let host = self.host(node);
        let is_other = host.power == Power::On && host.booted != host.disk;
        if host.power != Power::Lost && !is_other {
            return;
        }
        self.log_node(node, "restarted by the administrator");
        self.power_off(node, Power::Rebooting);
        let time = self.setup.times.reboot;
        self.queue.push(self.now + time, Event::Boot(node));
    }
}
