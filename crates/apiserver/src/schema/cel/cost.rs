//! The cost of an evaluation, and its limits, which are those of kube-apiserver.

use std::{
    any::Any,
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use ::cel::{
    Context, ExecutionError, Value as Cel,
    common::{
        types::{CelBytes, CelList, CelMap, CelMapKey, CelOptional, CelString, Type},
        value::{StaticVal, Val},
    },
};

use super::{Program, pattern::Pattern};

/// Maximum cost of an expression.
pub(super) const MAX_COST: u64 = 1_000_000;

/// Maximum cost of all rules of an object, or of all validations of a policy with a binding.
const OBJECT_BUDGET: u64 = 10_000_000;

/// Maximum cost of all conditions of a policy.
const CONDITIONS_BUDGET: u64 = 2_500_000;

/// The error of an expression that exceeds its limit.
pub(super) const EXCEEDED: &str = "operation cancelled: actual cost limit exceeded";

/// The failure of all expressions that share a budget.
pub(crate) const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// Name of the variable that has the meter. No expression can name it.
pub(super) const METER: &str = "@meter";

/// Number of characters of a text that cost one unit to read.
const CHARS_READ: usize = 10;

/// Number of characters of a text that weigh as much as a value.
const CHARS_COPIED: usize = 256;

/// Number of compiled patterns that an evaluation keeps.
const MAX_PATTERNS: usize = 32;

/// Counts the cost of the expression that is being evaluated.
#[derive(Clone, Debug)]
pub(super) struct Meter(Arc<State>);

#[derive(Debug)]
struct State {
    limit: u64,
    spent: AtomicU64,
    patterns: Mutex<HashMap<String, Pattern>>,
}

/// The type of meters.
pub(super) const METER_TYPE: Type = Type::new_unspecified_type("@meter");

static METERS: Type = METER_TYPE;

impl Val for Meter {
    fn get_type(&self) -> &Type {
        &METERS
    }

    fn cel_type() -> &'static Type {
        &METERS
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for Meter {}

impl Meter {
    /// Returns a meter of expressions that may cost at most `limit`.
    pub(super) fn new(limit: u64) -> Self {
        Self(Arc::new(State { limit, spent: AtomicU64::new(0), patterns: Mutex::default() }))
    }

    /// Adds a cost. Fails if the expression exceeds its limit, then and from then on.
    pub(super) fn charge(&self, cost: u64) -> Result<(), ExecutionError> {
        // The sum cannot overflow: it stays at the limit.
        let spent = self.spent().saturating_add(cost).min(self.0.limit + 1);
        self.0.spent.store(spent, Ordering::Relaxed);
        if spent > self.0.limit {
            return Err(ExecutionError::InternalError(EXCEEDED.to_owned()));
        }
        Ok(())
    }

    fn spent(&self) -> u64 {
        self.0.spent.load(Ordering::Relaxed)
    }

    /// Returns the cost that is left.
    fn left(&self) -> u64 {
        self.0.limit.saturating_sub(self.spent())
    }

    /// Adds the cost of copying a value, of which `each` parts cost one unit.
    pub(super) fn charge_copy(&self, value: &dyn Val, each: u64) -> Result<(), ExecutionError> {
        let most = self.left().saturating_add(1).saturating_mul(each);
        self.charge(weight(value, most) / each)
    }

    /// Returns a compiled pattern. The same one is compiled once.
    pub(super) fn pattern(&self, text: &str) -> Result<Pattern, ExecutionError> {
        let lock = || self.0.patterns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = lock().get(text) {
            return Ok(found.clone());
        }
        let compiled = Pattern::compile(text, |cost| self.charge(cost))?;
        let mut kept = lock();
        if kept.len() >= MAX_PATTERNS {
            kept.clear();
        }
        kept.insert(text.to_owned(), compiled.clone());
        Ok(compiled)
    }
}

/// Returns the cost of reading the whole of a text, or nothing for another value.
pub(super) fn reading(value: &dyn Val) -> u64 {
    length(value).map_or(0, |length| length.div_ceil(CHARS_READ) as u64)
}

/// Returns the length of a text, or of bytes.
pub(super) fn length(value: &dyn Val) -> Option<usize> {
    let text = value.downcast_ref::<CelString<'_>>().map(|text| text.inner().len());
    text.or_else(|| value.downcast_ref::<CelBytes<'_>>().map(|bytes| bytes.inner().len()))
}

/// Returns the number of values in a value, with long texts counted several times, but not
/// many more than `most`.
pub(super) fn weight(value: &dyn Val, most: u64) -> u64 {
    let mut sum = 1;
    let add = |below: &dyn Val, sum: u64| sum + weight(below, most.saturating_sub(sum));
    if let Some(length) = length(value) {
        sum += (length / CHARS_COPIED) as u64;
    } else if let Some(list) = value.downcast_ref::<CelList<'_>>() {
        for item in list.inner() {
            if sum > most {
                break;
            }
            sum = add(item.as_ref(), sum);
        }
    } else if let Some(map) = value.downcast_ref::<CelMap<'_>>() {
        for (key, below) in map.inner() {
            if sum > most {
                break;
            }
            if let CelMapKey::String(text) = key {
                sum += (text.inner().len() / CHARS_COPIED) as u64;
            }
            sum = add(below.as_ref(), sum + 1);
        }
    } else if let Some(below) =
        value.downcast_ref::<CelOptional<'_>>().and_then(CelOptional::option)
    {
        sum = add(below, sum);
    }
    sum
}

/// The failure of an evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The expression failed.
    Expression(String),
    /// The expression exceeded its limit.
    Exceeded,
    /// The expressions together exceeded their budget.
    OutOfBudget,
}

/// The cost that several expressions may have together.
#[derive(Debug)]
pub(crate) struct Budget {
    left: u64,
}

impl Budget {
    /// Returns the budget of the rules of an object, or of the validations of a policy.
    pub(crate) const fn of_object() -> Self {
        Self { left: OBJECT_BUDGET }
    }

    /// Returns the budget of the conditions of a policy.
    pub(crate) const fn of_conditions() -> Self {
        Self { left: CONDITIONS_BUDGET }
    }

    /// Evaluates an expression.
    pub(crate) fn run(
        &mut self,
        program: &Program,
        context: &Context<'_, '_>,
    ) -> Result<Cel, Failed> {
        let found = context.get_variable(METER);
        let meter = found.as_ref().and_then(|it| it.downcast_ref::<Meter>());
        let meter = meter.expect("every context has a meter");
        meter.0.spent.store(0, Ordering::Relaxed);
        let evaluate = || Cel::resolve(&program.metered, context);
        let result = if program.is_long { super::deeply(evaluate) } else { evaluate() };
        let spent = meter.spent();
        self.left = self.left.checked_sub(spent).ok_or(Failed::OutOfBudget)?;
        if spent > meter.0.limit {
            return Err(Failed::Exceeded);
        }
        result.map_err(|error| Failed::Expression(error.to_string()))
    }
}

impl Failed {
    /// Returns the error of the expression.
    pub(crate) fn why(self) -> String {
        match self {
            Self::Expression(why) => why,
            Self::Exceeded => EXCEEDED.to_owned(),
            Self::OutOfBudget => OUT_OF_BUDGET.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
