//! TOML output, byte for byte as the reference's encoder writes it.
//!
//! Compat: values come before tables, each level is indented by two spaces, and an empty line
//! precedes top-level tables and entries of lists of tables (BurntSushi/toml, encode.go).

use std::fmt::Write as _;

/// A value of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    Number(i64),
    Flag(bool),
    Texts(Vec<String>),
}

/// A table, or a list of tables, within a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Child {
    One(Table),
    Many(Vec<Table>),
}

/// A table: its values and the tables below it, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    values: Vec<(String, Value)>,
    children: Vec<(String, Child)>,
}

impl Table {
    /// Adds a value.
    pub(crate) fn value(&mut self, name: &str, value: Value) -> &mut Self {
        self.values.push((name.to_owned(), value));
        self
    }

    /// Adds a string.
    pub(crate) fn text(&mut self, name: &str, text: &str) -> &mut Self {
        self.value(name, Value::Text(text.to_owned()))
    }

    /// Adds a string unless it is empty.
    pub(crate) fn some_text(&mut self, name: &str, text: &str) -> &mut Self {
        if text.is_empty() { self } else { self.text(name, text) }
    }

    /// Adds a list of strings unless it is empty.
    pub(crate) fn some_texts(&mut self, name: &str, texts: &[String]) -> &mut Self {
        if texts.is_empty() { self } else { self.value(name, Value::Texts(texts.to_owned())) }
    }

    /// Adds `true`, or nothing.
    pub(crate) fn some_flag(&mut self, name: &str, flag: bool) -> &mut Self {
        if flag { self.value(name, Value::Flag(true)) } else { self }
    }

    /// Adds a number.
    pub(crate) fn number(&mut self, name: &str, number: i64) -> &mut Self {
        self.value(name, Value::Number(number))
    }

    /// Adds a table.
    pub(crate) fn child(&mut self, name: &str, child: Child) -> &mut Self {
        self.children.push((name.to_owned(), child));
        self
    }

    /// Adds a table unless it is empty.
    pub(crate) fn some_table(&mut self, name: &str, table: Self) -> &mut Self {
        if table == Self::default() { self } else { self.child(name, Child::One(table)) }
    }

    /// Writes the table as a document.
    pub(crate) fn to_toml(&self) -> String {
        let mut out = String::new();
        write_table(self, "", 0, &mut out);
        out
    }
}

fn write_table(table: &Table, path: &str, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    for (name, value) in &table.values {
        out.push_str(&indent);
        write_key(name, out);
        out.push_str(" = ");
        write_value(value, out);
        out.push('\n');
    }
    for (name, child) in &table.children {
        let mut below = path.to_owned();
        if depth > 0 {
            below.push('.');
        }
        write_key(name, &mut below);
        match child {
            Child::One(table) => {
                if depth == 0 && !out.is_empty() {
                    out.push('\n');
                }
                line(out, &format!("{indent}[{below}]"));
                write_table(table, &below, depth + 1, out);
            }
            Child::Many(tables) => {
                for table in tables {
                    if !out.is_empty() {
                        out.push('\n');
                    }
                    line(out, &format!("{indent}[[{below}]]"));
                    write_table(table, &below, depth + 1, out);
                }
            }
        }
    }
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

fn write_key(key: &str, out: &mut String) {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if !key.is_empty() && key.bytes().all(is_bare) {
        out.push_str(key);
    } else {
        write_text(key, out);
    }
}

fn write_value(value: &Value, out: &mut String) {
    match value {
        Value::Text(text) => write_text(text, out),
        Value::Number(number) => out.push_str(&number.to_string()),
        Value::Flag(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Texts(texts) => {
            out.push('[');
            for (index, text) in texts.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                write_text(text, out);
            }
            out.push(']');
        }
    }
}

fn write_text(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            c if c.is_ascii_control() => {
                write!(out, "\\u{:04x}", u32::from(c)).expect("writing to a String does not fail");
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_precede_tables_and_every_level_is_indented() {
        let (mut mirror, mut registry, mut root) =
            (Table::default(), Table::default(), Table::default());
        mirror.text("location", "m.test");
        registry.some_flag("blocked", true).text("prefix", "a\"\\\u{1}\t");
        registry.child("mirror", Child::Many(vec![mirror.clone()]));
        root.child("registry", Child::Many(vec![registry]));
        root.child("a b", Child::One(mirror));
        root.some_texts("search", &["x".to_owned(), "y".to_owned()]).number("n", -1);
        let expected = "search = [\"x\", \"y\"]\nn = -1\n\n[[registry]]\n  blocked = true\n  \
            prefix = \"a\\\"\\\\\\u0001\\t\"\n\n  [[registry.mirror]]\n    \
            location = \"m.test\"\n\n[\"a b\"]\n  location = \"m.test\"\n";
        assert_eq!(root.to_toml(), expected);
        let read: toml_edit::DocumentMut = expected.parse().expect("TOML");
        assert_eq!(read["registry"][0]["prefix"].as_str(), Some("a\"\\\u{1}\t"));
    }
}
