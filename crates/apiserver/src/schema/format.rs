//! The string formats of schemas.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::admit::name;

/// Returns true if the text has the format. Unknown formats accept every text.
pub(crate) fn holds(format: &str, text: &str) -> bool {
    match format {
        "ip" => text.parse::<IpAddr>().is_ok(),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "date-time" => text.parse::<jiff::Timestamp>().is_ok(),
        "date" => text.parse::<jiff::civil::Date>().is_ok(),
        // Compat: Kubernetes rejects an empty text here; an absent value must be null or left out.
        "byte" => !text.is_empty() && STANDARD.decode(text).is_ok(),
        "uri" => is_url(text),
        "hostname" => name::is_subdomain(&text.to_ascii_lowercase()),
        "uuid" => is_uuid(text),
        "duration" => duration(text).is_some(),
        _ => true,
    }
}

/// Returns true if the text is an address with a prefix length.
pub(crate) fn is_cidr(text: &str) -> bool {
    cidr(text).is_some()
}

/// Parses the address and prefix length of a CIDR block.
pub(crate) fn cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let plain = length == "0" || (!length.starts_with('0') && !length.starts_with('+'));
    let length: u8 = length.parse().ok().filter(|_| plain)?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    (length <= most).then_some((address, length))
}

/// Returns true if the text is an absolute URL or an absolute path, like a request URI.
pub(crate) fn is_url(text: &str) -> bool {
    if text.chars().any(|c| c.is_control() || c == ' ') {
        return false;
    }
    if text.starts_with('/') {
        return true;
    }
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(letters)
        && !rest.is_empty()
}

fn is_uuid(text: &str) -> bool {
    let bare: String = text.chars().filter(|c| *c != '-').collect();
    bare.len() == 32 && bare.chars().all(|c| c.is_ascii_hexdigit())
}

/// Parses a duration in Go's format (`1h30m`) into seconds.
pub(crate) fn duration(text: &str) -> Option<f64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0.0);
    }
    let mut total = 0.0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at_checked(end)?;
        let number: f64 = number.parse().ok()?;
        let (unit, tail) = [
            ("ns", 1e-9),
            ("us", 1e-6),
            ("µs", 1e-6),
            ("ms", 1e-3),
            ("s", 1.0),
            ("m", 60.0),
            ("h", 3600.0),
        ]
        .into_iter()
        .find_map(|(name, unit)| tail.strip_prefix(name).map(|tail| (unit, tail)))?;
        total += number * unit;
        rest = tail;
    }
    Some(sign * total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_accept_and_reject() {
        for (format, good, bad) in [
            ("ip", "fe80::1", "10.0.0"),
            ("ipv4", "10.0.0.1", "fe80::1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("date-time", "2026-01-02T03:04:05Z", "yesterday"),
            ("byte", "dg==", "?"),
            ("uri", "https://a/b", "a b"),
            ("duration", "1h30m", "1x"),
        ] {
            assert!(holds(format, good), "{format} {good}");
            assert!(!holds(format, bad), "{format} {bad}");
        }
        assert!(holds("unheard-of", "anything"));
    }
}
