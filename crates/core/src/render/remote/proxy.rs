//! Selection of the proxy for a host.
//!
//! Compat: `noProxy` is read as Go's httpproxy reads it, because the cluster's other components do.

use std::net::IpAddr;

use mco_api::controller_config::ProxyStatus;

/// Returns the proxy for a host; `None` for a direct connection.
#[must_use]
pub fn proxy_for<'p>(
    proxies: Option<&'p ProxyStatus>,
    is_https: bool,
    host: &str,
    port: u16,
) -> Option<&'p str> {
    let proxies = proxies?;
    let proxy = if is_https { &proxies.https_proxy } else { &proxies.http_proxy };
    let direct = proxy.is_empty() || is_this_machine(host) || excepts(proxies, host, port);
    (!direct).then_some(proxy.as_str())
}

fn is_this_machine(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || bare(host).parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

fn excepts(proxies: &ProxyStatus, host: &str, port: u16) -> bool {
    let host = bare(host).trim_end_matches('.').to_ascii_lowercase();
    let entries = proxies.no_proxy.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    entries.into_iter().any(|entry| matches(&entry.to_ascii_lowercase(), &host, port))
}

fn matches(entry: &str, host: &str, port: u16) -> bool {
    if entry == "*" {
        return true;
    }
    let address = host.parse::<IpAddr>().ok();
    if let Some((network, length)) = entry.split_once('/') {
        return address.is_some_and(|address| is_in(address, network, length));
    }
    let (name, at) = split_port(entry);
    if at.is_some_and(|at| at != port) {
        return false;
    }
    if let Ok(wanted) = bare(name).parse::<IpAddr>() {
        return address == Some(wanted);
    }
    if address.is_some() {
        return false;
    }
    // `.a.b` and `*.a.b` match hosts below a.b; `a.b` matches these and a.b itself.
    let (below, itself) = match name.strip_prefix("*.").or_else(|| name.strip_prefix('.')) {
        Some(below) => (below, false),
        None => (name, true),
    };
    let is_below = host.strip_suffix(below).is_some_and(|before| before.ends_with('.'));
    is_below || (itself && host == below)
}

fn split_port(entry: &str) -> (&str, Option<u16>) {
    match entry.rsplit_once(':') {
        // With several colons the last is part of an IPv6 address, unless that is in brackets.
        Some((name, port)) if !name.contains(':') || name.ends_with(']') => {
            port.parse().map_or((entry, None), |port| (name, Some(port)))
        }
        _ => (entry, None),
    }
}

fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

fn is_in(address: IpAddr, network: &str, length: &str) -> bool {
    let (Ok(network), Ok(length)) = (network.parse::<IpAddr>(), length.parse::<u32>()) else {
        return false;
    };
    let same = |left: u128, right: u128, bits: u32| {
        length <= bits && (length == 0 || (left ^ right) >> (bits - length) == 0)
    };
    match (address, network) {
        (IpAddr::V4(left), IpAddr::V4(right)) => {
            same(left.to_bits().into(), right.to_bits().into(), 32)
        }
        (IpAddr::V6(left), IpAddr::V6(right)) => same(left.to_bits(), right.to_bits(), 128),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(no_proxy: &str) -> ProxyStatus {
        ProxyStatus {
            http_proxy: "http://plain:3128".to_owned(),
            https_proxy: "http://secure:3128".to_owned(),
            no_proxy: no_proxy.to_owned(),
        }
    }

    #[test]
    fn the_scheme_chooses_the_proxy() {
        let given = proxies("");
        assert_eq!(proxy_for(Some(&given), false, "a.test", 80), Some("http://plain:3128"));
        assert_eq!(proxy_for(Some(&given), true, "a.test", 443), Some("http://secure:3128"));
        assert_eq!(proxy_for(None, true, "a.test", 443), None);
        let one = ProxyStatus { http_proxy: String::new(), ..given };
        assert_eq!(proxy_for(Some(&one), false, "a.test", 80), None);
    }

    #[test]
    fn no_proxy_matches_names_addresses_networks_and_ports() {
        let cases = [
            // noProxy, host, port, uses the proxy
            ("", "a.test", 80, true),
            ("*", "a.test", 80, false),
            ("a.test", "a.test", 80, false),
            ("a.test", "b.a.test", 80, false),
            ("a.test", "ba.test", 80, true),
            (".a.test", "b.a.test", 80, false),
            (".a.test", "a.test", 80, true),
            ("*.a.test", "b.a.test", 80, false),
            ("A.Test", "a.test.", 80, false),
            ("x, a.test ,y", "a.test", 80, false),
            ("a.test:8080", "a.test", 8080, false),
            ("a.test:8080", "a.test", 80, true),
            ("10.0.0.0/8", "10.1.2.3", 80, false),
            ("10.0.0.0/8", "11.1.2.3", 80, true),
            ("10.0.0.0/99", "10.1.2.3", 80, true),
            ("0.0.0.0/0", "11.1.2.3", 80, false),
            ("10.0.0.0/8", "a.test", 80, true),
            ("192.0.2.7", "192.0.2.7", 80, false),
            ("2001:db8::/32", "[2001:db8::1]", 443, false),
            ("2001:db8::1", "[2001:db8::1]", 443, false),
            ("[2001:db8::1]:443", "[2001:db8::1]", 443, false),
            ("[2001:db8::1]:443", "[2001:db8::1]", 444, true),
            ("", "localhost", 80, false),
            ("", "127.0.0.1", 80, false),
            ("", "[::1]", 80, false),
        ];
        for (no_proxy, host, port, through) in cases {
            let given = proxies(no_proxy);
            let proxy = proxy_for(Some(&given), false, host, port);
            assert_eq!(proxy.is_some(), through, "{host}:{port} with {no_proxy:?}");
        }
    }
}
