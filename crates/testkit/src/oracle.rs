//! Recorded inputs of the reference with its outputs, and the checks that ours are equal.
//!
//! A suite is a folder with `cases.jsonl`, one `{"id", "input", "expect"}` a line. The recordings are
//! data: nothing here writes them, and no check knows the id of a case. Where we differ on purpose, a
//! check recognises the situation by a rule and says why.

mod accept;
mod actions;
mod candidates;
mod convert;
mod datafile;
mod hosttree;
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

/// Compares what we make of an input, in JSON, with what the reference made of it.
pub type Check = fn(input: &str, expect: &Value) -> Result<(), String>;

/// Every suite we can check.
pub const SUITES: &[(&str, Check)] = &[
    ("render", render::check),
    ("parse", parse::check),
    ("convert", convert::check),
    ("accept", accept::check),
    ("datafile", datafile::check),
    ("actions", actions::check),
    ("reconcilable", reconcilable::check),
    ("registries", registries::check),
    ("nodepool", nodepool::check),
    ("status", status::check),
    ("candidates", candidates::check),
    ("hosttree", hosttree::check),
];

/// Checks of more than the reference promises: the words and places of its refusals. They hold for
/// the corpus of this repository.
pub const WORDS: &[(&str, Check)] =
    &[("parse", parse::check_report), ("convert", convert::check_words)];

/// What came of one suite.
#[derive(Debug)]
pub struct Outcome {
    /// The suite.
    pub name: String,
    /// How many cases agree.
    pub passed: usize,
    /// The cases that do not, with the difference.
    pub failed: Vec<(String, String)>,
}

#[derive(Deserialize)]
struct Case<'a> {
    id: String,
    #[serde(borrow)]
    input: &'a RawValue,
    expect: Value,
}

/// The recordings that are part of this repository: small, and made of synthetic inputs only.
#[must_use]
pub fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// Runs every suite that `folder` holds; also names the ones we cannot check yet.
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

/// Runs those of `suites` that `folder` holds.
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

#[expect(clippy::disallowed_methods, reason = "reads test data; nothing ships this")]
fn entries(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

#[expect(clippy::disallowed_methods, reason = "reads test data; nothing ships this")]
fn run(name: &str, check: Check, cases: &Path) -> io::Result<Outcome> {
    let text = fs::read_to_string(cases)?;
    let mut outcome = Outcome { name: name.to_owned(), passed: 0, failed: Vec::new() };
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let case: Case<'_> = serde_json::from_str(line)?;
        match check(case.input.get(), &case.expect) {
            Ok(()) => outcome.passed += 1,
            Err(difference) => outcome.failed.push((case.id, difference)),
        }
    }
    Ok(outcome)
}

/// How many failing cases are shown.
const SHOWN: usize = 5;

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, passed, failed } = self;
        write!(f, "oracle {name}: {passed} passed, {} failed", failed.len())?;
        for (id, difference) in failed.iter().take(SHOWN) {
            write!(f, "\n  {id}: {}", difference.replace('\n', "\n    "))?;
        }
        if failed.len() > SHOWN {
            let more: Vec<&str> = failed.iter().skip(SHOWN).map(|(id, _)| id.as_str()).collect();
            write!(f, "\n  and {}", more.join(", "))?;
        }
        Ok(())
    }
}

/// The input of a case, in the shape its suite has.
fn parsed<'a, T: Deserialize<'a>>(input: &'a str) -> Result<T, String> {
    serde_json::from_str(input).map_err(|error| format!("the input is not understood: {error}"))
}

/// Sets a member of an object.
fn put(object: &mut Value, member: &str, value: Value) {
    if let Some(object) = object.as_object_mut() {
        object.insert(member.to_owned(), value);
    }
}

/// A text of an expectation.
fn text<'a>(expect: &'a Value, member: &str) -> Option<&'a str> {
    expect.get(member).and_then(Value::as_str)
}

/// Where two documents first differ, for people.
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
