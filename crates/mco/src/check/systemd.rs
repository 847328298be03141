//! Units and drop-ins of a config.

use super::{
    secret,
    unit::{self, Part},
};
use crate::{
    fault::Fault,
    load::{
        Object,
        node::{Node, Path},
    },
};

/// Adds what is wrong with the units of the config at `root`.
pub(super) fn check(object: &Object, root: &Path, faults: &mut Vec<Fault>) {
    let list = root.member("systemd").member("units");
    for (index, found) in
        object.node.find(&list).map(Node::items).unwrap_or_default().iter().enumerate()
    {
        let path = list.index(index);
        let name = text(found, "name");
        contents(object, name, Part::Unit, found, &path, faults);
        let dropins = found.get("dropins").map(Node::items).unwrap_or_default();
        for (index, dropin) in dropins.iter().enumerate() {
            let path = path.member("dropins").index(index);
            contents(object, name, Part::Dropin, dropin, &path, faults);
        }
    }
}

fn contents(
    object: &Object,
    unit: &str,
    part: Part,
    node: &Node,
    path: &Path,
    faults: &mut Vec<Fault>,
) {
    let path = path.member("contents");
    let contents = text(node, "contents");
    for finding in unit::check(unit, part, contents) {
        let mut fault = Fault::new(finding.severity, finding.code, finding.message);
        fault.hint = finding.hint.map(str::to_owned);
        faults.push(object.fault_on(object.line_of(&path, finding.line), &path, fault));
    }
    for found in secret::find(contents.as_bytes()) {
        let message = format!("unit {unit} holds what looks like {}", found.kind);
        let fault = Fault::warning("Secret", message);
        let fault = fault.hint("anybody who can read MachineConfigs can read it");
        faults.push(object.fault_on(object.line_of(&path, found.line), &path, fault));
    }
}

fn text<'n>(node: &'n Node, member: &str) -> &'n str {
    node.get(member).and_then(Node::as_str).unwrap_or_default()
}
