//! Durations as users write and read them: `90s`, `30m`, `1h30m`.

use std::{fmt, str::FromStr, time::Duration};

/// A limit of time, given by the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timeout(pub(crate) Duration);

impl FromStr for Timeout {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let seconds = parse(text).ok_or("a duration such as 90s, 30m or 2h is expected")?;
        Ok(Self(Duration::from_secs(seconds)))
    }
}

/// Parses a duration and returns it in seconds. A number without a unit has seconds.
pub(crate) fn parse(text: &str) -> Option<u64> {
    if let Some(seconds) = plain(text) {
        return Some(seconds);
    }
    let mut total: u64 = 0;
    let mut rest = text;
    let mut before = u64::MAX;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        let (digits, unit) = rest.split_at_checked(end)?;
        let factor = match unit.chars().next()? {
            'h' => 3600,
            'm' => 60,
            's' => 1,
            _ => return None,
        };
        // Larger units come first, each once.
        if factor >= before {
            return None;
        }
        before = factor;
        total = total.checked_add(plain(digits)?.checked_mul(factor)?)?;
        rest = unit.get(1..)?;
    }
    (before != u64::MAX).then_some(total)
}

/// Parses digits; a sign is refused.
fn plain(digits: &str) -> Option<u64> {
    digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A duration in seconds, printed as `4m5s`.
pub(crate) struct HumanDuration(pub(crate) u64);

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hours, minutes, seconds) = (self.0 / 3600, self.0 / 60 % 60, self.0 % 60);
        match (hours, minutes, seconds) {
            (0, 0, seconds) => write!(f, "{seconds}s"),
            (0, minutes, 0) => write!(f, "{minutes}m"),
            (0, minutes, seconds) => write!(f, "{minutes}m{seconds}s"),
            (hours, minutes, _) => write!(f, "{hours}h{minutes:02}m"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_and_printed() {
        for (text, want) in [
            ("7", 7),
            ("90s", 90),
            ("10m", 600),
            ("2h", 7200),
            ("1h30m", 5400),
            ("1h2m3s", 3723),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Some(want), "{text}");
        }
        for bad in ["", "m", "1d", "-1s", "+1", "+1m", "1 m", "1m1h", "1m1m", "1h30", "soon", "ä"]
        {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert!(parse(&format!("{}h", u64::MAX)).is_none(), "too large");
        let printed: Vec<String> =
            [0, 5, 60, 425, 3600, 5400].map(|time| HumanDuration(time).to_string()).to_vec();
        assert_eq!(printed, ["0s", "5s", "1m", "7m5s", "1h00m", "1h30m"]);
    }
}
