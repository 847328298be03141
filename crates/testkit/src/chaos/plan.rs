//! Plans of faults: values that are printed when a run fails, and read to run it again.

use std::{fmt, str::FromStr};

use super::Fault;

/// Applies a fault to the request with the number `from`, or to the first one after it to which the
/// fault applies, and to `count` such requests in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Number of the first request, from one.
    pub from: usize,
    /// Number of requests.
    pub count: usize,
    /// The fault.
    pub fault: Fault,
}

/// The faults of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan(Vec<Rule>);

/// A text that is no plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError(String);

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no rule such as 12:swallow-answer or 12x3:answer-503", self.0)
    }
}

impl std::error::Error for PlanError {}

/// Maximum number of rules in a random plan, and of requests of a rule.
const MAX_RULES: usize = 6;
const MAX_COUNT: usize = 5;

impl Plan {
    /// Returns the plan of a single fault at the request with this number.
    #[must_use]
    pub fn single(number: usize, fault: Fault) -> Self {
        Self::several([(number, fault)])
    }

    /// Returns the plan of one fault at each of several requests.
    #[must_use]
    pub fn several(faults: impl IntoIterator<Item = (usize, Fault)>) -> Self {
        let rule = |(from, fault)| Rule { from, count: 1, fault };
        Self(faults.into_iter().map(rule).collect())
    }

    /// Returns the random plan of a seed, for a run of about `requests` requests.
    #[must_use]
    pub fn random(seed: u64, requests: usize) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let rules = random.usize(2..=MAX_RULES);
        let rule = |_| Rule {
            from: random.usize(1..=requests.max(1)),
            count: random.usize(1..=MAX_COUNT),
            fault: random.choice(Fault::ALL).unwrap_or(Fault::CutBefore),
        };
        Self((0..rules).map(rule).collect())
    }

    /// Returns the rules. Of several that apply to a request, the first counts.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.0
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Rule { from, count, fault }) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            write!(f, "{separator}{from}x{count}:{fault}")?;
        }
        Ok(())
    }
}

impl FromStr for Plan {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let rule = |text: &str| {
            let (numbers, fault) = text.split_once(':')?;
            let (from, count) = numbers.split_once('x').unwrap_or((numbers, "1"));
            let fault = Fault::ALL.into_iter().find(|known| known.to_string() == fault)?;
            Some(Rule { from: from.parse().ok()?, count: count.parse().ok()?, fault })
        };
        let parse = |text: &str| rule(text).ok_or_else(|| PlanError(text.to_owned()));
        text.split(',')
            .filter(|text| !text.is_empty())
            .map(parse)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_plan_is_read_back() {
        for seed in 0..200 {
            let plan = Plan::random(seed, 300);
            assert_eq!(plan.to_string().parse(), Ok(plan));
        }
        assert_eq!("".parse(), Ok(Plan::default()));
        assert_eq!("7:cut-body".parse(), Ok(Plan::single(7, Fault::CutBody)));
        assert_eq!("7:oops".parse::<Plan>(), Err(PlanError("7:oops".to_owned())));
    }

    #[test]
    fn random_plans_use_every_fault() {
        let plans: Vec<Plan> = (0..200).map(|seed| Plan::random(seed, 300)).collect();
        for fault in Fault::ALL {
            let uses = |plan: &Plan| plan.rules().iter().any(|rule| rule.fault == fault);
            assert!(plans.iter().any(uses), "{fault}");
        }
    }
}
