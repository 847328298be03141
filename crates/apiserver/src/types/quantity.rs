//! Quantities such as `100m` and `1Gi`, in the form that Kubernetes writes.

const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// Decimal suffixes with their exponents.
const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];

const RULE: &str = "quantities must match the regular expression \
    '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// A number with a decimal exponent, or a multiple of a power of 1024.
struct Parts {
    is_negative: bool,
    /// Digits without the point.
    digits: i128,
    /// Number of digits after the point.
    fraction: i32,
    suffix: String,
}

/// Returns the quantity as Kubernetes writes it.
pub(crate) fn canonical(text: &str) -> Result<String, String> {
    let parts = parse(text).ok_or(RULE)?;
    let sign = if parts.is_negative && parts.digits != 0 { "-" } else { "" };
    if let Some(power) = BINARY.iter().position(|one| *one == parts.suffix).filter(|at| *at > 0) {
        return Ok(format!("{sign}{}", binary(&parts, power).unwrap_or_else(|| text.to_owned())));
    }
    let exponent = match DECIMAL.iter().find(|(suffix, _)| *suffix == parts.suffix) {
        Some((_, exponent)) => Some((*exponent, false)),
        None => parts.suffix.get(1..).and_then(|digits| digits.parse().ok()).map(|e| (e, true)),
    };
    let (exponent, is_scientific) = exponent.ok_or(RULE)?;
    let (mut digits, mut power) = (parts.digits, exponent - parts.fraction);
    if digits == 0 {
        return Ok("0".to_owned());
    }
    while digits % 10 == 0 {
        digits /= 10;
        power += 1;
    }
    // Digits finer than a billionth are rounded up.
    while power < -9 {
        digits = (digits + 9) / 10;
        power += 1;
    }
    while power.rem_euclid(3) != 0 || power > 18 {
        digits = digits.checked_mul(10).ok_or(RULE)?;
        power -= 1;
    }
    if is_scientific {
        let suffix = if power == 0 { String::new() } else { format!("e{power}") };
        return Ok(format!("{sign}{digits}{suffix}"));
    }
    let suffix = DECIMAL.iter().find(|(_, one)| *one == power).map_or("", |(suffix, _)| *suffix);
    Ok(format!("{sign}{digits}{suffix}"))
}

/// Writes a binary quantity with the largest suffix that leaves a whole number.
fn binary(parts: &Parts, power: usize) -> Option<String> {
    let scale = 1024_i128.checked_pow(u32::try_from(power).ok()?)?;
    let divisor = 10_i128.checked_pow(u32::try_from(parts.fraction).ok()?)?;
    let mut bytes = parts.digits.checked_mul(scale)?.div_ceil_of(divisor);
    let mut at = 0;
    while bytes != 0 && bytes % 1024 == 0 && at + 1 < BINARY.len() {
        bytes /= 1024;
        at += 1;
    }
    Some(format!("{bytes}{}", BINARY.get(at)?))
}

trait DivCeil {
    fn div_ceil_of(self, divisor: Self) -> Self;
}

impl DivCeil for i128 {
    fn div_ceil_of(self, divisor: Self) -> Self {
        (self + divisor - 1) / divisor
    }
}

fn parse(text: &str) -> Option<Parts> {
    let (is_negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let is_exponent = suffix.starts_with(['e', 'E'])
        && suffix.len() > 1
        && suffix.get(1..).is_some_and(|digits| digits.parse::<i32>().is_ok());
    let known =
        is_exponent || BINARY.contains(&suffix) || DECIMAL.iter().any(|(one, _)| *one == suffix);
    known.then(|| Parts {
        is_negative,
        digits,
        fraction: i32::try_from(fraction.len()).unwrap_or(0),
        suffix: suffix.to_owned(),
    })
}

/// Returns the quantity in billionths, for comparisons.
pub(crate) fn nanos(text: &str) -> Option<i128> {
    let parts = parse(text)?;
    let sign = if parts.is_negative { -1 } else { 1 };
    let divisor = 10_i128.checked_pow(u32::try_from(parts.fraction).ok()?)?;
    if let Some(power) = BINARY.iter().position(|one| *one == parts.suffix).filter(|at| *at > 0) {
        let scale = 1024_i128.checked_pow(u32::try_from(power).ok()?)?;
        let scaled = parts.digits.checked_mul(scale)?.checked_mul(1_000_000_000)?;
        return Some(sign * scaled / divisor);
    }
    let exponent = match DECIMAL.iter().find(|(suffix, _)| *suffix == parts.suffix) {
        Some((_, exponent)) => *exponent,
        None => parts.suffix.get(1..)?.parse().ok()?,
    };
    let scale = 10_i128.checked_pow(u32::try_from(exponent + 9).ok()?)?;
    Some(sign * parts.digits.checked_mul(scale)? / divisor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_one_form() {
        for (text, expected) in [
            ("1", "1"),
            ("0", "0"),
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1500m", "1500m"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("1000", "1k"),
            ("12e6", "12e6"),
            ("100k", "100k"),
            ("-1", "-1"),
        ] {
            assert_eq!(canonical(text).as_deref(), Ok(expected), "{text}");
        }
        for text in ["", "x", "1x", "1.2.3", "Ki", "1e"] {
            assert_eq!(canonical(text), Err(RULE.to_owned()), "{text}");
        }
    }

    #[test]
    fn quantities_are_ordered() {
        assert!(nanos("1") > nanos("999m"));
        assert!(nanos("1Gi") > nanos("1G"));
        assert_eq!(nanos("0.1"), nanos("100m"));
    }
}
