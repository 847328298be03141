//! The rules that every state of a machine obeys in which a power cut leaves it.

use std::sync::Arc;

use mco_testkit::vm::{Entry, Tree};
use serde::Deserialize;
use serde_json::Value;

/// Folders that no config manages.
const RECORDS: [&str; 2] = ["/etc/machine-config-daemon", "/var"];
const CURRENT: &str = "/etc/machine-config-daemon/currentconfig";
const LEDGER: &str = "/var/lib/machine-config-daemon/mco-update.json";
const PROGRESS: &str = "/var/lib/machine-config-daemon/mco-update-progress.json";
const PACKS: &str = "/var/lib/machine-config-daemon/mco-before";
const ORIGINALS: &str = "/etc/machine-config-daemon/orig";
/// End of the name of a copy of a file that the operating system had.
const ORIGINAL: &str = ".mcdorig";
const UNITS: &str = "/etc/systemd/system";

/// The parts of a recorded change that the rules need.
#[derive(Debug, Deserialize)]
struct Ledger {
    pack: String,
    plan: Plan,
}

#[derive(Debug, Deserialize)]
struct Plan {
    steps: Vec<Value>,
}

/// A change of a machine: an apply or a rollback.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// Files before the change.
    pub(crate) before: Tree,
    /// Files after the whole change.
    pub(crate) after: Tree,
    /// The direction of the change.
    pub(crate) direction: Direction,
}

/// The direction of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// To the config that is on record as the target.
    Apply,
    /// Back from it.
    RollBack,
}

/// The position of a state in the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// Nothing has changed.
    Before,
    /// The change has begun and is on record.
    Between,
    /// The change is complete.
    After,
}

impl Change {
    /// Returns the faults of a state after a power cut; none if it obeys all rules.
    pub(crate) fn faults(&self, state: &Tree) -> Vec<String> {
        let (old, new) = (differing(state, &self.before), differing(state, &self.after));
        let mut faults = self.torn(state, &old, &new);
        faults.extend(self.lost_originals(state));
        match &ledger(state) {
            Err(fault) => faults.push(fault.clone()),
            Ok(None) if old.is_empty() || new.is_empty() => {}
            Ok(None) => {
                faults.push(format!("no change is on record, but {old:?} changed, {new:?} not"));
            }
            Ok(Some(ledger)) => {
                faults.extend(self.lost_pack(state, ledger));
                let missing = if self.direction == Direction::Apply { &new } else { &old };
                faults.extend(self.ahead(state, ledger, missing));
            }
        }
        faults
    }

    /// Returns the position of a state that has no faults.
    pub(crate) fn position(&self, state: &Tree) -> Position {
        let is = |wanted: &Tree| same_records(state, wanted) && differing(state, wanted).is_empty();
        if is(&self.after) {
            Position::After
        } else if is(&self.before) {
            Position::Before
        } else {
            Position::Between
        }
    }

    /// Every path is as it was before the change or as it is after it.
    fn torn(&self, state: &Tree, old: &[&str], new: &[&str]) -> Vec<String> {
        let both = old.iter().filter(|path| new.contains(path));
        both.map(|path| {
            let entries = [state, &self.before, &self.after].map(|tree| tree.entries.get(*path));
            format!("{path} is neither old nor new: {entries:?}")
        })
        .collect()
    }

    /// The contents that a rollback needs are complete as long as the change is on record.
    fn lost_pack(&self, state: &Tree, ledger: &Ledger) -> Option<String> {
        let path = format!("{PACKS}/{}", ledger.pack);
        let whole = self.after.bytes(&path).or_else(|| self.before.bytes(&path));
        (whole.is_none() || state.bytes(&path) != whole)
            .then(|| format!("{path} is not complete, but the change is on record"))
    }

    /// The record is not ahead of files, units and boot loader.
    fn ahead(&self, state: &Tree, ledger: &Ledger, missing: &[&str]) -> Vec<String> {
        let progress = progress(state);
        let phase = progress.get("stage").and_then(Value::as_str).unwrap_or("applying");
        if matches!(phase, "undoing" | "returning") {
            return Vec::new();
        }
        let mut faults = Vec::new();
        let (from, to) = match self.direction {
            Direction::Apply => (&self.before, &self.after),
            Direction::RollBack => (&self.after, &self.before),
        };
        let recorded = state.bytes(CURRENT);
        let is_new = recorded.is_some() && recorded == to.bytes(CURRENT);
        if is_new && recorded != from.bytes(CURRENT) && !missing.is_empty() {
            faults.push(format!("the config is on record, but {missing:?} are not there"));
        }
        if phase == "rebooting" && (!is_new || !missing.is_empty()) {
            faults
                .push(format!("only the reboot is left on record, but {missing:?} are not there"));
        }
        let done = progress.get("done").and_then(Value::as_u64).unwrap_or(0);
        let done = usize::try_from(done).unwrap_or(usize::MAX);
        for step in ledger.plan.steps.iter().take(done) {
            for path in missing.iter().filter(|path| changes(step, path)) {
                faults.push(format!("the step of {path} is on record, but {path} is not there"));
            }
        }
        faults
    }

    /// The file that the operating system has at a path is there, or its complete copy is.
    fn lost_originals(&self, state: &Tree) -> Vec<String> {
        let copy = |path: &str| format!("{ORIGINALS}{path}{ORIGINAL}");
        let lost = |path: &&String| {
            let copy = copy(path);
            let whole = self.after.bytes(&copy).or_else(|| self.before.bytes(&copy));
            whole.is_some() && state.bytes(path) != whole && state.bytes(&copy) != whole
        };
        let paths = self.before.entries.keys().filter(lost);
        paths.map(|path| format!("the original of {path} is lost")).collect()
    }
}

/// Returns the direction of the change with this name.
pub(crate) fn direction(name: &str) -> Direction {
    if name == "rollback" { Direction::RollBack } else { Direction::Apply }
}

/// Returns the paths outside of the records whose entry is not the one in `wanted`.
///
/// Directories that are left empty are not counted: no config manages them.
pub(crate) fn differing<'s>(state: &'s Tree, wanted: &'s Tree) -> Vec<&'s str> {
    let is_record = |path: &str| RECORDS.iter().any(|folder| path.starts_with(folder));
    let compared = |path: &str| !is_record(path) && !is_temporary(path);
    let differs = |(path, entry): &(&'s String, &'s Entry)| {
        let is_left = || matches!(entry, Entry::Directory { .. });
        wanted.entries.get(*path).map_or_else(|| !is_left(), |wanted| wanted != *entry)
    };
    let changed = state.entries.iter().filter(differs).map(|(path, _)| path);
    let lost = wanted.entries.keys().filter(|path| !state.entries.contains_key(*path));
    changed.chain(lost).map(String::as_str).filter(|path| compared(path)).collect()
}

/// Returns true if both have the same config on record, and the same change in progress.
fn same_records(one: &Tree, other: &Tree) -> bool {
    let has_ledger = |tree: &Tree| tree.entries.contains_key(LEDGER);
    let stage = |tree: &Tree| progress(tree).get("stage").cloned();
    one.bytes(CURRENT) == other.bytes(CURRENT)
        && has_ledger(one) == has_ledger(other)
        && (!has_ledger(one) || stage(one) == stage(other))
}

/// Returns the change that is on record, if any. Fails if it cannot be read.
fn ledger(state: &Tree) -> Result<Option<Ledger>, String> {
    let Some(bytes) = state.bytes(LEDGER) else { return Ok(None) };
    let parsed = serde_json::from_slice(bytes);
    parsed.map(Some).map_err(|error| format!("{LEDGER} cannot be read: {error}"))
}

/// Returns the last complete line of the progress.
fn progress(state: &Tree) -> Value {
    let bytes = state.bytes(PROGRESS).unwrap_or_default();
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').unwrap_or_default();
    let mut lines = bytes.get(..whole).unwrap_or_default().rsplit(|&byte| byte == b'\n');
    lines.find_map(|line| serde_json::from_slice(line).ok()).unwrap_or_default()
}

/// Returns true if a step writes or removes the path.
fn changes(step: &Value, path: &str) -> bool {
    let Some((kind, value)) = step.as_object().and_then(|step| step.iter().next()) else {
        return false;
    };
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let name = value.as_str().unwrap_or_default();
    let in_units = path.strip_prefix(UNITS).and_then(|rest| rest.strip_prefix('/'));
    match kind.as_str() {
        "writeFile" | "removeFile" => path == name,
        "writeUnit" | "removeUnit" | "maskUnit" | "unmaskUnit" => in_units == Some(name),
        "writeDropin" | "removeDropin" => {
            in_units == Some(&*format!("{}.d/{}", text("unit"), text("dropin")))
        }
        "enableUnit" | "disableUnit" => in_units
            .is_some_and(|link| link.split_once(".wants/").is_some_and(|(_, unit)| unit == name)),
        "stageKernelArguments" => path == "/boot/grub/grub.cfg",
        _ => false,
    }
}

/// Returns true for the name under which a file is written before it is renamed.
fn is_temporary(path: &str) -> bool {
    path.ends_with(".mco-new") || path.ends_with("/grub.cfg.new")
}

#[test]
fn a_step_changes_its_file_its_unit_or_the_links_of_its_unit() {
    let dropin = r#"{"unit":"a.service","dropin":"1.conf"}"#;
    for (step, value, path) in [
        ("writeFile", r#""/etc/a""#, "/etc/a"),
        ("removeUnit", r#""a.service""#, "/etc/systemd/system/a.service"),
        ("maskUnit", r#""a.service""#, "/etc/systemd/system/a.service"),
        ("writeDropin", dropin, "/etc/systemd/system/a.service.d/1.conf"),
        ("removeDropin", dropin, "/etc/systemd/system/a.service.d/1.conf"),
        ("enableUnit", r#""a.service""#, "/etc/systemd/system/b.target.wants/a.service"),
        ("disableUnit", r#""a.service""#, "/etc/systemd/system/b.target.wants/a.service"),
    ] {
        let step: Value = serde_json::from_str(&format!("{{\"{step}\":{value}}}")).expect("JSON");
        assert!(changes(&step, path), "{step} {path}");
        assert!(!changes(&step, &format!("{path}b")), "{step} {path}b");
    }
}

/// Paths and contents.
type Files<'a> = &'a [(&'a str, &'a str)];

/// Builds a tree of files.
fn tree(files: Files<'_>) -> Tree {
    let entry = |text: &str| Entry::File {
        mode: 0o100_644,
        owner: (0, 0),
        bytes: Arc::new(text.as_bytes().to_owned()),
    };
    let entries = files.iter().map(|(path, text)| ((*path).to_owned(), entry(text))).collect();
    Tree { entries }
}

#[test]
fn the_rules_tell_good_states_from_bad_ones() {
    let plan = r#"{"pack":"p","plan":{"steps":[{"writeFile":"/etc/a"},{"writeFile":"/etc/b"}]}}"#;
    let pack = "/var/lib/machine-config-daemon/mco-before/p";
    let before = tree(&[("/etc/a", "1"), ("/etc/b", "1"), ("/etc/c", "1"), (CURRENT, "one")]);
    let after = [("/etc/a", "2"), ("/etc/b", "2"), ("/etc/c", "1"), (CURRENT, "two")];
    let rebooting = "{\"stage\":\"rebooting\",\"done\":2}\n";
    let after = [after.as_slice(), &[(LEDGER, plan), (pack, "p"), (PROGRESS, rebooting)]].concat();
    let change = Change { before, after: tree(&after), direction: Direction::Apply };
    let base = [("/etc/a", "2"), ("/etc/b", "1"), ("/etc/c", "1"), (CURRENT, "one")];
    let recorded = [(LEDGER, plan), (pack, "p")];
    let cases: [(&str, Files<'_>, usize); 8] = [
        ("on record", &[], 0),
        ("a step is done", &[(PROGRESS, "{\"stage\":\"applying\",\"done\":1}\n")], 0),
        ("a step is on record that was not done", &[(PROGRESS, "\n{\"done\":2}\n")], 1),
        ("a torn file", &[("/etc/b", "")], 1),
        ("an unmanaged file", &[("/etc/c", "2")], 1),
        ("the config is ahead", &[(CURRENT, "two")], 1),
        ("the reboot is ahead", &[(PROGRESS, rebooting)], 2),
        ("a torn pack", &[(pack, "")], 1),
    ];
    for (name, other, count) in cases {
        let mut state = tree(&[base.as_slice(), &recorded].concat());
        state.entries.extend(tree(other).entries);
        let faults = change.faults(&state);
        assert_eq!(faults.len(), count, "{name}: {faults:?}");
    }
    assert_eq!(change.faults(&tree(&base)).len(), 1, "nothing is on record");
    let mut kept = change.clone();
    kept.after
        .entries
        .extend(tree(&[("/etc/machine-config-daemon/orig/etc/a.mcdorig", "1")]).entries);
    let begun = tree(&[base.as_slice(), &recorded].concat());
    assert_eq!(kept.faults(&begun), ["the original of /etc/a is lost"]);
    assert_eq!(change.position(&change.before), Position::Before);
    assert_eq!(change.position(&change.after), Position::After);
    assert_eq!(change.position(&tree(&base)), Position::Between);
}
