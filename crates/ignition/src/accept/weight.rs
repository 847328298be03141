//! The weight `q` of an `Accept` entry: parsing as in Go, and sorting by weight.

use std::cmp::Ordering;

/// Number of entries up to which the reference uses insertion sort.
const MAX_INSERTION_SORT: usize = 20;

/// Parses a weight as Go parses a 32-bit float.
///
/// In contrast to Rust, Go accepts hexadecimal floats and underscores between digits, and rejects
/// signed NaNs and numbers that are too large, which Rust parses as infinite.
pub(super) fn parse(text: &str) -> Option<f32> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let sign = if text.starts_with('-') { -1.0 } else { 1.0 };
    if text.eq_ignore_ascii_case("nan") {
        return Some(f32::NAN);
    }
    if unsigned.eq_ignore_ascii_case("inf") || unsigned.eq_ignore_ascii_case("infinity") {
        return Some(sign * f32::INFINITY);
    }
    let digits = without_underscores(unsigned)?;
    let value = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => parse_hex(hex)?,
        None => parse_decimal(&digits)?,
    };
    value.is_finite().then_some(sign * value)
}

fn parse_decimal(digits: &str) -> Option<f32> {
    // Only digits, a point and an exponent: Rust would also accept words and a second sign.
    digits.starts_with(|c: char| c.is_ascii_digit() || c == '.').then(|| digits.parse().ok())?
}

/// Parses the part after `0x`: digits, optionally a point, and a mandatory binary exponent.
fn parse_hex(digits: &str) -> Option<f32> {
    let (mantissa, exponent) = digits.split_once(['p', 'P'])?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let magnitude = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if magnitude.is_empty() || !magnitude.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    // 52 bits and a sticky last bit are more than an f32 holds, so rounding happens once.
    let (mut bits, mut scale) = (0_u64, 0_i64);
    for digit in whole.chars().chain(fraction.chars()) {
        let digit = u64::from(digit.to_digit(16)?);
        if bits >> 48 == 0 {
            bits = bits << 4 | digit;
        } else {
            bits |= u64::from(digit != 0);
            scale += 4;
        }
    }
    scale -= i64::try_from(fraction.len()).ok()?.checked_mul(4)?;
    let shift: i64 = magnitude.parse().unwrap_or(i64::MAX / 2);
    scale += if exponent.starts_with('-') { -shift } else { shift };
    // Beyond these limits every number is zero or infinite already.
    let scale = i32::try_from(scale.clamp(-400, 400)).ok()?;
    #[expect(clippy::cast_precision_loss, reason = "the number has at most 53 bits")]
    let exact = bits as f64 * f64::from(scale).exp2();
    #[expect(clippy::cast_possible_truncation, reason = "rounding to the nearest is wanted")]
    let value = exact as f32;
    Some(value)
}

/// Removes underscores, each of which must be between two digits.
///
/// The prefix `0x` counts as a digit, and so do the hexadecimal digits after it.
fn without_underscores(text: &str) -> Option<String> {
    let is_hex = text.get(..2).is_some_and(|prefix| prefix.eq_ignore_ascii_case("0x"));
    let is_digit = |c: char| if is_hex { c.is_ascii_hexdigit() } else { c.is_ascii_digit() };
    let mut kept = String::with_capacity(text.len());
    let mut before = None;
    for (at, c) in text.char_indices() {
        let counts = is_digit(c) || (is_hex && at == 1);
        match before {
            Some('_') if !counts => return None,
            Some(_) | None => {}
        }
        if c == '_' {
            if before != Some('0') {
                return None;
            }
            before = Some('_');
            continue;
        }
        kept.push(c);
        before = Some(if counts { '0' } else { '!' });
    }
    (before != Some('_')).then_some(kept)
}

/// Sorts by descending weight; entries of equal weight keep their order.
///
/// Compat: NaN compares with no other weight, so the position of such an entry depends on the sort
/// algorithm. Headers of a usual length are sorted as the reference sorts them; in longer headers
/// such an entry comes last.
pub(super) fn sort<T>(entries: &mut [T], weight: impl Fn(&T) -> f32) {
    if entries.len() > MAX_INSERTION_SORT {
        let known = |entry: &T| match weight(entry) {
            number if number.is_nan() => f32::NEG_INFINITY,
            number => number,
        };
        entries.sort_by(|a, b| known(b).partial_cmp(&known(a)).unwrap_or(Ordering::Equal));
        return;
    }
    for end in 1..entries.len() {
        for at in (1..=end).rev() {
            let pair = entries.get(at - 1).map(&weight).zip(entries.get(at).map(&weight));
            if !pair.is_some_and(|(left, right)| right > left) {
                break;
            }
            entries.swap(at - 1, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_parsed_as_in_go() {
        let cases = [
            ("0.5", Some(0.5)),
            ("-1", Some(-1.0)),
            ("1.", Some(1.0)),
            (".5", Some(0.5)),
            ("1e1", Some(10.0)),
            ("+Inf", Some(f32::INFINITY)),
            ("-infinity", Some(f32::NEG_INFINITY)),
            ("0x1p-2", Some(0.25)),
            ("0X.8p1", Some(1.0)),
            ("0x_1_0p0", Some(16.0)),
            ("0x1.000001p0", Some(1.0)),
            ("0x1.0000018p0", Some(1.000_000_1)),
            ("1_0", Some(10.0)),
            ("1__0", None),
            ("_1", None),
            ("1_", None),
            ("0x1", None),
            ("0xp1", None),
            ("1e39", None),
            ("0x1p999999999999999999999", None),
            ("0x1p-999999999999999999999", Some(0.0)),
            ("++1", None),
            ("+-1", None),
            ("+nan", None),
            ("", None),
            (".", None),
            ("1,5", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), expected, "{text:?}");
        }
        assert!(parse("NaN").is_some_and(f32::is_nan));
    }

    #[test]
    fn a_nan_weight_keeps_its_position_between_its_neighbours() {
        let mut entries = [0.1, f32::NAN, 0.9, 0.5];
        sort(&mut entries, |weight| *weight);
        assert!(entries[1].is_nan());
        assert_eq!((entries[0], entries[2], entries[3]), (0.1, 0.9, 0.5));
    }

    #[test]
    fn a_long_header_sorts_stably() {
        let mut entries: Vec<_> =
            (0..50).map(|at| (at, if at % 2 == 0 { 0.0 } else { 1.0 })).collect();
        sort(&mut entries, |entry| entry.1);
        let order: Vec<_> = entries.iter().map(|entry| entry.0).collect();
        let expected: Vec<_> =
            (0..50).filter(|at| at % 2 == 1).chain((0..50).filter(|at| at % 2 == 0)).collect();
        assert_eq!(order, expected);
    }
}
