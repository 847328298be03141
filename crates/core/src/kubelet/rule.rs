//! The values of a field that a kubelet accepts. A kubelet that finds another value does not start,
//! so a KubeletConfig with one never reaches a node.

use mco_api::quantity::Quantity;
use serde_json::{Map, Value};

use super::duration;

/// A rule for the value of a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rule {
    /// Every value of the field's type.
    Any,
    /// Numbers within these limits.
    Range(i64, i64),
    /// One of these words, or a list of them.
    Words(&'static [&'static str]),
    /// Durations within these limits, in nanoseconds.
    Period(i64, i64),
    /// Zero, or a duration of at least this many nanoseconds.
    PeriodOrZero(i64),
    /// A number above 0 and up to 1.
    Fraction,
    /// False.
    NotTrue,
    /// A path from the root.
    AbsolutePath,
    /// A positive quantity.
    Quantity,
    /// Eviction signals with a quantity or a percentage.
    Thresholds,
    /// Eviction signals with a duration.
    GracePeriods,
    /// Resources of a node with a quantity.
    Reservations,
    /// The resource memory with a percentage.
    Percentages,
    /// A list of CPUs such as `0-1,4`.
    CpuSet,
    /// Any text but the empty one.
    NotEmpty,
    /// No value at all.
    Unset,
    /// A multiple of this number.
    Multiple(i64),
    /// Numbers out of this list.
    Numbers(&'static [i64]),
    /// Memory and huge pages, none of them zero.
    MemoryLimits,
}

const SIGNALS: &[&str] = &[
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "allocatableMemory.available",
    "pid.available",
];

const RESOURCES: &[&str] = &["cpu", "memory", "ephemeral-storage", "pid"];

impl Rule {
    /// Describes the first part of a field's value that the rule excludes.
    pub(super) fn fault(self, path: &str, value: &Value) -> Option<String> {
        let here = |allowed: String| Some(excluded(path, value, &allowed));
        match (self, value) {
            (Self::Range(least, most), Value::Number(number)) => {
                let inside = number.as_i64().is_some_and(|n| (least..=most).contains(&n));
                if inside { None } else { here(range(least, most)) }
            }
            (Self::Words(words), Value::String(word)) => {
                if words.contains(&word.as_str()) {
                    None
                } else {
                    here(one_of(words))
                }
            }
            (Self::Words(words), Value::Array(items)) => {
                let mut items = items.iter().enumerate();
                items.find_map(|(index, item)| {
                    let known = item.as_str().is_some_and(|word| words.contains(&word));
                    (!known).then(|| excluded(&format!("{path}[{index}]"), item, &one_of(words)))
                })
            }
            (Self::Period(least, most), Value::String(text)) => {
                let inside = duration::parse(text).is_ok_and(|n| (least..=most).contains(&n));
                if inside { None } else { here(period(least, most)) }
            }
            (Self::PeriodOrZero(least), Value::String(text)) => {
                let inside = duration::parse(text).is_ok_and(|n| n == 0 || n >= least);
                let allowed = || format!("0s, or {}", period(least, i64::MAX));
                if inside { None } else { here(allowed()) }
            }
            (Self::Fraction, Value::Number(number)) => {
                let inside = number.as_f64().is_some_and(|n| n > 0.0 && n <= 1.0);
                if inside { None } else { here("above 0 and up to 1".to_owned()) }
            }
            (Self::NotTrue, Value::Bool(true)) => here("false".to_owned()),
            (Self::AbsolutePath, Value::String(text)) if !is_clean_path(text) => {
                here("an absolute path without `.` and `..`".to_owned())
            }
            (Self::Quantity, Value::String(text)) => {
                let positive =
                    Quantity::parse(text).is_ok_and(|q| !q.is_negative() && !q.is_zero());
                if positive { None } else { here("a positive quantity such as 50Mi".to_owned()) }
            }
            (Self::CpuSet, Value::String(text)) if !is_cpu_set(text) => {
                here("a list of CPUs such as 0-1,4".to_owned())
            }
            (Self::NotEmpty, Value::String(text)) if text.is_empty() => {
                here("a text that is not empty".to_owned())
            }
            (Self::Unset, _) => here("unset".to_owned()),
            (Self::Multiple(unit), Value::Number(number)) => {
                let fits = number.as_i64().is_some_and(|n| n > 0 && n % unit == 0);
                if fits { None } else { here(format!("a multiple of {unit}")) }
            }
            (Self::Numbers(known), Value::Array(items)) => {
                let mut items = items.iter();
                let is_known = |item: &Value| item.as_i64().is_some_and(|n| known.contains(&n));
                let unknown = items.find(|item| !is_known(item))?;
                let known: Vec<String> = known.iter().map(ToString::to_string).collect();
                Some(excluded(path, unknown, &format!("out of {}", known.join(", "))))
            }
            (Self::MemoryLimits, Value::Object(limits)) => memory_fault(path, limits),
            (_, Value::Object(entries)) => self.entry_fault(path, entries),
            _ => None,
        }
    }

    fn entry_fault(self, path: &str, entries: &Map<String, Value>) -> Option<String> {
        let (keys, allowed, holds): (&[&str], &str, fn(&str) -> bool) = match self {
            Self::Thresholds => {
                (SIGNALS, "a quantity such as 100Mi, or a percentage from 0% to 100%", |text| {
                    text.is_empty() || is_percentage(text) || is_amount(text)
                })
            }
            Self::GracePeriods => (SIGNALS, "a duration such as 1m30s", |text| {
                duration::parse(text).is_ok_and(|n| n >= 0)
            }),
            Self::Reservations => (RESOURCES, "a quantity such as 500m or 1Gi", is_amount),
            Self::Percentages => (&["memory"], "a percentage from 0% to 100%", is_percentage),
            Self::Any
            | Self::Range(..)
            | Self::Words(_)
            | Self::Period(..)
            | Self::PeriodOrZero(_)
            | Self::Fraction
            | Self::NotTrue
            | Self::AbsolutePath
            | Self::Quantity
            | Self::CpuSet
            | Self::NotEmpty
            | Self::Unset
            | Self::Multiple(_)
            | Self::Numbers(_)
            | Self::MemoryLimits => return None,
        };
        entries.iter().find_map(|(key, value)| {
            if !keys.contains(&key.as_str()) {
                return Some(format!(
                    "{path} has the key {key:?}, and must have only keys out of {}",
                    keys.join(", ")
                ));
            }
            let held = value.as_str().is_some_and(holds);
            (!held).then(|| excluded(&format!("{path}[{key}]"), value, allowed))
        })
    }
}

fn memory_fault(path: &str, limits: &Map<String, Value>) -> Option<String> {
    limits.iter().find_map(|(key, value)| {
        if key != "memory" && !key.starts_with("hugepages-") {
            return Some(format!(
                "{path} has the key {key:?}, and must have only memory and hugepages-<size>"
            ));
        }
        let amount = Quantity::parse(value.as_str().unwrap_or_default());
        let is_positive = amount.is_ok_and(|amount| !amount.is_negative() && !amount.is_zero());
        (!is_positive).then(|| excluded(&format!("{path}[{key}]"), value, "more than 0"))
    })
}

/// Returns true for a path from the root in its shortest form.
fn is_clean_path(path: &str) -> bool {
    let Some(rest) = path.strip_prefix('/') else { return false };
    rest.is_empty() || rest.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

fn excluded(path: &str, value: &Value, allowed: &str) -> String {
    let value = value.as_str().map_or_else(|| value.to_string(), |text| format!("{text:?}"));
    format!("{path} is {value}, and must be {allowed}")
}

fn range(least: i64, most: i64) -> String {
    if most == i64::MAX { format!("{least} or more") } else { format!("from {least} to {most}") }
}

fn period(least: i64, most: i64) -> String {
    let least = duration::format(least);
    if most == i64::MAX {
        format!("{least} or more")
    } else {
        format!("from {least} to {}", duration::format(most))
    }
}

fn one_of(words: &[&str]) -> String {
    format!("one of {}", words.join(", "))
}

fn is_amount(text: &str) -> bool {
    Quantity::parse(text).is_ok_and(|quantity| !quantity.is_negative())
}

fn is_percentage(text: &str) -> bool {
    let number = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    number.is_some_and(|number| (0.0..=100.0).contains(&number))
}

/// Returns true for numbers and ranges, separated by commas.
fn is_cpu_set(text: &str) -> bool {
    let number = |text: &str| text.parse::<u32>().ok();
    text.split(',').all(|part| match part.split_once('-') {
        Some((first, last)) => {
            number(first).zip(number(last)).is_some_and(|(first, last)| first <= last)
        }
        None => number(part).is_some(),
    })
}
