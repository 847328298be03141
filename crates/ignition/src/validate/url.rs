//! URLs, parsed with the rules of Go's `net/url`, and the URLs that each version allows.

use std::{borrow::Cow, net::Ipv6Addr};

use crate::{data_url, spec::Spec};

pub(super) const UNREADABLE: &str = "unable to parse url";
pub(super) const BAD_SCHEME: &str = "invalid url scheme";
const BAD_ARN: &str = "invalid S3 ARN format";
const BAD_OBJECT_VERSION: &str = "invalid S3 object VersionId";

/// Checks that `spec` can fetch from `source`, if it is set.
pub(super) fn check_optional(source: Option<&str>, spec: Spec) -> Result<(), Cow<'static, str>> {
    source.filter(|source| !source.is_empty()).map_or(Ok(()), |source| check(source, spec))
}

/// Checks that `spec` can fetch from `source`.
pub(super) fn check(source: &str, spec: Spec) -> Result<(), Cow<'static, str>> {
    let url = Url::parse(source).ok_or(UNREADABLE)?;
    match url.scheme.as_str() {
        "http" | "https" | "tftp" => Ok(()),
        "gs" if spec >= Spec::V3_2 => Ok(()),
        "s3" => Ok(object_version(&url)?),
        "arn" if spec >= Spec::V3_4 => Ok(arn(&url)?),
        "data" => data_url::check(source).map_err(|error| error.to_string().into()),
        _ => Err(BAD_SCHEME.into()),
    }
}

fn arn(url: &Url<'_>) -> Result<(), &'static str> {
    // The sections between the colons are partition, service, region, account and resource.
    let mut sections = url.opaque.splitn(5, ':');
    let service = sections.nth(1);
    let resource = sections.nth(2).ok_or(BAD_ARN)?;
    let needed = if resource.starts_with("accesspoint/") { 2 } else { 1 };
    if service != Some("s3") || url.opaque.matches('/').count() < needed {
        return Err(BAD_ARN);
    }
    object_version(url)
}

/// Rejects a query with an empty object version.
pub(super) fn object_version(url: &Url<'_>) -> Result<(), &'static str> {
    let pairs = url.query.split('&').filter(|pair| !pair.contains(';') && !pair.is_empty());
    let version = pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .filter(|(name, value)| has_valid_escapes(name) && has_valid_escapes(value))
        .find(|(name, _)| is_version_id(name));
    match version {
        Some((_, "")) => Err(BAD_OBJECT_VERSION),
        Some(_) | None => Ok(()),
    }
}

/// Returns true if the name of a query parameter is `versionId` after decoding escapes.
fn is_version_id(name: &str) -> bool {
    let mut expected = "versionId".bytes();
    let mut rest = name.as_bytes();
    while let [first, behind @ ..] = rest {
        let (byte, behind) = match (first, behind) {
            (b'%', [high, low, behind @ ..]) => (unescaped(*high, *low), behind),
            _ => (Some(*first), behind),
        };
        if byte.is_none() || byte != expected.next() {
            return false;
        }
        rest = behind;
    }
    expected.next().is_none()
}

/// Returns the byte of two hexadecimal digits.
fn unescaped(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

/// The parts of a URL that the rules need.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Url<'a> {
    /// Text before the first colon, in lower case.
    pub(super) scheme: String,
    /// Text after the scheme, if it does not start with a slash.
    opaque: &'a str,
    query: &'a str,
}

impl<'a> Url<'a> {
    /// Parses a URL; returns `None` if Go rejects it.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let (text, fragment) = text.split_once('#').unwrap_or((text, ""));
        if has_control(text.as_bytes()) || !has_valid_escapes(fragment) {
            return None;
        }
        let (scheme, rest) = split_scheme(text)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let scheme = scheme.to_ascii_lowercase();
        if !rest.starts_with('/') {
            if !scheme.is_empty() {
                return Some(Self { scheme, opaque: rest, query });
            }
            if rest.split('/').next().is_some_and(|first| first.contains(':')) {
                return None;
            }
        }
        let mut path = rest;
        let has_authority = !scheme.is_empty() || !rest.starts_with("///");
        if let (true, Some(after)) = (has_authority, rest.strip_prefix("//")) {
            let end = after.find('/').unwrap_or(after.len());
            let (authority, after) = after.split_at_checked(end)?;
            if !is_authority(authority) {
                return None;
            }
            path = after;
        }
        has_valid_escapes(path).then_some(Self { scheme, opaque: "", query })
    }
}

fn has_control(bytes: &[u8]) -> bool {
    // Chunks without an early exit let the compiler vectorise the loop.
    let is_control = |byte: u8| byte < b' ' || byte == 0x7f;
    bytes.chunks(64).any(|chunk| chunk.iter().fold(false, |found, byte| found | is_control(*byte)))
}

/// Splits `text` after its scheme; returns `None` if it starts with a colon.
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
    let (scheme, rest) = text.split_at_checked(end)?;
    match rest.strip_prefix(':') {
        Some(_) if scheme.is_empty() => None,
        Some(rest) if scheme.starts_with(|c: char| c.is_ascii_alphabetic()) => Some((scheme, rest)),
        Some(_) | None => Some(("", text)),
    }
}

/// Returns true if every percent sign starts a valid escape.
fn has_valid_escapes(text: &str) -> bool {
    escapes(text).all(|escape| escape.is_some())
}

/// Returns the value of each escape in `text`, or `None` for an invalid one.
fn escapes(text: &str) -> impl Iterator<Item = Option<u8>> {
    text.split('%').skip(1).map(|after| match after.as_bytes() {
        [high, low, ..] => unescaped(*high, *low),
        _ => None,
    })
}

fn is_authority(authority: &str) -> bool {
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (user, host),
        None => ("", authority),
    };
    let in_user = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    is_host(host) && user.chars().all(in_user) && has_valid_escapes(user)
}

fn is_host(host: &str) -> bool {
    if let Some(open) = host.rfind('[') {
        let literal = host.get(open + 1..).and_then(|rest| rest.rsplit_once(']'));
        return open == 0 && literal.is_some_and(|(name, port)| is_ip(name) && is_port(port));
    }
    let colon = host.find(':').unwrap_or(host.len());
    host.get(colon..).is_some_and(is_port) && is_host_text(host)
}

fn is_port(port: &str) -> bool {
    port.is_empty()
        || port.strip_prefix(':').is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
}

/// Returns true if the characters and escapes of `text` are allowed in a host name.
fn is_host_text(text: &str) -> bool {
    // Only bytes outside ASCII, and the percent sign itself, may be escaped.
    let escape_fits = |escape: Option<u8>| escape.is_some_and(|byte| byte >= 0x80 || byte == b'%');
    text.chars().all(|c| c == '%' || may_stand_in_host(c)) && escapes(text).all(escape_fits)
}

fn may_stand_in_host(c: char) -> bool {
    !c.is_ascii() || c.is_ascii_alphanumeric() || "!$&'()*+,;=:[]<>\"-_.~".contains(c)
}

/// Returns true if `name`, the text between brackets, is an IPv6 address, optionally with a zone.
fn is_ip(name: &str) -> bool {
    let (address, zone) = match name.split_once("%25") {
        Some((address, zone)) => (address, Some(zone)),
        None => (name, None),
    };
    let in_zone = |byte: u8| matches!(byte, b'%' | b' ') || may_stand_in_host(char::from(byte));
    let zone_fits = zone.is_none_or(|zone| {
        !zone.is_empty()
            && zone.chars().all(|c| c == '%' || may_stand_in_host(c))
            && escapes(zone).all(|escape| escape.is_some_and(in_zone))
    });
    address.parse::<Ipv6Addr>().is_ok() && zone_fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed_as_in_go() {
        let cases = [
            ("", Some("")),
            ("HTTP://x", Some("http")),
            ("data:,x", Some("data")),
            ("1a:b", None),
            (":b", None),
            ("a b", Some("")),
            ("a/b:c", Some("")),
            ("http://a\nb", None),
            ("http://x/%zz", None),
            ("http://x/#%zz", None),
            ("http://x/?%zz", Some("http")),
            ("http://u:p@h:80/", Some("http")),
            ("http://u p@h/", None),
            ("http://h:x/", None),
            ("http://h:1:2/", None),
            ("http://h%20/", None),
            ("http://h%C3%A9/", Some("http")),
            ("http://[::1]:80", Some("http")),
            ("http://[1.2.3.4]", None),
            ("http://[fe80::1%25en0]", Some("http")),
            ("http://[fe80::1%25]", None),
            ("http://a[::1]", None),
        ];
        for (text, scheme) in cases {
            assert_eq!(Url::parse(text).map(|url| url.scheme).as_deref(), scheme, "{text:?}");
        }
    }

    #[test]
    fn an_object_version_must_not_be_empty() {
        let cases = [
            ("s3://b/k", true),
            ("s3://b/k?versionId", false),
            ("s3://b/k?%76ersionId=", false),
            ("s3://b/k?versionId=%zz", true),
            ("s3://b/k?a;versionId=", true),
            ("s3://b/k?versionId=1&versionId=", true),
        ];
        for (source, expected) in cases {
            assert_eq!(check(source, Spec::V3_0).is_ok(), expected, "{source}");
        }
    }
}
