//! A parsed HTTP URL.

use http::{HeaderValue, Uri};
use percent_encoding::percent_decode_str;

use super::connect::basic;

/// An HTTP URL, split into the parts that a request needs.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) is_https: bool,
    /// Host name or IP address; IPv6 without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// Path and query.
    pub(super) path: String,
    /// Authorization header for the user and password of the URL.
    pub(super) authorization: Option<HeaderValue>,
}

impl Target {
    /// Parses a URL; `None` if it is not HTTP.
    pub(super) fn parse(url: &str) -> Option<Self> {
        let uri: Uri = url.split('#').next()?.parse().ok()?;
        let is_https = match uri.scheme_str()?.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let host = uri.host()?.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let user = uri.authority()?.as_str().rsplit_once('@').map(|(user, _)| user);
        let authorization = user.map(|user| {
            let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
            let (name, password) = user.split_once(':').unwrap_or((user, ""));
            basic(&decoded(name), &decoded(password))
        });
        (!host.is_empty()).then_some(Self { is_https, host, port, path, authorization })
    }

    /// Resolves the location of a redirect.
    pub(super) fn follow(&self, location: &str) -> Option<Self> {
        let scheme = if self.is_https { "https" } else { "http" };
        let here = |path: &str| Self { path: path.to_owned(), ..self.clone() };
        if let Some(target) = Self::parse(location) {
            return Some(target);
        }
        if location.contains("://") {
            return None;
        }
        if location.starts_with("//") {
            return Self::parse(&format!("{scheme}:{location}"));
        }
        let path = location.split('#').next()?;
        let path = if path.starts_with('/') {
            path.to_owned()
        } else {
            let base = self.path.split('?').next()?;
            let folder = base.rsplit_once('/').map_or("", |(folder, _)| folder);
            format!("{folder}/{path}")
        };
        // Only paths that a request can contain.
        path.parse::<http::uri::PathAndQuery>().ok().map(|path| here(path.as_str()))
    }

    /// Returns true if both are the same server.
    pub(super) fn is_at(&self, other: &Self) -> bool {
        (self.is_https, &self.host, self.port) == (other.is_https, &other.host, other.port)
    }

    /// Returns the value of the `Host` header; without the port if it is the scheme's default.
    pub(super) fn authority(&self) -> String {
        let usual = if self.is_https { 443 } else { 80 };
        if self.port == usual { self.bracketed() } else { self.with_port() }
    }

    /// Returns the host with its port.
    pub(super) fn with_port(&self) -> String {
        format!("{}:{}", self.bracketed(), self.port)
    }

    fn bracketed(&self) -> String {
        if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(target: &Target) -> String {
        let scheme = if target.is_https { "https" } else { "http" };
        let user = target.authorization.as_ref().map_or("", |value| value.to_str().unwrap());
        format!("{scheme} {} {} {user}", target.with_port(), target.path).trim_end().to_owned()
    }

    #[test]
    fn urls_are_parsed() {
        let cases = [
            ("http://h.test", "http h.test:80 /"),
            ("HTTPS://h.test/a?b#c", "https h.test:443 /a?b"),
            ("http://[fd00::1]:8080/a", "http [fd00::1]:8080 /a"),
            // base64 of "u:p@"
            ("https://u:p%40@h.test/", "https h.test:443 / Basic dTpwQA=="),
            ("ftp://h.test/", ""),
            ("data:,x", ""),
            ("http://", ""),
            ("/a", ""),
        ];
        for (url, expected) in cases {
            assert_eq!(
                Target::parse(url).map(|t| shown(&t)).unwrap_or_default(),
                expected,
                "{url}"
            );
        }
    }

    #[test]
    fn a_redirect_is_resolved_against_the_current_url() {
        let start = Target::parse("https://h.test/a/b?c").unwrap();
        let cases = [
            ("https://i.test/x", "https i.test:443 /x"),
            ("//i.test/x", "https i.test:443 /x"),
            ("/x?y#z", "https h.test:443 /x?y"),
            ("x", "https h.test:443 /a/x"),
            ("ftp://i.test/", ""),
            ("a b", ""),
        ];
        for (location, expected) in cases {
            let found = start.follow(location).map(|target| shown(&target)).unwrap_or_default();
            assert_eq!(found, expected, "{location}");
        }
    }
}
