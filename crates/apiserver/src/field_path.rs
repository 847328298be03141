//! Paths of fields, for messages.

use std::fmt;

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
}
