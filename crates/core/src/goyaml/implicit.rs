//! Implicit types of plain scalars in YAML 1.1.
//!
//! Text that a parser would take for another type is quoted. Compat: go-yaml v2 resolve.go and
//! encode.go, with the number and time syntax of Go's standard library behind them.

/// Returns true if `text`, written plain, is parsed as text.
pub(super) fn is_text(text: &str) -> bool {
    let Some(first) = text.bytes().next() else { return false };
    match first {
        b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' | b'~' => {
            !is_word(text)
        }
        b'.' => !is_special_float(text) && !is_go_float(text),
        b'+' | b'-' | b'0'..=b'9' => {
            !is_special_float(text) && !is_timestamp(text) && !is_number(text) && !is_base_60(text)
        }
        _ => true,
    }
}

fn is_word(text: &str) -> bool {
    matches!(
        text,
        "y" | "Y"
            | "yes"
            | "Yes"
            | "YES"
            | "true"
            | "True"
            | "TRUE"
            | "on"
            | "On"
            | "ON"
            | "n"
            | "N"
            | "no"
            | "No"
            | "NO"
            | "false"
            | "False"
            | "FALSE"
            | "off"
            | "Off"
            | "OFF"
            | "~"
            | "null"
            | "Null"
            | "NULL"
    )
}

fn is_special_float(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']);
    let infinite = matches!(unsigned.unwrap_or(text), ".inf" | ".Inf" | ".INF");
    infinite || matches!(text, ".nan" | ".NaN" | ".NAN")
}

fn is_number(text: &str) -> bool {
    let digits = text.replace('_', "");
    is_go_integer(&digits) || is_finite_float(&digits) || is_prefixed_binary(&digits)
}

/// Recognizes Go's integers with a base prefix: signed in 64 bits, or unsigned in 64 bits.
fn is_go_integer(text: &str) -> bool {
    let (negative, signed, rest) = match text.as_bytes().first() {
        Some(b'-') => (true, true, text.get(1..)),
        Some(b'+') => (false, true, text.get(1..)),
        _ => (false, false, Some(text)),
    };
    let rest = rest.unwrap_or_default().to_ascii_lowercase();
    let (base, digits) = match rest.get(..2) {
        Some("0x") => (16, rest.get(2..)),
        Some("0b") => (2, rest.get(2..)),
        Some("0o") => (8, rest.get(2..)),
        Some(two) if two.starts_with('0') => (8, rest.get(1..)),
        _ => (10, Some(rest.as_str())),
    };
    let limit = match (negative, signed) {
        (true, _) => 1_u128 << 63,
        (false, true) => (1 << 63) - 1,
        (false, false) => (1 << 64) - 1,
    };
    fits(digits.unwrap_or_default(), base, limit)
}

/// Recognizes binary digits after `0b`; the reference also accepts a sign after the prefix.
fn is_prefixed_binary(text: &str) -> bool {
    if let Some(digits) = text.strip_prefix("0b") {
        return match digits.as_bytes().first() {
            Some(b'-') => fits(digits.get(1..).unwrap_or_default(), 2, 1 << 63),
            Some(b'+') => fits(digits.get(1..).unwrap_or_default(), 2, (1 << 63) - 1),
            _ => fits(digits, 2, (1 << 64) - 1),
        };
    }
    text.strip_prefix("-0b").is_some_and(|digits| fits(digits, 2, 1 << 63))
}

fn fits(digits: &str, base: u32, limit: u128) -> bool {
    let plain = !digits.is_empty() && digits.chars().all(|c| c.is_digit(base));
    plain && u128::from_str_radix(digits, base).is_ok_and(|number| number <= limit)
}

/// Recognizes `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?` within the range of a float.
fn is_finite_float(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (whole, rest) = split_digits(unsigned);
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => split_digits(rest),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return false;
    }
    let complete = match rest.strip_prefix(['e', 'E']) {
        Some(exponent) => {
            let (digits, rest) =
                split_digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent));
            !digits.is_empty() && rest.is_empty()
        }
        None => rest.is_empty(),
    };
    complete && text.parse::<f64>().is_ok_and(f64::is_finite)
}

/// Recognizes a float in Go's own syntax, with underscores allowed between digits.
fn is_go_float(text: &str) -> bool {
    let bytes = text.as_bytes();
    let digit = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
    let mut underscores = text.match_indices('_').map(|(at, _)| at);
    underscores.all(|at| digit(at.checked_sub(1)) && digit(Some(at + 1)))
        && is_finite_float(&text.replace('_', ""))
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// Recognizes `[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?`.
fn is_base_60(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let mut parts = unsigned.split(':');
    let digits_or_underscores = |part: &str| part.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    let head = parts.next().unwrap_or_default();
    if !head.starts_with(|c: char| c.is_ascii_digit()) || !digits_or_underscores(head) {
        return false;
    }
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return false };
    let last = match last.split_once('.') {
        Some((last, fraction)) if digits_or_underscores(fraction) => last,
        Some(_) => return false,
        None => last,
    };
    parts.push(last);
    parts.iter().all(|part| match part.as_bytes() {
        [unit] => unit.is_ascii_digit(),
        [ten, unit] => (b'0'..=b'5').contains(ten) && unit.is_ascii_digit(),
        _ => false,
    })
}

/// Recognizes a date, or a date and a time, with one or two digits for all but the year.
fn is_timestamp(text: &str) -> bool {
    let (year, rest) = split_digits(text);
    let (4, Some(rest)) = (year.len(), rest.strip_prefix('-')) else { return false };
    let year: u32 = year.parse().unwrap_or_default();
    let Some((month, rest)) = two_digits(rest) else { return false };
    let Some((day, rest)) = rest.strip_prefix('-').and_then(two_digits) else { return false };
    if !(1..=days(month, year)).contains(&day) {
        return false;
    }
    match rest.bytes().next() {
        None => true,
        Some(b' ') => clock(rest.get(1..).unwrap_or_default()) == Some(""),
        Some(b'T' | b't') => clock(rest.get(1..).unwrap_or_default()).is_some_and(is_zone),
        Some(_) => false,
    }
}

fn days(month: u32, year: u32) -> u32 {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => 0,
    }
}

/// Parses `hour:minute:second` and an optional fraction; returns the rest.
fn clock(text: &str) -> Option<&str> {
    let (hour, rest) = two_digits(text)?;
    let (minute, rest) = two_digits(rest.strip_prefix(':')?)?;
    let (second, rest) = two_digits(rest.strip_prefix(':')?)?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let fraction = rest.strip_prefix(['.', ',']).map(split_digits);
    Some(fraction.filter(|(digits, _)| !digits.is_empty()).map_or(rest, |(_, rest)| rest))
}

fn is_zone(text: &str) -> bool {
    if text == "Z" {
        return true;
    }
    let parse = |part: Option<&str>| {
        part.filter(|p| p.bytes().all(|b| b.is_ascii_digit())).and_then(|p| p.parse::<u32>().ok())
    };
    text.len() == 6
        && text.starts_with(['+', '-'])
        && text.get(3..4) == Some(":")
        && parse(text.get(1..3)).is_some_and(|hours| hours <= 24)
        && parse(text.get(4..6)).is_some_and(|minutes| minutes <= 60)
}

fn two_digits(text: &str) -> Option<(u32, &str)> {
    let (digits, _) = split_digits(text);
    let (number, rest) = text.split_at(digits.len().min(2));
    Some((number.parse().ok()?, rest))
}
