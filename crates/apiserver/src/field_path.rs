//! Paths of fields, for messages.

use std::{
    collections::HashSet,
    fmt::{self, Write as _},
};

/// The path of a field of an object. It becomes text only when a message shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FieldPath<'a> {
    /// The object itself.
    Root,
    /// An entry of the map at a path.
    Key(&'a FieldPath<'a>, &'a str),
    /// An item of the list at a path.
    Index(&'a FieldPath<'a>, usize),
}

impl<'a> FieldPath<'a> {
    /// Returns the path of an entry of the map here.
    pub(crate) fn key(&'a self, key: &'a str) -> Self {
        Self::Key(self, key)
    }

    /// Returns the path of an item of the list here.
    pub(crate) fn index(&'a self, at: usize) -> Self {
        Self::Index(self, at)
    }
}

impl fmt::Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Key(Self::Root, key) => f.write_str(key),
            Self::Key(parent, key) => write!(f, "{parent}.{key}"),
            Self::Index(parent, at) => write!(f, "{parent}[{at}]"),
        }
    }
}

/// Paths that messages name: the first ones without repeats, as the strict decoder of Kubernetes keeps
/// them.
#[derive(Debug, Default)]
pub(crate) struct FieldPaths {
    kept: Vec<String>,
    seen: HashSet<String>,
}

/// Maximum number of paths that are kept.
pub(crate) const MAX_PATHS: usize = 100;

/// Maximum length of a path that is kept. The rest is cut off.
const MAX_LENGTH: usize = 4096;

impl FieldPaths {
    /// Keeps a path, unless there are enough.
    pub(crate) fn add(&mut self, path: FieldPath<'_>) {
        if self.kept.len() >= MAX_PATHS {
            return;
        }
        let mut text = Start(String::new());
        // An error is the end of the room for the path.
        let _ = write!(text, "{path}");
        if self.seen.insert(text.0.clone()) {
            self.kept.push(text.0);
        }
    }

    /// Returns the paths in the order in which they were found.
    pub(crate) fn into_vec(self) -> Vec<String> {
        self.kept
    }
}

/// The start of a text of any length.
struct Start(String);

impl fmt::Write for Start {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MAX_LENGTH - self.0.len();
        let end = text.floor_char_boundary(room);
        self.0.push_str(text.get(..end).unwrap_or_default());
        if end < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_shown_as_messages_name_it() {
        let root = FieldPath::Root;
        let (list, plain) = (root.key("list"), root.index(2));
        let item = list.index(0);
        assert_eq!(item.key("name").to_string(), "list[0].name");
        assert_eq!(plain.key("name").to_string(), "[2].name");
        assert_eq!(root.to_string(), "");
    }

    #[test]
    fn few_short_paths_are_kept_without_repeats() {
        let mut paths = FieldPaths::default();
        let root = FieldPath::Root;
        let long = "ä".repeat(1 << 20);
        for key in [long.as_str(), "a", "a", "b"] {
            paths.add(root.key(key));
        }
        for number in 0..1_000 {
            paths.add(root.index(number));
        }
        let kept = paths.into_vec();
        assert_eq!((kept.len(), kept[0].len()), (MAX_PATHS, MAX_LENGTH));
        assert_eq!(kept[1..4], ["a", "b", "[0]"]);
    }
}
