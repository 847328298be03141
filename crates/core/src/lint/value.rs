//! Values of a manifest with their positions in the file, and paths to them.

use std::fmt;

use serde::de::DeserializeOwned;

use super::Position;

/// A value and its position.
#[derive(Clone, Debug)]
pub struct SpannedValue {
    /// Start of the value.
    pub at: Position,
    /// The value.
    pub value: Value,
}

/// A JSON value whose parts have positions.
#[derive(Clone, Debug)]
pub enum Value {
    /// Null.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number.
    Number(serde_json::Number),
    /// A string.
    String(String),
    /// A list.
    List(Vec<SpannedValue>),
    /// A map in the order of the file.
    Map(Vec<Entry>),
}

/// A member of a map.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Key of the member.
    pub key: String,
    /// Start of the key.
    pub key_at: Position,
    /// Value of the member.
    pub value: SpannedValue,
}

/// A step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathStep {
    /// The member of a map.
    Member(String),
    /// The element of a list.
    Index(usize),
}

/// The path of a field from the root of a document, such as `spec.config.storage.files[3].path`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldPath(pub Vec<PathStep>);

/// A field with a value of the wrong type.
#[derive(Debug)]
pub struct TypeError {
    /// Path of the field.
    pub path: FieldPath,
    /// Description of the error.
    pub message: String,
}

impl SpannedValue {
    /// Returns the member of this name, if the value is a map.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        let Value::Map(entries) = &self.value else { return None };
        entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// Returns the text, if the value is a string.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        if let Value::String(text) = &self.value { Some(text) } else { None }
    }

    /// Returns the elements of a list; none for other values.
    #[must_use]
    pub fn items(&self) -> &[Self] {
        if let Value::List(items) = &self.value { items } else { &[] }
    }

    /// Returns true if the value is null.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self.value, Value::Null)
    }

    /// Returns the value at the path.
    #[must_use]
    pub fn find(&self, path: &FieldPath) -> Option<&Self> {
        path.0.iter().try_fold(self, |node, step| match step {
            PathStep::Member(name) => node.get(name),
            PathStep::Index(index) => node.items().get(*index),
        })
    }

    /// Returns the position of the value at the path, or of its last parent that exists.
    ///
    /// The position of a map or list is that of its key.
    #[must_use]
    pub fn locate(&self, path: &FieldPath) -> Position {
        let mut node = self;
        let mut at = self.at;
        for step in &path.0 {
            match (step, &node.value) {
                (PathStep::Member(name), Value::Map(entries)) => {
                    // Compat: Ignition matches members case-insensitively.
                    let Some(entry) = entries
                        .iter()
                        .find(|entry| entry.key == *name)
                        .or_else(|| entries.iter().find(|e| e.key.eq_ignore_ascii_case(name)))
                    else {
                        return at;
                    };
                    node = &entry.value;
                    at = if node.is_container() { entry.key_at } else { node.at };
                }
                (PathStep::Index(index), Value::List(items)) => {
                    let Some(item) = items.get(*index) else { return at };
                    node = item;
                    at = node.at;
                }
                (PathStep::Member(_) | PathStep::Index(_), _) => return at,
            }
        }
        at
    }

    fn is_container(&self) -> bool {
        matches!(self.value, Value::List(_) | Value::Map(_) | Value::Null)
    }

    /// Returns the value as compact JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, &mut |_| {});
        out
    }

    /// Deserializes the value; the error names the field of the wrong type.
    pub fn typed<T: DeserializeOwned>(&self) -> Result<T, TypeError> {
        serde_json::from_str(&self.to_json()).map_err(|error| {
            let text = error.to_string();
            let message = text.split(" at line ").next().unwrap_or_default().to_owned();
            TypeError { path: self.path_at(error.column()), message }
        })
    }

    /// Returns the path of the last value that starts before a column of [`Self::to_json`].
    fn path_at(&self, column: usize) -> FieldPath {
        let mut found = FieldPath::default();
        self.write(&mut String::new(), &mut |(start, path): (usize, &FieldPath)| {
            if start < column {
                found = path.clone();
            }
        });
        found
    }

    fn write(&self, out: &mut String, seen: &mut dyn FnMut((usize, &FieldPath))) {
        self.write_below(&mut FieldPath::default(), out, seen);
    }

    fn write_below(
        &self,
        path: &mut FieldPath,
        out: &mut String,
        seen: &mut dyn FnMut((usize, &FieldPath)),
    ) {
        seen((out.len(), path));
        match &self.value {
            Value::Null => out.push_str("null"),
            Value::Bool(switch) => out.push_str(if *switch { "true" } else { "false" }),
            Value::Number(number) => out.push_str(&number.to_string()),
            Value::String(text) => write_text(text, out),
            Value::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    out.push(if index == 0 { '[' } else { ',' });
                    path.0.push(PathStep::Index(index));
                    item.write_below(path, out, seen);
                    path.0.pop();
                }
                out.push_str(if items.is_empty() { "[]" } else { "]" });
            }
            Value::Map(entries) => {
                for (index, entry) in entries.iter().enumerate() {
                    out.push(if index == 0 { '{' } else { ',' });
                    write_text(&entry.key, out);
                    out.push(':');
                    path.0.push(PathStep::Member(entry.key.clone()));
                    entry.value.write_below(path, out, seen);
                    path.0.pop();
                }
                out.push_str(if entries.is_empty() { "{}" } else { "}" });
            }
        }
    }
}

fn write_text(text: &str, out: &mut String) {
    out.push_str(&serde_json::Value::from(text).to_string());
}

impl FieldPath {
    /// Parses a dotted path of members.
    #[must_use]
    pub fn of(dotted: &str) -> Self {
        Self(dotted.split('.').map(|name| PathStep::Member(name.to_owned())).collect())
    }

    /// Appends a member.
    #[must_use]
    pub fn member(&self, name: &str) -> Self {
        self.with(PathStep::Member(name.to_owned()))
    }

    /// Appends an index.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.with(PathStep::Index(index))
    }

    fn with(&self, step: PathStep) -> Self {
        let mut path = self.clone();
        path.0.push(step);
        path
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, step) in self.0.iter().enumerate() {
            match step {
                PathStep::Member(name) if position == 0 => f.write_str(name)?,
                PathStep::Member(name) => write!(f, ".{name}")?,
                PathStep::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}
