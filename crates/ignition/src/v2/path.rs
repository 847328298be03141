//! Paths as text, without a look at any filesystem.

/// The shortest absolute path that means the same as `path`, taken from the root.
///
/// Compat: this is Go's `path.Join("/", path)`; a path that climbs above the root stays there.
pub(super) fn clean(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cut_short() {
        let cases = [
            ("/etc/a", "/etc/a"),
            ("//etc/./a/", "/etc/a"),
            ("/etc/../../a", "/a"),
            ("/", "/"),
            ("", "/"),
            ("a/..", "/"),
        ];
        for (path, expected) in cases {
            assert_eq!(clean(path), expected, "{path}");
        }
    }
}
