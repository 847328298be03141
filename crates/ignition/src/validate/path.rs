//! Slash-separated paths, with the rules of Go's `path` package.

use std::borrow::Cow;

use super::RuleResult;

/// Checks that `path` is absolute and in its shortest form.
pub(super) fn check(path: &str) -> RuleResult {
    if path.is_empty() {
        Err("path not specified")
    } else if !path.starts_with('/') {
        Err("path not absolute")
    } else if !is_clean(path) {
        Err("path is not fully simplified")
    } else {
        Ok(())
    }
}

/// Returns true if an absolute path is in its shortest form.
fn is_clean(path: &str) -> bool {
    path == "/" || path.split('/').skip(1).all(|part| !matches!(part, "" | "." | ".."))
}

/// Returns the shortest form of `path`.
pub(crate) fn clean(path: &str) -> Cow<'_, str> {
    let rooted = path.starts_with('/');
    if rooted && is_clean(path) {
        return Cow::Borrowed(path);
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if rooted => {}
            _ => parts.push(part),
        }
    }
    let joined = parts.join("/");
    match (rooted, joined.is_empty()) {
        (true, _) => Cow::Owned(format!("/{joined}")),
        (false, true) => Cow::Borrowed("."),
        (false, false) => Cow::Owned(joined),
    }
}

/// Returns the extension of a name, from the last dot on, or an empty text.
pub(super) fn extension(name: &str) -> &str {
    let file = name.rsplit('/').next().unwrap_or_default();
    file.rfind('.').and_then(|at| file.get(at..)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_shortened_as_in_go() {
        let cases = [
            ("", "."),
            ("/", "/"),
            ("//a/./b//c/", "/a/b/c"),
            ("/../a/..", "/"),
            ("a/../..", ".."),
            ("../../a/b/..", "../../a"),
            ("a/..", "."),
        ];
        for (path, expected) in cases {
            assert_eq!(clean(path), expected, "{path}");
        }
    }

    #[test]
    fn an_extension_starts_at_the_last_dot_of_the_file_name() {
        let cases =
            [("a.service", ".service"), (".conf", ".conf"), ("a.b/c", ""), ("a.", "."), ("", "")];
        for (name, expected) in cases {
            assert_eq!(extension(name), expected, "{name}");
        }
    }
}
