//! A manifest in memory: JSON values that know where in the file they stand.

use std::fmt;

use mco_ignition::report::Position;
use serde::de::DeserializeOwned;

/// A value and where it starts.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) at: Position,
    pub(crate) value: Value,
}

/// What a node holds.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Number(serde_json::Number),
    String(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A member of a map.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_at: Position,
    pub(crate) value: Node,
}

/// One step into a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Member(String),
    Index(usize),
}

/// A way into a document, from its root; prints as `spec.config.storage.files[3].path`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Path(pub(crate) Vec<Step>);

/// A value that does not have the shape its kind asks for.
#[derive(Debug)]
pub(crate) struct Misfit {
    pub(crate) path: Path,
    pub(crate) message: String,
}

impl Node {
    /// The member of that name, when this is a map that has it.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        let Value::Map(entries) = &self.value else { return None };
        entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// The text, when this is one.
    pub(crate) fn as_str(&self) -> Option<&str> {
        if let Value::String(text) = &self.value { Some(text) } else { None }
    }

    /// The elements, when this is a list; none otherwise.
    pub(crate) fn items(&self) -> &[Self] {
        if let Value::List(items) = &self.value { items } else { &[] }
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self.value, Value::Null)
    }

    /// The node at the end of the path, when there is one.
    pub(crate) fn find(&self, path: &Path) -> Option<&Self> {
        path.0.iter().try_fold(self, |node, step| match step {
            Step::Member(name) => node.get(name),
            Step::Index(index) => node.items().get(*index),
        })
    }

    /// Where the path leads, or as far as it leads.
    ///
    /// A plain value is pointed at directly; a map or list by the key that introduces it.
    pub(crate) fn locate(&self, path: &Path) -> Position {
        let mut node = self;
        let mut at = self.at;
        for step in &path.0 {
            match (step, &node.value) {
                (Step::Member(name), Value::Map(entries)) => {
                    // Compat: Ignition members match without regard to case.
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
                (Step::Index(index), Value::List(items)) => {
                    let Some(item) = items.get(*index) else { return at };
                    node = item;
                    at = node.at;
                }
                (Step::Member(_) | Step::Index(_), _) => return at,
            }
        }
        at
    }

    fn is_container(&self) -> bool {
        matches!(self.value, Value::List(_) | Value::Map(_) | Value::Null)
    }

    /// The node as compact JSON.
    pub(crate) fn to_json(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, &mut |_| {});
        out
    }

    /// The node as a typed object; a misfit names the member that does not fit.
    pub(crate) fn typed<T: DeserializeOwned>(&self) -> Result<T, Misfit> {
        serde_json::from_str(&self.to_json()).map_err(|error| {
            let text = error.to_string();
            let message = text.split(" at line ").next().unwrap_or_default().to_owned();
            Misfit { path: self.path_at(error.column()), message }
        })
    }

    /// The path of the last value that starts before a column of [`Self::to_json`]'s one line.
    fn path_at(&self, column: usize) -> Path {
        let mut found = Path::default();
        self.write(&mut String::new(), &mut |(start, path): (usize, &Path)| {
            if start < column {
                found = path.clone();
            }
        });
        found
    }

    fn write(&self, out: &mut String, seen: &mut dyn FnMut((usize, &Path))) {
        self.write_below(&mut Path::default(), out, seen);
    }

    fn write_below(&self, path: &mut Path, out: &mut String, seen: &mut dyn FnMut((usize, &Path))) {
        seen((out.len(), path));
        match &self.value {
            Value::Null => out.push_str("null"),
            Value::Bool(switch) => out.push_str(if *switch { "true" } else { "false" }),
            Value::Number(number) => out.push_str(&number.to_string()),
            Value::String(text) => write_text(text, out),
            Value::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    out.push(if index == 0 { '[' } else { ',' });
                    path.0.push(Step::Index(index));
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
                    path.0.push(Step::Member(entry.key.clone()));
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

impl Path {
    /// A path of members only, from dotted text.
    pub(crate) fn of(dotted: &str) -> Self {
        Self(dotted.split('.').map(|name| Step::Member(name.to_owned())).collect())
    }

    /// This path with one member more.
    pub(crate) fn member(&self, name: &str) -> Self {
        self.with(Step::Member(name.to_owned()))
    }

    /// This path with one index more.
    pub(crate) fn index(&self, index: usize) -> Self {
        self.with(Step::Index(index))
    }

    fn with(&self, step: Step) -> Self {
        let mut path = self.clone();
        path.0.push(step);
        path
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, step) in self.0.iter().enumerate() {
            match step {
                Step::Member(name) if position == 0 => f.write_str(name)?,
                Step::Member(name) => write!(f, ".{name}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::load::yaml;

    #[derive(Debug, serde::Deserialize)]
    #[expect(dead_code, reason = "only its shape is of interest")]
    struct Shape {
        list: Vec<Inner>,
    }

    #[derive(Debug, serde::Deserialize)]
    #[expect(dead_code, reason = "only its shape is of interest")]
    struct Inner {
        number: i64,
    }

    #[test]
    fn a_misfit_is_named_by_its_path() {
        let rows = [
            ("list: [{number: 1}, {number: x}]", "list[1].number"),
            ("list: [{number: 1}, 2]", "list[1]"),
            ("list: x", "list"),
            ("other: 1", "other"),
        ];
        for (text, want) in rows {
            let misfit = yaml::read(text).unwrap().remove(0).typed::<Shape>().unwrap_err();
            assert_eq!(misfit.path.to_string(), want, "{text}: {}", misfit.message);
            assert!(!misfit.message.contains("line"), "{}", misfit.message);
        }
    }
}
