//! Quantities such as `1Gi` or `500m`, printed in the canonical form of Kubernetes.

/// A text that is no quantity. The text is the API machinery's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "quantities must match the regular expression \
     '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)]
pub struct QuantityError;

/// Notation of a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notation {
    Binary,
    Decimal,
    Exponent,
}

/// A quantity with its notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quantity {
    /// Billionths.
    nano: i128,
    notation: Notation,
}

const NANO: i128 = 1_000_000_000;

/// Suffixes with their power of ten.
const DECIMAL: &[(&str, i32)] = &[
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

/// Suffixes with their power of 1024.
const BINARY: &[(&str, u32)] = &[("Ki", 1), ("Mi", 2), ("Gi", 3), ("Ti", 4), ("Pi", 5), ("Ei", 6)];

impl Quantity {
    /// Returns true for less than zero.
    pub(super) const fn is_negative(&self) -> bool {
        self.nano < 0
    }

    /// Returns true for zero.
    pub(super) const fn is_zero(&self) -> bool {
        self.nano == 0
    }

    /// Parses a quantity.
    pub(super) fn parse(text: &str) -> Result<Self, QuantityError> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let end =
            unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(QuantityError);
        }
        let sign = if text.starts_with('-') { -1 } else { 1 };
        let digits = format!("{whole}{fraction}");
        let digits: i128 = digits.parse().map_err(|_| QuantityError)?;
        let below = i32::try_from(fraction.len()).map_err(|_| QuantityError)?;
        if let Some((_, power)) = BINARY.iter().find(|(name, _)| *name == suffix) {
            let size = 1024_i128.pow(*power);
            let nano = digits.checked_mul(size).and_then(|value| shift(value, 9 - below));
            let nano = nano.ok_or(QuantityError)?;
            return Ok(Self { nano: sign * nano, notation: Notation::Binary });
        }
        let (power, notation) = match DECIMAL.iter().find(|(name, _)| *name == suffix) {
            Some((_, power)) => (*power, Notation::Decimal),
            None => (exponent(suffix).ok_or(QuantityError)?, Notation::Exponent),
        };
        let nano = shift(digits, 9 - below + power).ok_or(QuantityError)?;
        Ok(Self { nano: sign * nano, notation })
    }

    /// Prints the quantity in canonical form.
    pub(super) fn canonical(&self) -> String {
        let small = self.nano.abs() < 1024 * NANO;
        match self.notation {
            Notation::Binary if !small => self.binary(),
            Notation::Binary | Notation::Decimal => {
                let (number, power) = self.thousands();
                let suffix = DECIMAL.iter().find(|(_, known)| *known == power);
                format!("{number}{}", suffix.map_or("", |(name, _)| name))
            }
            Notation::Exponent => match self.thousands() {
                (number, 0) => number.to_string(),
                (number, power) => format!("{number}e{power}"),
            },
        }
    }

    fn binary(&self) -> String {
        let mut number = self.nano.div_euclid(NANO) + i128::from(self.nano.rem_euclid(NANO) > 0);
        let mut suffix = "";
        for (name, _) in BINARY {
            if number % 1024 != 0 {
                break;
            }
            number /= 1024;
            suffix = name;
        }
        format!("{number}{suffix}")
    }

    /// Returns a whole number and the largest power of 1000 that divides the quantity.
    fn thousands(&self) -> (i128, i32) {
        let (mut number, mut power) = (self.nano, -9);
        while number != 0 && number % 1000 == 0 && power < 18 {
            number /= 1000;
            power += 3;
        }
        if number == 0 { (0, 0) } else { (number, power) }
    }
}

/// Returns `value * 10^power`, rounded away from zero.
fn shift(value: i128, power: i32) -> Option<i128> {
    let scale = 10_i128.checked_pow(power.unsigned_abs())?;
    if power >= 0 {
        value.checked_mul(scale)
    } else {
        Some(value / scale + i128::from(value % scale > 0))
    }
}

/// Parses a suffix such as `e3` or `E-6`.
fn exponent(suffix: &str) -> Option<i32> {
    let digits = suffix.strip_prefix(['e', 'E'])?;
    let power: i32 = digits.parse().ok()?;
    (-18..=18).contains(&power).then_some(power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_printed_in_canonical_form() {
        let rows = [
            ("0", "0"),
            ("0Gi", "0"),
            ("1", "1"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("0.5", "500m"),
            ("1000m", "1"),
            ("1000", "1k"),
            ("2048", "2048"),
            ("1e3", "1e3"),
            ("0.5Ki", "512"),
            ("-1Gi", "-1Gi"),
            ("1E", "1E"),
            ("100m", "100m"),
        ];
        for (text, printed) in rows {
            let found = Quantity::parse(text).map(|quantity| quantity.canonical());
            assert_eq!(found.as_deref(), Ok(printed), "{text}");
        }
        for text in ["", "x", "1x", "1.1.1", "Gi", "1ki", "1e99", "1 Gi", "--1"] {
            assert_eq!(Quantity::parse(text), Err(QuantityError), "{text}");
        }
    }
}
