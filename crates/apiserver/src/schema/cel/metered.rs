//! Functions that charge a cost, and operators whose cost depends on their operands. The
//! expressions that are evaluated call them instead of the plain ones.

use ::cel::{
    DeclarationError, Env, ExecutionError,
    common::{
        functions::Function,
        types::{CelBool, CelInt, CelList, CelMap, CelString, DYN_TYPE},
        value::{CowVal, Val},
    },
};

use super::cost::{METER_TYPE, Meter, length, reading, weight};

/// Names of the functions. No expression can name them.
pub(super) const SPEND: &str = "@cost_spend";
pub(super) const ITEM: &str = "@cost_item";
pub(super) const READ: &str = "@cost_read";
pub(super) const PEEK: &str = "@cost_peek";
pub(super) const COPY: &str = "@cost_copy";
pub(super) const OPTIONAL: &str = "@cost_optional";
pub(super) const COUNT: &str = "@cost_count";
pub(super) const SQUARE: &str = "@cost_square";
pub(super) const ADD: &str = "@cost_add";
pub(super) const EQUALS: &str = "@cost_equals";
pub(super) const IN: &str = "@cost_in";
pub(super) const CONTAINS: &str = "@cost_contains";
pub(super) const MATCHES: &str = "@cost_matches";
pub(super) const REPLACE: &str = "@cost_replace";
pub(super) const JOIN: &str = "@cost_join";

/// Parts of a value that cost one unit if it is read, or copied for a while.
const READ_PARTS: u64 = 8;

/// Characters of a text that cost one unit if they are only counted.
const CHARS_COUNTED: usize = 1024;

type Args<'b, 'v> = Vec<CowVal<'b, 'v>>;
type Answer<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

/// Adds the functions to the environment, by their number of arguments besides the meter.
pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    let functions: [(&str, usize, Function); 17] = [
        (SPEND, 1, spend),
        (ITEM, 2, item),
        (READ, 1, read),
        (PEEK, 1, peek),
        (COPY, 1, copy),
        (OPTIONAL, 1, optional),
        (COUNT, 1, count),
        (SQUARE, 1, square),
        (ADD, 2, add),
        (EQUALS, 2, equals),
        (IN, 2, is_in),
        (CONTAINS, 2, contains),
        (MATCHES, 2, matches),
        (REPLACE, 3, replace),
        (REPLACE, 4, replace),
        (JOIN, 1, join),
        (JOIN, 2, join),
    ];
    for (name, arity, function) in functions {
        let mut types = vec![METER_TYPE];
        types.extend(std::iter::repeat_with(|| DYN_TYPE).take(arity));
        env.add_overload(name, &format!("{name}{arity}"), types, function)?;
    }
    Ok(())
}

/// Splits off the meter.
fn metered<'b, 'v, const N: usize>(
    args: Args<'b, 'v>,
) -> Result<(Meter, [CowVal<'b, 'v>; N]), ExecutionError> {
    let mut args = args.into_iter();
    let meter = args.next().and_then(|it| it.downcast_ref::<Meter>().cloned());
    let rest: Args<'b, 'v> = args.collect();
    let count = rest.len();
    match (meter, rest.try_into()) {
        (Some(meter), Ok(rest)) => Ok((meter, rest)),
        _ => Err(ExecutionError::invalid_argument_count(N, count)),
    }
}

fn bool<'b, 'v>(truth: bool) -> CowVal<'b, 'v> {
    CowVal::owned(CelBool::from(truth))
}

fn number(value: &dyn Val) -> u64 {
    value.downcast_ref::<CelInt>().map_or(0, |it| it.inner().unsigned_abs())
}

fn text(value: &dyn Val) -> Option<&str> {
    value.downcast_ref::<CelString<'_>>().map(CelString::inner)
}

fn overload(function: &str, args: &[&dyn Val], is_member: bool) -> ExecutionError {
    let types = args.iter().map(|arg| arg.get_type().name().to_owned()).collect();
    if is_member {
        ExecutionError::no_such_member_overload(function, types)
    } else {
        ExecutionError::no_such_overload(function, types)
    }
}

/// Charges a number.
fn spend<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let (meter, [cost]) = metered(args)?;
    meter.charge(number(cost.as_ref()))?;
    Ok(bool(true))
}

/// Charges a step of a loop, whose variable is a copy of an item.
fn item<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let (meter, [cost, item]) = metered(args)?;
    meter.charge(number(cost.as_ref()))?;
    meter.charge_copy(item.as_ref(), READ_PARTS)?;
    Ok(bool(true))
}

/// Charges an argument that is read.
fn read<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let (meter, [value]) = metered(args)?;
    meter.charge(reading(value.as_ref()))?;
    meter.charge_copy(value.as_ref(), READ_PARTS)?;
    Ok(value)
}

/// Charges a text whose characters are counted.
fn peek<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let (meter, [value]) = metered(args)?;
    meter.charge(length(value.as_ref()).map_or(0, |length| (length / CHARS_COUNTED) as u64))?;
    Ok(value)
}

/// Charges a value that becomes part of another one.
fn copy<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let (meter, [value]) = metered(args)?;
    // A single value is part of the cost of what it becomes a part of.
    let most = super::cost::MAX_COST + 1;
    meter.charge(weight(value.as_ref(), most).saturating_sub(1))?;
    Ok(value)
}

/// Charges an optional value, of which every access copies a part.
fn optional<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let (meter, [value]) = metered(args)?;
    if value.downcast_ref::<::cel::common::types::CelOptional<'_>>().is_some() {
        meter.charge_copy(value.as_ref(), READ_PARTS)?;
    }
    Ok(value)
}

/// Charges the items of a list of this length.
fn count<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let (meter, [value]) = metered(args)?;
    meter.charge(number(value.as_ref()))?;
    Ok(value)
}

/// Charges the comparison of all items of a list with each other.
fn square<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let (meter, [value]) = metered(args)?;
    let whole = weight(value.as_ref(), super::cost::MAX_COST);
    let items = value.downcast_ref::<CelList<'_>>().map_or(0, |list| list.len() as u64);
    meter.charge(whole.saturating_mul(items) / READ_PARTS)?;
    Ok(value)
}

fn add<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let (meter, [left, right]) = metered(args)?;
    if let (Some(one), Some(other)) = (length(left.as_ref()), length(right.as_ref())) {
        meter.charge((one + other).div_ceil(10) as u64)?;
    } else {
        meter.charge_copy(left.as_ref(), 1)?;
        meter.charge_copy(right.as_ref(), 1)?;
    }
    let failed = || {
        let value = |it: &dyn Val| ::cel::Value::try_from(it).unwrap_or(::cel::Value::Null);
        ExecutionError::UnsupportedBinaryOperator(
            "add",
            value(left.as_ref()),
            value(right.as_ref()),
        )
    };
    let sum = left.as_adder().ok_or_else(failed)?.add(right.as_ref())?.into_owned();
    Ok(CowVal::Owned(sum))
}

fn equals<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let (meter, [left, right]) = metered(args)?;
    let lengths = (length(left.as_ref()), length(right.as_ref()));
    let cost = if let (Some(one), Some(other)) = lengths {
        one.min(other).div_ceil(10) as u64
    } else {
        let most = super::cost::MAX_COST.saturating_mul(READ_PARTS);
        let light = weight(left.as_ref(), most);
        weight(right.as_ref(), light).min(light).div_ceil(READ_PARTS)
    };
    meter.charge(cost)?;
    Ok(bool(left.equals(right.as_ref())))
}

fn is_in<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let (meter, [value, container]) = metered(args)?;
    let each = weight(value.as_ref(), super::cost::MAX_COST);
    let items = container.downcast_ref::<CelList<'_>>().map_or(1, |list| list.len() as u64);
    let is_map = container.downcast_ref::<CelMap<'_>>().is_some();
    meter.charge(if is_map { 1 } else { items.saturating_mul(each) })?;
    let failed = || overload("@in", &[value.as_ref(), container.as_ref()], false);
    let found = container.as_container().ok_or_else(failed)?.contains(value.as_ref());
    found.map(bool).map_err(|_| failed())
}

fn contains<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let (meter, [whole, part]) = metered(args)?;
    let (Some(inside), Some(wanted)) = (text(whole.as_ref()), text(part.as_ref())) else {
        return Err(overload("contains", &[whole.as_ref(), part.as_ref()], true));
    };
    meter.charge(reading(whole.as_ref()).saturating_mul(reading(part.as_ref())).max(1))?;
    Ok(bool(inside.contains(wanted)))
}

fn matches<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let (meter, [whole, part]) = metered(args)?;
    let (Some(inside), Some(wanted)) = (text(whole.as_ref()), text(part.as_ref())) else {
        return Err(overload("matches", &[whole.as_ref(), part.as_ref()], true));
    };
    let pattern = meter.pattern(wanted)?;
    let factor = (wanted.len().div_ceil(4) as u64).max(pattern.factor());
    let cost = (inside.len() + 1).div_ceil(10) as u64;
    meter.charge(cost.saturating_mul(factor))?;
    Ok(bool(pattern.is_match(inside)))
}

/// Replaces occurrences of a text, all of them or a number.
fn replace<'b, 'v>(mut args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let limit = if args.len() > 4 { args.pop() } else { None };
    let (meter, [whole, from, to]) = metered(args)?;
    let texts = [whole.as_ref(), from.as_ref(), to.as_ref()];
    let [Some(inside), Some(wanted), Some(new)] = texts.map(text) else {
        return Err(overload("replace", &texts, true));
    };
    let most = match &limit {
        None => usize::MAX,
        Some(limit) => match limit.downcast_ref::<CelInt>() {
            Some(limit) => usize::try_from(*limit.inner()).unwrap_or(usize::MAX),
            None => return Err(overload("replace", &texts, true)),
        },
    };
    meter.charge(2 * reading(whole.as_ref()))?;
    let length = inside.matches(wanted).take(most).count().saturating_mul(new.len());
    meter.charge(length.div_ceil(10) as u64)?;
    Ok(CowVal::owned(CelString::from(inside.replacen(wanted, new, most))))
}

/// Joins the texts of a list, with a separator if one is given.
fn join<'b, 'v>(mut args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let separator = if args.len() > 2 { args.pop() } else { None };
    let (meter, [list]) = metered(args)?;
    meter.charge_copy(list.as_ref(), READ_PARTS)?;
    let failed = || overload("join", &[list.as_ref()], true);
    let separator = match &separator {
        None => "",
        Some(separator) => text(separator.as_ref()).ok_or_else(failed)?,
    };
    let items = list.downcast_ref::<CelList<'_>>().ok_or_else(failed)?.inner().iter();
    let texts: Option<Vec<&str>> = items.map(|item| text(item.as_ref())).collect();
    let texts = texts.ok_or_else(failed)?;
    let separators = separator.len().saturating_mul(texts.len().saturating_sub(1));
    let length = texts.iter().map(|text| text.len()).fold(separators, usize::saturating_add);
    meter.charge(1 + length.div_ceil(10) as u64)?;
    Ok(CowVal::owned(CelString::from(texts.join(separator))))
}
