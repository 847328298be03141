//! The operating system's presets: which units are enabled by default.

use std::collections::BTreeMap;

use super::UnitTree;
use crate::root::RootError;

/// Directories of presets; a file hides one of the same name in a later directory.
const DIRECTORIES: [&str; 5] = [
    "/etc/systemd/system-preset",
    "/run/systemd/system-preset",
    "/usr/local/lib/systemd/system-preset",
    "/usr/lib/systemd/system-preset",
    "/lib/systemd/system-preset",
];

/// Returns true if the first matching preset enables the unit, or none matches.
pub(super) fn enables(root: &impl UnitTree, unit: &str) -> Result<bool, RootError> {
    let mut files = BTreeMap::new();
    for folder in DIRECTORIES {
        for name in root.list(folder)?.into_iter().filter(|name| name.ends_with(".preset")) {
            files.entry(name.clone()).or_insert(format!("{folder}/{name}"));
        }
    }
    for path in files.values() {
        let bytes = root.read(path)?.unwrap_or_default();
        for line in String::from_utf8_lossy(&bytes).lines() {
            let mut words = line.split_whitespace();
            let (verb, pattern) = (words.next(), words.next().unwrap_or_default());
            match verb {
                Some("enable") if matches(pattern, unit) => return Ok(true),
                Some("disable") if matches(pattern, unit) => return Ok(false),
                _ => {}
            }
        }
    }
    Ok(true)
}

/// Returns true if a name matches a pattern with `*` and `?`.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    // `fits[i]` is true if the pattern so far matches the first i characters.
    let mut fits = vec![false; name.len() + 1];
    if let Some(first) = fits.first_mut() {
        *first = true;
    }
    for symbol in pattern {
        let before = fits.clone();
        let mut reached = false;
        for (at, fit) in fits.iter_mut().enumerate() {
            let previous =
                at.checked_sub(1).and_then(|at| before.get(at)).copied().unwrap_or(false);
            let letter = at.checked_sub(1).and_then(|at| name.get(at)).copied();
            reached |= before.get(at).copied().unwrap_or(false);
            *fit = match symbol {
                '*' => reached,
                '?' => previous,
                other => previous && letter == Some(other),
            };
        }
    }
    fits.last().copied().unwrap_or(false)
}
