//! Every mutation of the list applies to the code as it is, and its filter selects tests.

use std::{collections::BTreeSet, fs, path::Path};

use xtask::mutants::ALL;

use crate::workspace;

#[test]
fn every_mutation_applies_and_has_a_name_of_its_own() {
    let mut names = BTreeSet::new();
    for mutant in ALL {
        assert!(names.insert(mutant.name), "{} is listed twice", mutant.name);
        let text = fs::read_to_string(workspace().join(mutant.file)).unwrap();
        assert_ne!(mutant.apply(&text).unwrap(), text, "{} changes nothing", mutant.name);
        assert!(mutant.tests.len() > 2, "{} names its tests", mutant.name);
    }
}

#[test]
fn every_filter_of_a_mutation_selects_tests() {
    for mutant in ALL {
        let ["-p", package, target @ ..] = mutant.tests else { panic!("{}", mutant.name) };
        let package = workspace().join("crates").join(package.trim_start_matches("mco-"));
        let (folder, filter) = match target {
            ["--lib"] => (package.join("src"), ""),
            ["--lib", filter] => (package.join("src"), *filter),
            ["--test", program, filter] => (package.join("tests").join(program), *filter),
            other => panic!("{}: {other:?}", mutant.name),
        };
        assert!(selects(&folder, filter), "{}: {:?} selects no test", mutant.name, mutant.tests);
    }
    assert!(!selects(&workspace().join("crates/host/src"), "no_such_module::"));
    assert!(!selects(&workspace().join("crates/host/src"), "root::no_such_test"));
}

/// Returns true if the modules in `folder` have tests whose names begin with `filter`.
fn selects(folder: &Path, filter: &str) -> bool {
    let (first, rest) = filter.split_once("::").unwrap_or((filter, ""));
    let modules = || fs::read_dir(folder).into_iter().flatten().flatten();
    if first.is_empty() {
        return modules().any(|entry| has(&entry.path(), "test"));
    }
    let (file, inner) = (folder.join(format!("{first}.rs")), folder.join(first));
    if !file.exists() && !inner.exists() {
        let name = format!("fn {first}");
        return modules().any(|entry| has(&entry.path(), &name));
    }
    // The macro generates a module for each API server.
    let is_generated = rest == "embedded" && has(&file, "on_both!");
    let is_here =
        rest.is_empty() || has(&file, &format!("fn {}", rest.trim_start_matches("tests::")));
    is_generated || (is_here && has(&file, "test")) || selects(&inner, rest)
}

/// Returns true if a file, or one below a folder, has tests and this text.
fn has(path: &Path, text: &str) -> bool {
    if path.is_dir() {
        let mut entries = fs::read_dir(path).into_iter().flatten().flatten();
        return entries.any(|entry| has(&entry.path(), text));
    }
    let found = fs::read_to_string(path).unwrap_or_default();
    let is_test = ["#[test]", "#[tokio::test", "on_both!"].iter().any(|it| found.contains(it));
    is_test && found.contains(text)
}
