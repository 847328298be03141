//! Conversion of paths in a document to lines and columns.

use crate::{
    json::{self, Node, Value},
    object::same_folded,
    report::{Path, Position, Report, Step},
};

/// Sets the position in `raw` of every fault of `report`, and sorts the faults by it.
///
/// This parses the text again: most documents have no faults, and their parsing should stay fast.
pub(crate) fn set_positions(report: &mut Report, raw: &[u8]) {
    if report.faults.is_empty() {
        return;
    }
    let root = json::parse(raw).ok();
    for fault in &mut report.faults {
        if fault.position.is_none() {
            fault.position = root.as_ref().map(|root| position(raw, offset(root, &fault.path)));
        }
    }
    let order = |position: &Option<Position>| position.map(|at| (at.line, at.column));
    report.faults.sort_by_key(|fault| order(&fault.position));
    // A duplicate member is checked twice.
    report.faults.dedup();
}

/// Returns the line and column of a byte offset.
pub(crate) fn position(raw: &[u8], offset: usize) -> Position {
    let before = raw.get(..offset).unwrap_or(raw);
    let mut lines = before.split(|byte| *byte == b'\n');
    let last = lines.next_back().unwrap_or_default();
    Position { line: lines.count() + 1, column: last.len() + 1 }
}

/// Returns the byte offset of the deepest value on `path`.
fn offset(root: &Node<'_>, path: &Path) -> usize {
    let mut node = root;
    for step in &path.0 {
        let next = match (step, &node.value) {
            (Step::Member(name), Value::Object(members)) => {
                let exact = members.iter().rfind(|member| member.key == *name);
                let same = || members.iter().rfind(|member| same_folded(name, &member.key));
                exact.or_else(same).map(|member| &member.node)
            }
            (Step::Index(index), Value::Array(nodes)) => nodes.get(*index),
            (Step::Unknown(name), Value::Object(members)) => {
                match members.iter().rfind(|member| member.key == *name) {
                    Some(member) => return member.at,
                    None => None,
                }
            }
            (Step::Member(_) | Step::Index(_) | Step::Unknown(_), _) => None,
        };
        let Some(next) = next else { break };
        node = next;
    }
    // Compat: the reference points to the byte after an opening bracket, not to the bracket.
    let bracket = matches!(node.value, Value::Array(_) | Value::Object(_));
    node.at + usize::from(bracket)
}
