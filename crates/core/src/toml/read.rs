//! Typed members of TOML tables.
//!
//! Compat: as in the reference's decoder, unknown members are ignored, names match in any case if
//! there is no exact match, and a member of the wrong type makes the document unreadable.

use toml_edit::{DocumentMut, Item, TableLike, Value};

/// The reason why a document cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct TomlFault {
    text: String,
}

impl TomlFault {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into() }
    }

    fn wrong_type(name: &str, wanted: &str) -> Self {
        Self::new(format!("{name} must be {wanted}"))
    }
}

/// Parses a document.
pub(crate) fn document(text: &str) -> Result<DocumentMut, TomlFault> {
    text.parse().map_err(|error: toml_edit::TomlError| TomlFault::new(error.message()))
}

/// Returns the member of that name, ignoring case if there is no exact match.
fn member<'t>(table: &'t dyn TableLike, name: &str) -> Option<&'t Item> {
    table.get(name).or_else(|| {
        let found = table.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, item)| item)
    })
}

/// Returns a member that is a table.
pub(crate) fn table<'t>(
    table: &'t dyn TableLike,
    name: &str,
) -> Result<Option<&'t dyn TableLike>, TomlFault> {
    let Some(item) = member(table, name) else { return Ok(None) };
    item.as_table_like().map(Some).ok_or_else(|| TomlFault::wrong_type(name, "a table"))
}

/// Returns a member that is a list of tables; `None` if it is absent.
pub(crate) fn tables<'t>(
    table: &'t dyn TableLike,
    name: &str,
) -> Result<Option<Vec<&'t dyn TableLike>>, TomlFault> {
    match member(table, name) {
        None => Ok(None),
        Some(Item::ArrayOfTables(tables)) => {
            Ok(Some(tables.iter().map(|table| table as &dyn TableLike).collect()))
        }
        Some(item) => {
            let wrong = || TomlFault::wrong_type(name, "a list of tables");
            let array = item.as_array().ok_or_else(wrong)?;
            let inline = |value: &'t Value| {
                value.as_inline_table().map(|table| table as &dyn TableLike).ok_or_else(wrong)
            };
            array.iter().map(inline).collect::<Result<_, _>>().map(Some)
        }
    }
}

/// Returns a member that is a list of strings; `None` if it is absent.
pub(crate) fn texts(table: &dyn TableLike, name: &str) -> Result<Option<Vec<String>>, TomlFault> {
    let Some(item) = member(table, name) else { return Ok(None) };
    let wrong = || TomlFault::wrong_type(name, "a list of strings");
    let array = item.as_array().ok_or_else(wrong)?;
    let text = |value: &Value| value.as_str().map(str::to_owned).ok_or_else(wrong);
    array.iter().map(text).collect::<Result<_, _>>().map(Some)
}

/// Returns a member that is a string; empty if it is absent.
pub(crate) fn text(table: &dyn TableLike, name: &str) -> Result<String, TomlFault> {
    let Some(item) = member(table, name) else { return Ok(String::new()) };
    item.as_str().map(str::to_owned).ok_or_else(|| TomlFault::wrong_type(name, "a string"))
}

/// Returns a member that is true or false; false if it is absent.
pub(crate) fn flag(table: &dyn TableLike, name: &str) -> Result<bool, TomlFault> {
    let Some(item) = member(table, name) else { return Ok(false) };
    item.as_bool().ok_or_else(|| TomlFault::wrong_type(name, "true or false"))
}

/// Returns a member that is a number of 32 bits; zero if it is absent.
pub(crate) fn number(table: &dyn TableLike, name: &str) -> Result<u32, TomlFault> {
    let Some(item) = member(table, name) else { return Ok(0) };
    let number = item.as_integer().and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| TomlFault::wrong_type(name, "a number from 0 to 4294967295"))
}

/// Returns a member that is a table of strings, in its order; `None` if it is absent.
pub(crate) fn text_table(
    parent: &dyn TableLike,
    name: &str,
) -> Result<Option<Vec<(String, String)>>, TomlFault> {
    let Some(found) = table(parent, name)? else { return Ok(None) };
    let entry = |(key, item): (&str, &Item)| {
        let text = item.as_str().ok_or_else(|| TomlFault::wrong_type(key, "a string"))?;
        Ok((key.to_owned(), text.to_owned()))
    };
    found.iter().map(entry).collect::<Result<_, _>>().map(Some)
}
