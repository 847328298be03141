//! Checks of the systemd units and drop-ins of a config.

use super::{
    Fault, FieldPath, Object, SpannedValue, secret,
    unit::{self, UnitPart},
};

/// Adds the faults of the units in the config at `root`.
pub(super) fn check(object: &Object, root: &FieldPath, faults: &mut Vec<Fault>) {
    let list = root.member("systemd").member("units");
    for (index, found) in
        object.root.find(&list).map(SpannedValue::items).unwrap_or_default().iter().enumerate()
    {
        let path = list.index(index);
        let name = text(found, "name");
        contents(object, name, UnitPart::Unit, found, &path, faults);
        let dropins = found.get("dropins").map(SpannedValue::items).unwrap_or_default();
        for (index, dropin) in dropins.iter().enumerate() {
            let path = path.member("dropins").index(index);
            contents(object, name, UnitPart::Dropin, dropin, &path, faults);
        }
    }
}

fn contents(
    object: &Object,
    unit: &str,
    part: UnitPart,
    node: &SpannedValue,
    path: &FieldPath,
    faults: &mut Vec<Fault>,
) {
    let path = path.member("contents");
    let contents = text(node, "contents");
    for found in unit::check(unit, part, contents) {
        let mut fault = Fault::new(found.severity, found.code, found.message);
        fault.hint = found.hint.map(str::to_owned);
        faults.push(object.fault_on(object.line_of(&path, found.line), &path, fault));
    }
    for found in secret::find(contents.as_bytes()) {
        let message = format!("unit {unit} contains what looks like {}", found.kind);
        let fault = Fault::warning("Secret", message);
        let fault = fault.hint(secret::HINT);
        faults.push(object.fault_on(object.line_of(&path, found.line), &path, fault));
    }
}

fn text<'n>(node: &'n SpannedValue, member: &str) -> &'n str {
    node.get(member).and_then(SpannedValue::as_str).unwrap_or_default()
}
