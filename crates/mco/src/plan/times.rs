//! Estimated duration of an update, from the duration of each kind of step.

use std::str::FromStr;

use mco_core::plan::{Drain, NodePlan, Step};

use crate::duration;

/// Duration of each kind of step, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    drain: u64,
    files: u64,
    image: u64,
    service: u64,
    reboot: u64,
}

impl Times {
    /// Default durations; servers boot slowly.
    pub(crate) const DEFAULT: Self =
        Self { drain: 120, files: 5, image: 180, service: 5, reboot: 300 };

    /// Returns these durations with some of them replaced.
    pub(crate) fn with(mut self, overrides: &[TimeOverride]) -> Self {
        for TimeOverride { step, seconds } in overrides {
            let time = match step {
                StepKind::Drain => &mut self.drain,
                StepKind::Files => &mut self.files,
                StepKind::Image => &mut self.image,
                StepKind::Service => &mut self.service,
                StepKind::Reboot => &mut self.reboot,
            };
            *time = *seconds;
        }
        self
    }

    /// Returns the duration of an update of one node.
    pub(crate) fn of(&self, plan: &NodePlan) -> u64 {
        let has = |step: fn(&Step) -> bool| plan.steps.iter().any(step);
        let services = plan.steps.iter().filter(|step| is_service(step)).count();
        let services = u64::try_from(services).unwrap_or(u64::MAX);
        let parts = [
            (matches!(plan.drain, Drain::Needed(_)), self.drain),
            // All files count as one step.
            (true, self.files),
            (has(Step::stages), self.image),
            (true, self.service.saturating_mul(services)),
            (plan.reboots(), self.reboot),
        ];
        let parts = parts.into_iter().filter_map(|(needed, time)| needed.then_some(time));
        parts.fold(0, u64::saturating_add)
    }
}

fn is_service(step: &Step) -> bool {
    matches!(step, Step::ReloadSystemd | Step::ReloadService(_) | Step::RestartService(_))
}

/// A duration given by the user: `reboot=10m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeOverride {
    step: StepKind,
    seconds: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StepKind {
    Drain,
    Files,
    Image,
    Service,
    Reboot,
}

const SYNTAX: &str = "write STEP=TIME, such as reboot=10m; the steps are drain, files, image, \
                     service and reboot, the units s, m and h";

impl FromStr for TimeOverride {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || SYNTAX.to_owned();
        let (step, time) = text.split_once('=').ok_or_else(bad)?;
        let step = match step {
            "drain" => StepKind::Drain,
            "files" => StepKind::Files,
            "image" => StepKind::Image,
            "service" => StepKind::Service,
            "reboot" => StepKind::Reboot,
            _ => return Err(bad()),
        };
        Ok(Self { step, seconds: duration::parse(time).ok_or_else(bad)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_gets_another_duration() {
        let given = |text: &str| text.parse::<TimeOverride>().map(|given| given.seconds).ok();
        assert_eq!(given("reboot=10m"), Some(600));
        assert_eq!(given("drain=90s"), Some(90));
        assert_eq!(given("image=1h"), Some(3600));
        assert_eq!(given("files=7"), Some(7));
        for bad in ["reboot", "reboot=", "boot=1m", "reboot=1d", "reboot=-1m", "reboot=m"] {
            assert_eq!(given(bad), None, "{bad}");
        }
    }
}
