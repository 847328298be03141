//! Reads the recorded answers of the reference and runs a check over each.
//!
//! They lie outside the repository, in `$MCO_ORACLE_DIR` or beside the workspace. A clone without
//! them skips these tests and says so.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// Compares what we make of `input` with what the reference made of it.
pub(crate) type Check = fn(input: &Value, expect: &Value) -> Result<(), String>;

/// Runs `check` over every recorded case of the suite `name`.
pub(crate) fn run(name: &str, check: Check) {
    let file = directory().join(name).join("cases.jsonl");
    let Some(text) = read(&file) else {
        eprintln!("oracle {name}: skipped, there is no {}", file.display());
        return;
    };
    let mut failures = Vec::new();
    let mut passed = 0;
    for line in text.lines() {
        let case: Value = serde_json::from_str(line).expect("a recorded case is JSON");
        match check(&case["input"], &case["expect"]) {
            Ok(()) => passed += 1,
            Err(difference) => failures.push(format!("{}: {difference}", case["id"])),
        }
    }
    eprintln!("oracle {name}: {passed} passed, {} failed", failures.len());
    let first: Vec<_> = failures.iter().take(5).map(String::as_str).collect();
    assert!(failures.is_empty(), "oracle {name}: {} failed\n{}", failures.len(), first.join("\n"));
    assert!(passed > 0, "oracle {name}: {} holds no case", file.display());
}

#[expect(clippy::disallowed_methods, reason = "tells where the recorded answers lie")]
fn directory() -> PathBuf {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/oracle");
    std::env::var_os("MCO_ORACLE_DIR").map_or(beside, PathBuf::from)
}

#[expect(clippy::disallowed_methods, reason = "recorded answers are test data on disk")]
fn read(file: &Path) -> Option<String> {
    std::fs::read_to_string(file).ok()
}
