//! Text output of a plan.

use std::fmt;

use super::{Drain, NodePlan, PolicyDecision};

impl fmt::Display for NodePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ends = if self.reboots() { "reboot needed" } else { "no reboot" };
        writeln!(f, "{} -> {}: {ends}, {}", self.diff.from, self.diff.to, self.drain)?;
        for decision in &self.decisions {
            writeln!(f, "  {decision}")?;
        }
        for (number, step) in self.steps.iter().enumerate() {
            writeln!(f, "  {:>3}. {step}", number + 1)?;
        }
        Ok(())
    }
}

impl fmt::Display for PolicyDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let actions: Vec<String> = self.actions.iter().map(ToString::to_string).collect();
        write!(f, "{}: {} ({})", self.subject, actions.join(", "), self.rule)
    }
}

impl fmt::Display for Drain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Needed(why) => write!(f, "drain needed ({why})"),
            Self::NotNeeded(why) => write!(f, "no drain ({why})"),
        }
    }
}
