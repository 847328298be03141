//! Tables of the API server, printed in columns.

use std::io::{self, Write};

use anstyle::Style;
use serde::Deserialize;
use serde_json::Value;

use crate::print::visible;

/// Number of spaces between two columns.
pub(crate) const GAP: usize = 3;

/// Value of the `Accept` header that requests a table.
pub(crate) const ACCEPT: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// A table as the API server returns it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Table {
    pub(crate) kind: String,
    #[serde(default)]
    column_definitions: Vec<Column>,
    #[serde(default)]
    pub(crate) rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
struct Column {
    name: String,
    /// Above zero for columns of a wide table.
    #[serde(default)]
    priority: i64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Row {
    #[serde(default)]
    cells: Vec<Value>,
    /// The object, or its metadata.
    #[serde(default)]
    pub(crate) object: Value,
}

/// The columns of a table to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// True to print the columns of a wide table.
    pub(crate) wide: bool,
    /// True to print the namespace of each object.
    pub(crate) namespace: bool,
    /// True to print the kind before each name, such as `node/`.
    pub(crate) kind: bool,
}

impl Table {
    /// Returns the lines of the table, titles first.
    pub(crate) fn lines(&self, layout: Layout, kind: &str) -> Vec<Vec<String>> {
        let shown = |column: &Column| layout.wide || column.priority == 0;
        let mut titles: Vec<String> = Vec::new();
        if layout.namespace {
            titles.push("NAMESPACE".to_owned());
        }
        let columns = self.column_definitions.iter();
        titles.extend(columns.filter(|column| shown(column)).map(|c| c.name.to_uppercase()));
        let mut lines = vec![titles];
        for row in &self.rows {
            let mut line = Vec::new();
            if layout.namespace {
                let namespace = row.object.pointer("/metadata/namespace");
                line.push(namespace.map(cell).unwrap_or_default());
            }
            let cells = self.column_definitions.iter().zip(&row.cells);
            for (index, (column, value)) in cells.enumerate() {
                if index == 0 && layout.kind {
                    line.push(format!("{kind}/{}", cell(value)));
                } else if shown(column) {
                    line.push(cell(value));
                }
            }
            lines.push(line);
        }
        lines
    }
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "<none>".to_owned(),
        Value::String(text) => text.replace('\n', "\\n"),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// Writes lines in columns, three spaces apart, without padding after the last column.
pub(crate) fn write(out: &mut dyn Write, lines: &[Vec<String>]) -> io::Result<()> {
    write_below(out, lines, &mut Vec::new())
}

/// Writes lines below others: columns are as wide as those above, or wider. `widths` are those of the
/// lines above, and get those of these lines.
pub(crate) fn write_below(
    out: &mut dyn Write,
    lines: &[Vec<String>],
    widths: &mut Vec<usize>,
) -> io::Result<()> {
    widen(widths, lines);
    lines.iter().try_for_each(|line| write_line(out, line, widths, |_, _| None))
}

/// Writes lines in columns, the titles first. `style` chooses the style of a cell by title and text.
pub(crate) fn write_painted(
    out: &mut dyn Write,
    lines: &[Vec<String>],
    style: fn(&str, &str) -> Option<Style>,
) -> io::Result<()> {
    let mut widths = Vec::new();
    widen(&mut widths, lines);
    let Some((titles, rows)) = lines.split_first() else { return Ok(()) };
    write_line(out, titles, &widths, |_, _| None)?;
    let of_cell = |index: usize, text: &str| style(titles.get(index)?, text);
    rows.iter().try_for_each(|line| write_line(out, line, &widths, of_cell))
}

/// Makes columns as wide as their widest cell.
fn widen(widths: &mut Vec<usize>, lines: &[Vec<String>]) {
    for line in lines {
        for (index, text) in line.iter().enumerate() {
            let width = text.chars().count();
            match widths.get_mut(index) {
                Some(widest) => *widest = width.max(*widest),
                None => widths.push(width),
            }
        }
    }
}

fn write_line(
    out: &mut dyn Write,
    line: &[String],
    widths: &[usize],
    style: impl Fn(usize, &str) -> Option<Style>,
) -> io::Result<()> {
    let count = line.iter().rposition(|text| !text.trim_end().is_empty()).map_or(0, |it| it + 1);
    for (index, (text, width)) in line.iter().zip(widths).take(count).enumerate() {
        let is_last = index + 1 == count;
        let text = if is_last { text.trim_end() } else { text };
        let shown = visible(text);
        match style(index, text) {
            Some(style) => write!(out, "{style}{shown}{style:#}")?,
            None => write!(out, "{shown}")?,
        }
        if !is_last {
            let padding = width.saturating_sub(text.chars().count()) + GAP;
            write!(out, "{:padding$}", "")?;
        }
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_aligned_with_those_above() {
        let (mut out, mut widths) = (Vec::new(), Vec::new());
        for line in [["NAME", "UPDATED"], ["a", "True"], ["worker", "False"], ["b", "True"]] {
            write_below(&mut out, &[line.map(str::to_owned).to_vec()], &mut widths).unwrap();
        }
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "NAME   UPDATED\na      True\nworker   False\nb        True\n");
    }

    #[test]
    fn a_table_has_the_columns_of_its_layout() {
        let table: Table = serde_json::from_value(serde_json::json!({
            "kind": "Table",
            "columnDefinitions": [{"name": "Name"}, {"name": "Updated"}, {"name": "Why", "priority": 1}],
            "rows": [
                {"cells": ["worker", "True", "x"], "object": {"metadata": {"namespace": "a"}}},
                {"cells": ["m", null, 3]},
            ],
        }))
        .unwrap();
        let text = |wide, namespace, kind| {
            let mut out = Vec::new();
            let layout = Layout { wide, namespace, kind };
            write(&mut out, &table.lines(layout, "pool")).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text(false, false, false), "NAME     UPDATED\nworker   True\nm        <none>\n");
        assert_eq!(
            text(true, true, true),
            "NAMESPACE   NAME          UPDATED   WHY\n\
             a           pool/worker   True      x\n            \
             pool/m        <none>    3\n"
        );
    }
}
