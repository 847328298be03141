//! Recorded inputs and outputs of the reference, and the checks that `mco` produces equal outputs.
//!
//! A suite is a folder with `cases.jsonl`, one `{"id", "input", "expect"}` per line. The recordings
//! are data: nothing here writes them, and no check depends on the id of a case. Where `mco`
//! differs on purpose, a check recognises the situation by a rule that states the reason.

mod accept;
mod actions;
mod candidates;
pub mod convert;
mod ctrcfg;
mod datafile;
mod hosttree;
mod kubelet;
mod nodepool;
mod parse;
mod reconcilable;
mod registries;
mod render;
mod sections;
mod status;

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

/// A function that compares the output of `mco` for an input, in JSON, with the reference's output.
#[derive(Clone, Copy, Debug)]
pub enum Check {
    /// The case is complete.
    Case(fn(input: &str, expect: &Value) -> Result<(), String>),
    /// The case refers to files that lie beside it, in this folder.
    WithFiles(fn(folder: &Path, input: &str, expect: &Value) -> Result<(), String>),
}

/// All suites that have a check.
pub const SUITES: &[(&str, Check)] = &[
    ("render", Check::Case(render::check)),
    ("parse", Check::Case(parse::check)),
    ("convert", Check::Case(convert::check)),
    ("accept", Check::Case(accept::check)),
    ("datafile", Check::Case(datafile::check)),
    ("actions", Check::Case(actions::check)),
    ("reconcilable", Check::Case(reconcilable::check)),
    ("registries", Check::Case(registries::check)),
    ("nodepool", Check::Case(nodepool::check)),
    ("status", Check::Case(status::check)),
    ("candidates", Check::Case(candidates::check)),
    ("hosttree", Check::Case(hosttree::check)),
    ("kubelet", Check::WithFiles(kubelet::check)),
    ("ctrcfg", Check::WithFiles(ctrcfg::check)),
];

/// Checks beyond what the reference promises: the exact texts and positions of its errors. They
/// hold for the corpus of this repository.
pub const ERROR_TEXT_SUITES: &[(&str, Check)] =
    &[("parse", Check::Case(parse::check_report)), ("convert", Check::Case(convert::check_words))];

/// The result of one suite.
#[derive(Debug)]
pub struct Outcome {
    /// Name of the suite.
    pub name: String,
    /// Number of cases that agree.
    pub passed: usize,
    /// Ids of the cases that differ, with the difference.
    pub failed: Vec<(String, String)>,
}

#[derive(Deserialize)]
struct Case<'a> {
    id: String,
    #[serde(borrow)]
    input: &'a RawValue,
    expect: Value,
}

/// Returns the folder of the recordings in this repository. They are small and made of synthetic
/// inputs only.
#[must_use]
pub fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// A recorded input and output.
#[derive(Clone, Debug)]
pub struct RecordedCase {
    /// Id of the case.
    pub id: String,
    /// The input, in JSON.
    pub input: String,
    /// The reference's output.
    pub expect: Value,
}

/// Returns the cases of a suite in `folder`; none if the folder does not have the suite.
#[expect(clippy::disallowed_methods, reason = "reads test data; no part of it ships")]
pub fn cases(folder: &Path, suite: &str) -> io::Result<Vec<RecordedCase>> {
    let path = folder.join(suite).join("cases.jsonl");
    if !path.is_file() {
        return Ok(Vec::new());
    }
    let mut cases = Vec::new();
    for line in fs::read_to_string(path)?.lines().filter(|line| !line.trim().is_empty()) {
        let Case { id, input, expect } = serde_json::from_str(line)?;
        cases.push(RecordedCase { id, input: input.get().to_owned(), expect });
    }
    Ok(cases)
}

/// Runs every suite in `folder`. Also returns the names of the suites without a check.
pub fn run_all(folder: &Path) -> io::Result<(Vec<Outcome>, Vec<String>)> {
    let outcomes = run_each(SUITES, folder)?;
    let mut unknown = Vec::new();
    for entry in entries(folder)? {
        let known = SUITES.iter().any(|(name, _)| *name == entry);
        if !known && folder.join(&entry).join("cases.jsonl").is_file() {
            unknown.push(entry);
        }
    }
    Ok((outcomes, unknown))
}

/// Runs those of `suites` that exist in `folder`.
pub fn run_each(suites: &[(&str, Check)], folder: &Path) -> io::Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    for (name, check) in suites {
        let cases = folder.join(name).join("cases.jsonl");
        if cases.is_file() {
            outcomes.push(run(name, *check, &cases)?);
        }
    }
    Ok(outcomes)
}

#[expect(clippy::disallowed_methods, reason = "reads test data; no part of it ships")]
fn entries(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

#[expect(clippy::disallowed_methods, reason = "reads test data; no part of it ships")]
fn run(name: &str, check: Check, cases: &Path) -> io::Result<Outcome> {
    let text = fs::read_to_string(cases)?;
    let folder = cases.parent().unwrap_or(cases);
    let mut outcome = Outcome { name: name.to_owned(), passed: 0, failed: Vec::new() };
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let case: Case<'_> = serde_json::from_str(line)?;
        let (input, expect) = (case.input.get(), &case.expect);
        let result = match check {
            Check::Case(check) => check(input, expect),
            Check::WithFiles(check) => check(folder, input, expect),
        };
        match result {
            Ok(()) => outcome.passed += 1,
            Err(difference) => outcome.failed.push((case.id, difference)),
        }
    }
    Ok(outcome)
}

/// Maximum number of failing cases that are printed.
const MAX_PRINTED: usize = 5;

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, passed, failed } = self;
        write!(f, "oracle {name}: {passed} passed, {} failed", failed.len())?;
        for (id, difference) in failed.iter().take(MAX_PRINTED) {
            write!(f, "\n  {id}: {}", difference.replace('\n', "\n    "))?;
        }
        if failed.len() > MAX_PRINTED {
            let more: Vec<&str> =
                failed.iter().skip(MAX_PRINTED).map(|(id, _)| id.as_str()).collect();
            write!(f, "\n  and {}", more.join(", "))?;
        }
        Ok(())
    }
}

/// Reads a file that lies beside the cases.
#[expect(clippy::disallowed_methods, reason = "reads test data; no part of it ships")]
fn beside(folder: &Path, name: &str) -> Result<String, String> {
    let path = folder.join(name);
    fs::read_to_string(&path).map_err(|error| format!("failed to read {}: {error}", path.display()))
}

/// Parses the input of a case.
fn parsed<'a, T: Deserialize<'a>>(input: &'a str) -> Result<T, String> {
    serde_json::from_str(input).map_err(|error| format!("failed to parse the input: {error}"))
}

/// Sets a member of an object.
fn put(object: &mut Value, member: &str, value: Value) {
    if let Some(object) = object.as_object_mut() {
        object.insert(member.to_owned(), value);
    }
}

/// Returns a text member of an expectation.
fn text<'a>(expect: &'a Value, member: &str) -> Option<&'a str> {
    expect.get(member).and_then(Value::as_str)
}

/// Describes the first difference between two documents.
pub(crate) fn difference(expected: &Value, found: &Value) -> Option<String> {
    at("$", expected, found)
}

fn at(path: &str, expected: &Value, found: &Value) -> Option<String> {
    match (expected, found) {
        (Value::Object(left), Value::Object(right)) => {
            let names = left.keys().chain(right.keys().filter(|name| !left.contains_key(*name)));
            names.into_iter().find_map(|name| {
                let get = |side: &serde_json::Map<String, Value>| side.get(name).cloned();
                let path = format!("{path}.{name}");
                at(&path, &get(left).unwrap_or_default(), &get(right).unwrap_or_default())
            })
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => left
            .iter()
            .zip(right)
            .enumerate()
            .find_map(|(index, (left, right))| at(&format!("{path}[{index}]"), left, right)),
        _ if expected == found => None,
        _ => Some(format!("{path}: expected {}, found {}", short(expected), short(found))),
    }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(300) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}
