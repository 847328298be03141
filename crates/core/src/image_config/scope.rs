//! Scopes: registries and repositories that rules apply to.
//!
//! A scope is `host[:port][/path]`, or `*.domain` for all hosts of a domain.

/// Returns true if `sub` is `scope` or lies within it.
///
/// Compat: a name with a colon lies in a domain only if its host does, and the text before the first
/// colon is taken for the host (openshift/runtime-utils, registries.go).
#[must_use]
pub fn is_within(sub: &str, scope: &str) -> bool {
    if sub == scope || sub.strip_prefix(scope).is_some_and(|rest| rest.starts_with('/')) {
        return true;
    }
    let Some(domain) = scope.strip_prefix('*').filter(|domain| domain.starts_with('.')) else {
        return false;
    };
    match sub.split_once(':') {
        Some((host, _)) => host.ends_with(domain) && !host.contains('/'),
        None => sub.split('/').next().is_some_and(|host| host.ends_with(domain)),
    }
}

/// Returns true if a scope may be used for insecure, blocked and allowed registries.
#[must_use]
pub fn is_valid(scope: &str) -> bool {
    match scope.strip_prefix("*.") {
        _ if scope.is_empty() => false,
        Some(domain) => !domain.contains(['/', '@', ':', '*']),
        None => !scope.contains('*'),
    }
}

/// Returns true for a scope that names a domain.
pub(crate) fn is_wildcard(scope: &str) -> bool {
    scope.starts_with("*.")
}

/// Returns true if images can be mirrored from this source: `*.domain` or a repository's name.
pub(crate) fn is_source(source: &str) -> bool {
    match source.strip_prefix('*') {
        Some(domain) => domain.strip_prefix('.').is_some_and(is_domain_name),
        None => is_mirror(source),
    }
}

/// Returns true if a mirror has the form `host[:port][/path]`.
pub(crate) fn is_mirror(mirror: &str) -> bool {
    let mut parts = mirror.split('/');
    parts.next().is_some_and(is_host) && parts.all(is_path_component)
}

/// Returns true for `host[:port]`.
pub(super) fn is_host(text: &str) -> bool {
    match text.split_once(':') {
        Some((host, port)) => is_domain_name(host) && is_digits(port),
        None => is_domain_name(text),
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns true if all labels consist of letters, digits and inner hyphens.
fn is_domain_name(text: &str) -> bool {
    text.split('.').all(|label| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    })
}

/// Returns true for a component of a repository's name: lower-case letters and digits, with `.`,
/// `_`, `__` or any number of `-` between them.
pub(super) fn is_path_component(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    if !is_plain(*first) || !is_plain(*last) {
        return false;
    }
    text.split(|c: char| c.is_ascii() && is_plain(c as u8)).all(|separator| {
        matches!(separator, "." | "_" | "__") || separator.bytes().all(|byte| byte == b'-')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_contains_its_paths_and_the_hosts_of_its_domain() {
        for (sub, scope, expected) in [
            ("a.test", "a.test", true),
            ("a.test/b", "a.test", true),
            ("a.tests", "a.test", false),
            ("a.test:5000", "a.test", false),
            ("x.a.test/b", "*.a.test", true),
            ("*.x.a.test", "*.a.test", true),
            ("x.a.test:5000/b", "*.a.test", true),
            ("b/x.a.test", "*.a.test", false),
            ("b/x.a.test:400", "*.a.test", false),
            ("a.test", "*.a.test", false),
            ("a.test/b", "a.test/b/c", false),
        ] {
            assert_eq!(is_within(sub, scope), expected, "{sub} in {scope}");
        }
    }

    #[test]
    fn forms_of_scopes_sources_and_mirrors() {
        for (scope, valid) in [
            ("", false),
            ("a", true),
            ("*.a", true),
            ("*a", false),
            ("*.a/b", false),
            ("a.*", false),
        ] {
            assert_eq!(is_valid(scope), valid, "{scope:?}");
        }
        for (source, valid) in [
            ("*.r.test", true),
            ("*r.test", false),
            ("r.test/a", true),
            ("r.test:5000/a__b/c--d.e", true),
            ("r.test/a___b", false),
            ("r.test/a:tag", false),
            ("r.test/A", false),
            ("R.test", true),
            ("r.test/", false),
            ("-r.test", false),
            ("r.test:", false),
            ("", false),
        ] {
            assert_eq!(is_source(source), valid, "{source:?}");
        }
        assert!(is_mirror("m.test") && !is_mirror("*.m.test"));
    }
}
