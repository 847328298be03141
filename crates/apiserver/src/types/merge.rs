//! The rules by which patches merge a field, as the table of types marks them.

use crate::schema::ListType;

/// The rules of a field.
#[derive(Debug, Default)]
pub(crate) struct Merge {
    /// Merge of a list by server-side apply.
    pub(crate) list: ListType,
    /// True if an apply owns and replaces the value as a whole.
    pub(crate) is_atomic: bool,
    /// True if a strategic merge patch merges the items of a list. Else it replaces the list.
    pub(crate) is_merged: bool,
    /// Field by which a strategic merge patch finds an item. `None`: items are plain values.
    pub(crate) key: Option<&'static str>,
}

impl Merge {
    /// Reads the marks of a field.
    pub(super) fn read(marks: &[&'static str]) -> Self {
        let of = |name: &'static str| marks.iter().filter_map(move |mark| mark.strip_prefix(name));
        let list = match of("list=").next() {
            Some("set") => ListType::Set,
            Some("map") => ListType::Map(of("by=").map(str::to_owned).collect()),
            _ => ListType::Atomic,
        };
        let is_merged = of("strategy=").flat_map(|it| it.split(',')).any(|it| it == "merge");
        let key = marks.iter().find_map(|mark| mark.strip_prefix("key="));
        Self { list, is_atomic: marks.contains(&"atomic"), is_merged, key }
    }
}
