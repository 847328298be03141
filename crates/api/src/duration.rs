//! Durations in text: parsing of text such as `1h30m`, and printing as Go prints durations.

use std::{fmt, str::FromStr, time::Duration};

/// A duration that an administrator sets as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DurationText(pub Duration);

impl FromStr for DurationText {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, DurationError> {
        parse(text).map(Self)
    }
}

impl fmt::Display for DurationText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_go(self.0))
    }
}

/// A text that is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// The text does not consist of numbers with units.
    #[error("not a duration such as 90s, 30m or 1h30m")]
    Shape,
    /// The duration overflows.
    #[error("duration out of range")]
    Range,
}

/// Parses a duration such as `90s`, `30m` or `1h30m`; the units are h, m, s and ms.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let (mut rest, mut total) = (text, Duration::ZERO);
    if rest.is_empty() {
        return Err(DurationError::Shape);
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or(DurationError::Shape)?;
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        if number.is_empty() {
            return Err(DurationError::Shape);
        }
        let number: u64 = number.parse().map_err(|_| DurationError::Range)?;
        let milliseconds: u64 = match unit {
            "h" => 3_600_000,
            "m" => 60_000,
            "s" => 1_000,
            "ms" => 1,
            _ => return Err(DurationError::Shape),
        };
        let part = number.checked_mul(milliseconds).ok_or(DurationError::Range)?;
        total = total.checked_add(Duration::from_millis(part)).ok_or(DurationError::Range)?;
        rest = after;
    }
    Ok(total)
}

/// Formats a duration as Go does, such as `1h0m0s`; fractions of a second are dropped.
#[must_use]
pub fn format_go(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        (_, _) => format!("{hours}h{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_and_printed() {
        let rows = [
            ("90s", Ok(90), "1m30s"),
            ("0s", Ok(0), "0s"),
            ("45s", Ok(45), "45s"),
            ("1h", Ok(3600), "1h0m0s"),
            ("1h30m", Ok(5400), "1h30m0s"),
            ("1h0m0s", Ok(3600), "1h0m0s"),
            ("2000ms", Ok(2), "2s"),
            ("", Err(DurationError::Shape), ""),
            ("90", Err(DurationError::Shape), ""),
            ("h", Err(DurationError::Shape), ""),
            ("-1h", Err(DurationError::Shape), ""),
            ("1.5h", Err(DurationError::Shape), ""),
            ("1 h", Err(DurationError::Shape), ""),
            ("1d", Err(DurationError::Shape), ""),
            ("ten minutes", Err(DurationError::Shape), ""),
            ("99999999999999999999s", Err(DurationError::Range), ""),
            ("18446744073709551615h", Err(DurationError::Range), ""),
        ];
        for (text, expected, printed) in rows {
            let found = parse(text);
            assert_eq!(found, expected.map(Duration::from_secs), "{text}");
            if let Ok(found) = found {
                assert_eq!(format_go(found), printed, "{text}");
            }
        }
    }
}
