//! Durations as Go parses and prints them, in nanoseconds.

use std::fmt::Write as _;

/// A text that is no duration. The texts are Go's, and appear in the status of KubeletConfigs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// The text does not consist of numbers with units.
    #[error("time: invalid duration {0:?}")]
    Invalid(String),
    /// A number has no unit.
    #[error("time: missing unit in duration {0:?}")]
    MissingUnit(String),
    /// A number has a unit that does not exist.
    #[error("time: unknown unit {unit:?} in duration {text:?}")]
    UnknownUnit {
        /// The unit.
        unit: String,
        /// The whole text.
        text: String,
    },
}

const UNITS: &[(&str, i128)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Digits of a fraction beyond which none changes the result.
const FRACTION_DIGITS: usize = 18;

/// Parses a text such as `1h30m` or `-1.5s`.
pub(super) fn parse(text: &str) -> Result<i64, DurationError> {
    let invalid = || DurationError::Invalid(text.to_owned());
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(invalid());
        }
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        if unit.is_empty() {
            return Err(DurationError::MissingUnit(text.to_owned()));
        }
        let known = UNITS.iter().find(|(name, _)| *name == unit);
        let (_, size) = known.ok_or_else(|| DurationError::UnknownUnit {
            unit: unit.to_owned(),
            text: text.to_owned(),
        })?;
        let part = scaled(whole, fraction, *size).ok_or_else(invalid)?;
        total = total.checked_add(part).ok_or_else(invalid)?;
        rest = after;
    }
    i64::try_from(sign * total).map_err(|_| invalid())
}

/// Returns `whole.fraction` units of `size` nanoseconds.
fn scaled(whole: &str, fraction: &str, size: i128) -> Option<i128> {
    let number = |digits: &str| if digits.is_empty() { Some(0) } else { digits.parse().ok() };
    let whole: i64 = number(whole)?;
    let digits = fraction.get(..FRACTION_DIGITS).unwrap_or(fraction);
    let fraction: i64 = number(digits)?;
    let scale = 10_i128.checked_pow(u32::try_from(digits.len()).ok()?)?;
    i128::from(whole).checked_mul(size)?.checked_add(i128::from(fraction) * size / scale)
}

/// Prints a duration such as `1h30m0s`.
pub(super) fn format(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let size = nanoseconds.unsigned_abs();
    let mut out = sign.to_owned();
    let smaller = [(1_000, 1, "ns"), (1_000_000, 1_000, "µs"), (1_000_000_000, 1_000_000, "ms")];
    if size == 0 {
        return "0s".to_owned();
    }
    if let Some((_, unit, name)) = smaller.into_iter().find(|(limit, _, _)| size < *limit) {
        push_decimal(&mut out, size, unit, name);
        return out;
    }
    let (seconds, fraction) = (size / 1_000_000_000, size % 1_000_000_000);
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    if hours > 0 {
        let _ = write!(out, "{hours}h");
    }
    if hours > 0 || minutes > 0 {
        let _ = write!(out, "{minutes}m");
    }
    push_decimal(&mut out, seconds % 60 * 1_000_000_000 + fraction, 1_000_000_000, "s");
    out
}

/// Appends `size / unit` without trailing zeros, and the name of the unit.
fn push_decimal(out: &mut String, size: u64, unit: u64, name: &str) {
    let digits = unit.ilog10() as usize;
    let fraction = format!("{:0digits$}", size % unit);
    let fraction = fraction.trim_end_matches('0');
    let dot = if fraction.is_empty() { "" } else { "." };
    let _ = write!(out, "{}{dot}{fraction}{name}", size / unit);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_printed_like_go_prints_them() {
        let rows = [
            ("0", "0s"),
            ("0s", "0s"),
            ("10s", "10s"),
            ("5m", "5m0s"),
            ("90s", "1m30s"),
            ("1h1m1.5s", "1h1m1.5s"),
            ("1us", "1µs"),
            ("1ms1ns", "1.000001ms"),
            ("1500ns", "1.5µs"),
            ("-1.5h", "-1h30m0s"),
            ("+.5s", "500ms"),
            ("100ns", "100ns"),
            ("60m", "1h0m0s"),
        ];
        for (text, printed) in rows {
            assert_eq!(parse(text).map(format).as_deref(), Ok(printed), "{text}");
        }
    }

    #[test]
    fn texts_that_are_no_durations_are_refused_in_the_words_of_go() {
        let rows = [
            ("x", r#"time: invalid duration "x""#),
            ("", r#"time: invalid duration """#),
            ("100", r#"time: missing unit in duration "100""#),
            ("1.5x", r#"time: unknown unit "x" in duration "1.5x""#),
            ("1.1.1s", r#"time: invalid duration "1.1.1s""#),
            (".s", r#"time: invalid duration ".s""#),
            ("9999999h", r#"time: invalid duration "9999999h""#),
        ];
        for (text, expected) in rows {
            assert_eq!(parse(text).unwrap_err().to_string(), expected);
        }
    }
}
