//! Quantities of Kubernetes, such as `50Mi` or `1e6`: their value and their canonical text.
//!
//! Compat: the rules are those of `k8s.io/apimachinery/pkg/api/resource`, because the canonical text
//! is written into files on nodes.

use std::fmt;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// A quantity: a decimal number, and the family of suffixes that it is written with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantity {
    /// Number without its decimal exponent.
    unscaled: i128,
    /// Decimal exponent.
    exponent: i32,
    family: Family,
    /// Text as it was given, if that is its canonical form.
    text: Option<String>,
}

/// A family of suffixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    /// `k`, `M`, `G`.
    Decimal,
    /// `Ki`, `Mi`, `Gi`.
    Binary,
    /// `e3`, `e6`.
    Exponent,
}

/// The reason why a text is no quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text is no number with a suffix.
    #[error(
        "quantities must match the regular expression \
         '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )]
    Format,
    /// The number has too many digits.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    /// The suffix is unknown.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// Largest number of digits that a 64-bit number always holds.
const MAX_DIGITS: usize = 18;
/// Smallest decimal exponent of a quantity.
const NANO: i32 = -9;
/// Largest decimal exponent of a quantity. A smaller one than its opposite is rounded up anyway.
const MAX_EXPONENT: i32 = 1000;

impl Quantity {
    /// Parses a quantity of an object.
    pub fn of(value: &IntOrString) -> Result<Self, QuantityError> {
        match value {
            IntOrString::Int(number) => Self::parse(&number.to_string()),
            IntOrString::String(text) => Self::parse(text.trim()),
        }
    }

    /// Parses a quantity.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let parts = Parts::of(text)?;
        let (family, exponent) = suffix(parts.suffix).ok_or(QuantityError::Suffix)?;
        let digits = format!("{}{}", parts.whole, parts.fraction);
        let number: i128 = digits.parse().map_err(|_| QuantityError::Numeric)?;
        let sign = if parts.negative { -1 } else { 1 };
        let places = i32::try_from(parts.fraction.len()).map_err(|_| QuantityError::Numeric)?;
        let mut quantity = match family {
            Family::Binary => {
                let factor = 1_i128 << exponent;
                let unscaled = number.checked_mul(factor).ok_or(QuantityError::Numeric)?;
                Self { unscaled: sign * unscaled, exponent: -places, family, text: None }
            }
            Family::Decimal | Family::Exponent => {
                let exponent = exponent.checked_sub(places).ok_or(QuantityError::Numeric)?;
                Self { unscaled: sign * number, exponent, family, text: None }
            }
        };
        quantity.text = is_canonical(&quantity, &parts, &digits, number).then(|| text.to_owned());
        if text == "0" {
            quantity.text = Some(text.to_owned());
        }
        quantity.round_up_to(NANO);
        if family == Family::Binary {
            quantity.limit();
        }
        Ok(quantity)
    }

    /// Returns true if the quantity is zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.unscaled == 0
    }

    /// Returns true if the quantity is less than zero.
    #[must_use]
    pub fn is_negative(&self) -> bool {
        self.unscaled < 0
    }

    /// Returns the quantity in billionths, for comparisons. Numbers out of range are limited.
    #[must_use]
    pub fn nanos(&self) -> i128 {
        let scale = u32::try_from(self.exponent - NANO).unwrap_or_default();
        self.unscaled.saturating_mul(10_i128.checked_pow(scale).unwrap_or(i128::MAX))
    }

    /// Returns the quantity as a number, rounded to its precision.
    #[must_use]
    pub fn approximate(&self) -> f64 {
        let Self { unscaled, exponent, .. } = self;
        format!("{unscaled}e{exponent}").parse().unwrap_or(f64::NAN)
    }

    /// Returns the quantity as a whole number, rounded away from zero.
    #[must_use]
    pub fn value(&self) -> i64 {
        let mut whole = self.clone();
        whole.round_up_to(0);
        let scale = u32::try_from(whole.exponent).unwrap_or_default();
        let factor = 10_i128.checked_pow(scale);
        let value = factor.and_then(|factor| whole.unscaled.checked_mul(factor));
        let limit = if whole.unscaled < 0 { i64::MIN } else { i64::MAX };
        value.and_then(|value| i64::try_from(value).ok()).unwrap_or(limit)
    }

    /// Rounds away from zero, so that the exponent is not below `exponent`.
    fn round_up_to(&mut self, exponent: i32) {
        while self.exponent < exponent {
            // Both stay as they are, however often they are rounded.
            if self.unscaled.unsigned_abs() <= 1 {
                self.exponent = exponent;
                return;
            }
            let rest = self.unscaled % 10;
            self.unscaled = self.unscaled / 10 + rest.signum();
            self.exponent += 1;
        }
    }

    /// Limits a binary quantity to 64 bits, and writes a fraction of one as a decimal.
    fn limit(&mut self) {
        let scale = u32::try_from(-self.exponent).unwrap_or_default();
        let one = 10_i128.pow(scale.min(NANO.unsigned_abs()));
        let limit = i128::from(i64::MAX) * one;
        self.unscaled = self.unscaled.clamp(-limit, limit);
        if self.unscaled != 0 && self.unscaled.abs() < one {
            self.family = Family::Decimal;
        }
    }

    /// Returns the digits and the suffix of the canonical text.
    fn canonical(&self) -> (i128, String) {
        if self.is_zero() {
            return (0, String::new());
        }
        if self.family == Family::Binary
            && let Some(whole) = self.whole().filter(|whole| whole.abs() >= 1024)
        {
            let (mut number, mut times) = (whole, 0_usize);
            while number.abs() >= 1024 && number % 1024 == 0 {
                (number, times) = (number / 1024, times + 1);
            }
            let suffix = times.checked_sub(1).and_then(|index| BINARY.get(index));
            return (number, suffix.map(|(suffix, _)| (*suffix).to_owned()).unwrap_or_default());
        }
        let (mut number, mut exponent) = (self.unscaled, self.exponent);
        while number % 10 == 0 {
            (number, exponent) = (number / 10, exponent + 1);
        }
        while exponent.rem_euclid(3) != 0 {
            (number, exponent) = (number.saturating_mul(10), exponent - 1);
        }
        let suffix = match (self.family, exponent) {
            (_, 0) => String::new(),
            (Family::Exponent, exponent) => format!("e{exponent}"),
            (Family::Decimal | Family::Binary, exponent) => {
                let found = DECIMAL.iter().find(|(_, known)| *known == exponent);
                found.map(|(suffix, _)| (*suffix).to_owned()).unwrap_or_default()
            }
        };
        (number, suffix)
    }

    /// Returns the quantity as a whole number, unless it has a fraction.
    fn whole(&self) -> Option<i128> {
        let mut rounded = self.clone();
        rounded.round_up_to(0);
        let factor = |exponent: i32| 10_i128.checked_pow(exponent.unsigned_abs());
        let whole = rounded.unscaled.checked_mul(factor(rounded.exponent)?)?;
        let back =
            if self.exponent < 0 { whole.checked_mul(factor(self.exponent)?)? } else { whole };
        let same = if self.exponent < 0 { back == self.unscaled } else { true };
        same.then_some(whole)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.text {
            return f.write_str(text);
        }
        let (number, suffix) = self.canonical();
        write!(f, "{number}{suffix}")
    }
}

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
const BINARY: [(&str, i32); 6] =
    [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

/// Returns the family and the exponent of a suffix.
fn suffix(suffix: &str) -> Option<(Family, i32)> {
    let find = |known: &[(&str, i32)]| {
        known.iter().find(|(name, _)| *name == suffix).map(|(_, exponent)| *exponent)
    };
    if let Some(exponent) = find(&DECIMAL) {
        return Some((Family::Decimal, exponent));
    }
    if let Some(exponent) = find(&BINARY) {
        return Some((Family::Binary, exponent));
    }
    let digits = suffix.strip_prefix(['e', 'E'])?;
    let exponent: i32 = digits.parse().ok().filter(|exponent| *exponent <= MAX_EXPONENT)?;
    Some((Family::Exponent, exponent.max(-MAX_EXPONENT)))
}

/// A quantity's text, taken apart.
struct Parts<'t> {
    negative: bool,
    /// Digits before the point, without leading zeros.
    whole: &'t str,
    fraction: &'t str,
    suffix: &'t str,
}

impl<'t> Parts<'t> {
    fn of(text: &'t str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let digits = |text: &'t str| text.split_at(count(text, |byte| byte.is_ascii_digit()));
        let (whole, rest) = digits(unsigned);
        let whole = whole.trim_start_matches('0');
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => digits(rest),
            None => ("", rest),
        };
        let letters = count(suffix, |byte| b"eEinumkKMGTP".contains(&byte));
        let number = suffix.get(letters..).unwrap_or_default();
        let number = number.strip_prefix(['+', '-']).unwrap_or(number);
        if !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(QuantityError::Format);
        }
        let has_digits = unsigned.starts_with(|c: char| c.is_ascii_digit()) || !fraction.is_empty();
        if !has_digits {
            return Err(QuantityError::Numeric);
        }
        let whole = if whole.is_empty() { "0" } else { whole };
        Ok(Self { negative: text.starts_with('-'), whole, fraction, suffix })
    }
}

fn count(text: &str, is: impl Fn(u8) -> bool) -> usize {
    text.bytes().take_while(|byte| is(*byte)).count()
}

/// Returns true if the reference keeps the text as it was given.
fn is_canonical(quantity: &Quantity, parts: &Parts<'_>, digits: &str, number: i128) -> bool {
    match quantity.family {
        Family::Binary => {
            let exponent = suffix(parts.suffix).map(|(_, exponent)| exponent).unwrap_or_default();
            let precision = 14 - i32::try_from(parts.whole.len()).unwrap_or(i32::MAX);
            parts.fraction.is_empty() && precision - exponent * 3 / 10 >= 0 && number & 7 != 0
        }
        Family::Decimal | Family::Exponent => {
            digits.len() <= MAX_DIGITS
                && quantity.exponent >= NANO
                && quantity.exponent % 3 == 0
                && !digits.ends_with("000")
                && !digits.starts_with('0')
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_canonical_texts_are_those_of_kubernetes() {
        let rows = [
            ("0", 0, "0"),
            ("0Gi", 0, "0"),
            ("8192", 8192, "8192"),
            ("9000", 9000, "9k"),
            ("8Ki", 8192, "8Ki"),
            ("50M", 50_000_000, "50M"),
            ("1.5Gi", 1_610_612_736, "1536Mi"),
            ("1024Ki", 1_048_576, "1Mi"),
            ("1000000000", 1_000_000_000, "1G"),
            ("1e9", 1_000_000_000, "1e9"),
            ("1.5e9", 1_500_000_000, "1500e6"),
            ("1.5G", 1_500_000_000, "1500M"),
            ("1.500G", 1_500_000_000, "1.500G"),
            ("-1", -1, "-1"),
            ("-3Gi", -3_221_225_472, "-3Gi"),
            ("100m", 1, "100m"),
            ("1Ti", 1_099_511_627_776, "1Ti"),
            ("0.5Ki", 512, "512"),
            ("1.5", 2, "1500m"),
            ("16Ei", i64::MAX, "9223372036854775807"),
            ("512", 512, "512"),
            ("1e-2000000000", 1, "1e-9"),
            ("-1e-2000000000", -1, "-1e-9"),
        ];
        for (text, value, canonical) in rows {
            let quantity = Quantity::parse(text).expect(text);
            assert_eq!(
                (quantity.value(), quantity.to_string().as_str()),
                (value, canonical),
                "{text}"
            );
        }
    }

    #[test]
    fn quantities_are_compared_by_their_value() {
        let nanos = |text: &str| Quantity::parse(text).expect(text).nanos();
        assert!(nanos("1") > nanos("999m"));
        assert!(nanos("1Gi") > nanos("1G"));
        assert_eq!(nanos("0.1"), nanos("100m"));
        assert!(nanos("1e900") > nanos("1E"));
        let numbers =
            ["1500m", "2Gi", "1e3"].map(|text| Quantity::parse(text).expect(text).approximate());
        assert_eq!(numbers.map(|number| number.to_string()), ["1.5", "2147483648", "1000"]);
    }

    #[test]
    fn other_texts_are_refused() {
        for (text, error) in [
            ("", QuantityError::Format),
            ("1x", QuantityError::Format),
            ("1iK", QuantityError::Suffix),
            ("1ee3", QuantityError::Suffix),
            ("one", QuantityError::Format),
            ("1e2000000000", QuantityError::Suffix),
            (".", QuantityError::Numeric),
            ("Ki", QuantityError::Numeric),
        ] {
            assert_eq!(Quantity::parse(text), Err(error), "{text:?}");
        }
    }
}
