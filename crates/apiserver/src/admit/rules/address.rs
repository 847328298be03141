//! Validation of IP addresses and ports.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};

use crate::failure::Fault;

/// Validates an IP address: no zeros in front, no IPv4 address within IPv6.
pub(super) fn ip(place: &str, text: &str) -> Vec<Fault> {
    let rule = match parse(text) {
        None => "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        Some(Parsed { has_zeros: true, .. }) => "must not have leading 0s",
        Some(Parsed { ip: IpAddr::V6(ip), .. }) if ip.to_ipv4_mapped().is_some() => {
            "must not be an IPv4-mapped IPv6 address"
        }
        Some(_) => return Vec::new(),
    };
    vec![Fault::invalid(place, &json!(text), rule)]
}

/// Validates the address of an endpoint: addresses of one machine or one link are refused.
pub(super) fn endpoint(place: &str, text: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut refuse = |rule: &str| faults.push(Fault::invalid(place, &json!(text), rule));
    let Some(Parsed { ip, .. }) = parse(text) else {
        refuse("must be a valid IP address");
        return faults;
    };
    if ip.is_unspecified() {
        refuse(&format!("may not be unspecified ({text})"));
    }
    if ip.is_loopback() {
        refuse("may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    let (is_link_local, is_link_multicast) = match ip {
        IpAddr::V4(ip) => {
            let [a, b, c, _] = ip.octets();
            (ip.is_link_local(), (a, b, c) == (224, 0, 0))
        }
        IpAddr::V6(ip) => {
            let [first, ..] = ip.segments();
            (first & 0xffc0 == 0xfe80, first & 0xff0f == 0xff02)
        }
    };
    if is_link_local {
        refuse("may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if is_link_multicast {
        refuse("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
    faults
}

/// Validates a block of addresses: no zeros in front, no addresses of one machine.
pub(super) fn block(place: &str, text: &str) -> Option<Fault> {
    let found = text.split_once('/').and_then(|(ip, length)| {
        let is_number = length.bytes().all(|byte| byte.is_ascii_digit());
        let bits = length.parse::<u32>().ok().filter(|_| is_number)?;
        let ip = parse(ip)?;
        let most = if ip.ip.is_ipv4() { 32 } else { 128 };
        (bits <= most).then_some((ip, length, bits))
    });
    let rule = match found {
        None => "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
        Some((Parsed { has_zeros: true, .. }, ..)) => LEADING_ZEROS,
        Some((_, length, _)) if length.len() > 1 && length.starts_with('0') => LEADING_ZEROS,
        Some((Parsed { ip: IpAddr::V6(ip), .. }, ..)) if ip.to_ipv4_mapped().is_some() => {
            "must not have an IPv4-mapped IPv6 address"
        }
        Some((Parsed { ip, .. }, _, bits)) if is_within(ip, bits) => {
            "must not have bits set beyond the prefix length"
        }
        Some(_) => return None,
    };
    Some(Fault::invalid(place, &json!(text), rule))
}

const LEADING_ZEROS: &str = "must not have leading 0s in IP or prefix length";

/// Returns true if the address is not the first one of its block.
fn is_within(ip: IpAddr, bits: u32) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.to_bits() & u32::MAX.checked_shr(bits).unwrap_or(0) != 0,
        IpAddr::V6(ip) => ip.to_bits() & u128::MAX.checked_shr(bits).unwrap_or(0) != 0,
    }
}

/// Returns true if the text is an IPv6 address.
pub(super) fn is_v6(text: &str) -> bool {
    parse(text).is_some_and(|found| found.ip.is_ipv6())
}

struct Parsed {
    ip: IpAddr,
    /// True if a number of the address starts with a zero.
    has_zeros: bool,
}

fn parse(text: &str) -> Option<Parsed> {
    if let Ok(ip) = text.parse() {
        return Some(Parsed { ip, has_zeros: false });
    }
    let octets: Option<Vec<u8>> = text
        .split('.')
        .map(|part| {
            let is_number =
                (1..=3).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
            is_number.then(|| part.parse().ok()).flatten()
        })
        .collect();
    let octets: [u8; 4] = octets?.try_into().ok()?;
    Some(Parsed { ip: Ipv4Addr::from(octets).into(), has_zeros: true })
}

/// Validates the number of a port.
pub(super) fn port(place: &str, value: &Value) -> Option<Fault> {
    let is_port = value.as_i64().is_some_and(|number| (1..=65_535).contains(&number));
    let rule = "must be between 1 and 65535, inclusive";
    (!is_port).then(|| Fault::invalid(place, value, rule))
}

/// Validates the name of a port.
pub(super) fn port_name(place: &str, name: &str) -> Vec<Fault> {
    let mut rules = Vec::new();
    let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.len() > 15 {
        rules.push("must be no more than 15 characters");
    }
    if name.is_empty() || !name.chars().all(fine) {
        rules.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    }
    if !name.contains(|c: char| c.is_ascii_lowercase()) {
        rules.push("must contain at least one letter (a-z)");
    }
    if name.contains("--") {
        rules.push("must not contain consecutive hyphens");
    }
    if name.starts_with('-') || name.ends_with('-') {
        rules.push("must not begin or end with a hyphen");
    }
    rules.into_iter().map(|rule| Fault::invalid(place, &json!(name), rule)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_begin_with_their_first_address() {
        for (text, expected) in [
            ("10.0.0.0/24", None),
            ("10.0.0.0/0", Some("bits set")),
            ("0.0.0.0/0", None),
            ("10.0.0.1/32", None),
            ("2001:db8::/64", None),
            ("2001:db8::1/64", Some("bits set")),
            ("10.0.0.1/24", Some("bits set")),
            ("010.0.0.0/24", Some("leading 0s")),
            ("10.0.0.0/024", Some("leading 0s")),
            ("::ffff:10.0.0.0/120", Some("IPv4-mapped")),
            ("10.0.0.0/33", Some("valid CIDR")),
            ("10.0.0.0/+8", Some("valid CIDR")),
            ("10.0.0.0", Some("valid CIDR")),
        ] {
            let found = block("place", text).map(|fault| fault.message);
            let is_expected = match (&found, expected) {
                (Some(found), Some(expected)) => found.contains(expected),
                (found, expected) => found.is_none() && expected.is_none(),
            };
            assert!(is_expected, "{text}: {found:?}");
        }
    }

    #[test]
    fn addresses_have_one_form() {
        for (text, expected) in [
            ("10.0.0.1", None),
            ("2001:db8::1", None),
            ("010.0.0.1", Some("leading 0s")),
            ("::ffff:10.0.0.1", Some("IPv4-mapped")),
            ("10.0.0", Some("valid IP address")),
            ("x", Some("valid IP address")),
        ] {
            let found = ip("ip", text);
            match expected {
                None => assert!(found.is_empty(), "{text}: {found:?}"),
                Some(words) => assert!(found[0].message.contains(words), "{text}: {found:?}"),
            }
        }
    }

    #[test]
    fn endpoints_have_addresses_that_others_reach() {
        for text in
            ["0.0.0.0", "127.0.0.1", "169.254.1.1", "224.0.0.5", "::1", "fe80::1", "ff02::1"]
        {
            assert_eq!(endpoint("ip", text).len(), 1, "{text}");
        }
        assert!(endpoint("ip", "10.0.0.1").is_empty());
    }
}
