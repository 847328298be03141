//! Every source file is reached by a `mod` line, of a readable size, and free of forgotten work.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Limit for the lines of a file.
const MAX_LINES: usize = 600;

pub(crate) fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the workspace") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

fn sources() -> Vec<(PathBuf, String)> {
    let files = rust_files(&crate::workspace().join("crates"));
    files.into_iter().map(|path| (path.clone(), fs::read_to_string(path).expect("UTF-8"))).collect()
}

/// Follows `mod` lines from a root file.
fn reach(root: &Path, reached: &mut BTreeSet<PathBuf>) {
    let mut files = vec![root.to_owned()];
    while let Some(file) = files.pop() {
        let text = fs::read_to_string(&file).expect("a reached file is readable");
        let stem = file.file_stem().unwrap_or_default();
        let is_root = reached.insert(file.clone()) && file == root;
        let parent = file.parent().expect("a file stands in a folder");
        let folder = if is_root { parent.to_owned() } else { parent.join(stem) };
        files.extend(
            modules(&text).map(|name| folder.join(format!("{name}.rs"))).filter(|f| f.exists()),
        );
    }
}

fn modules(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let line = line.trim_start();
        let line = line.strip_prefix("pub").map_or(line, |rest| {
            rest.trim_start_matches("(crate)").trim_start_matches("(super)").trim_start()
        });
        line.strip_prefix("mod ")?.strip_suffix(';')
    })
}

#[test]
fn every_file_is_reached_by_a_mod_line() {
    let mut reached = BTreeSet::new();
    let files = rust_files(&crate::workspace().join("crates"));
    let is_root = |path: &&PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let parent = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
        matches!(
            (parent, name),
            (Some("src"), "lib.rs" | "main.rs")
                | (
                    Some(
                        "api"
                            | "chaos"
                            | "equal"
                            | "it"
                            | "lab"
                            | "ostree"
                            | "serve"
                            | "systemd"
                            | "vm"
                    ),
                    "main.rs"
                )
        ) || matches!(parent, Some("benches" | "bin"))
            || name == "build.rs"
    };
    for root in files.iter().filter(is_root) {
        reach(root, &mut reached);
    }
    let orphans: Vec<_> = files.iter().filter(|file| !reached.contains(*file)).collect();
    assert!(orphans.is_empty(), "no mod line reaches {orphans:#?}");
}

#[test]
fn no_file_is_longer_than_the_limit() {
    for (path, text) in sources() {
        let lines = text.lines().count();
        assert!(lines <= MAX_LINES, "{} has {lines} lines, more than {MAX_LINES}", path.display());
    }
}

#[test]
fn every_file_opens_with_its_purpose() {
    let silent: Vec<_> = sources()
        .into_iter()
        .filter(|(path, text)| !text.starts_with("//!") && !path.ends_with("tests.rs"))
        .map(|(path, _)| path)
        .collect();
    assert!(silent.is_empty(), "no //! opens {silent:#?}");
}

#[test]
fn work_left_for_later_names_its_issue() {
    let mark = concat!("TO", "DO");
    for (path, text) in sources() {
        for (number, line) in text.lines().enumerate() {
            let bare = line.contains(mark) && !line.contains(&format!("{mark}(#"));
            assert!(!bare, "{}:{}: {line}", path.display(), number + 1);
        }
    }
}

/// Returns the IDs of the `// covers:` lines.
fn covered() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (_, text) in sources() {
        let lines = text.lines().filter_map(|line| line.trim().strip_prefix("// covers: "));
        found.extend(lines.flat_map(|line| line.split(", ")).map(|id| id.trim().to_owned()));
    }
    found
}

/// Returns the IDs of the rows with the verdict same or better that no test covers.
fn unproven(table: &str, covered: &BTreeSet<String>) -> Vec<String> {
    let rows = table.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let (ids, verdict) = (cells.next()?, cells.next()?);
        matches!(verdict, "same" | "better").then_some(ids)
    });
    let ids = rows.flat_map(|ids| ids.split(", ")).map(str::to_owned);
    ids.filter(|id| !covered.contains(id)).collect()
}

#[test]
fn every_row_with_the_verdict_same_or_better_has_a_test() {
    let covered = covered();
    let table =
        fs::read_to_string(crate::workspace().join("docs/compat.md")).expect("docs/compat.md");
    let missing = unproven(&table, &covered);
    assert!(missing.is_empty(), "no test covers {missing:?}; write one, or change the verdict");
    let row = "| NO-1, NO-2 | better | x |\n| NO-3 | not yet | x |\n";
    assert_eq!(unproven(row, &covered), ["NO-1", "NO-2"], "the check can fail");
}

/// Server and operator have gaps in no table: a capability that is missing has a row with the reason.
#[test]
fn every_capability_of_server_and_operator_has_one_row() {
    let table =
        fs::read_to_string(crate::workspace().join("docs/compat.md")).expect("docs/compat.md");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    let ids: Vec<&str> = rows.flat_map(|cell| cell.split(", ")).collect();
    for (letter, count) in [("S", 48), ("O", 53)] {
        for number in 1..=count {
            let id = format!("{letter}{number:02}");
            let rows = ids.iter().filter(|found| **found == id).count();
            assert_eq!(rows, 1, "rows of {id} in docs/compat.md");
        }
    }
}

#[test]
fn every_capability_that_a_test_covers_has_a_row_in_the_compatibility_table() {
    let table =
        fs::read_to_string(crate::workspace().join("docs/compat.md")).expect("docs/compat.md");
    let rows: BTreeSet<&str> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" |").next())
        .flat_map(|cell| cell.split(", "))
        .collect();
    let mut missing = BTreeSet::new();
    for (_, text) in sources() {
        for line in text.lines().filter_map(|line| line.trim().strip_prefix("// covers: ")) {
            let ids = line.split(", ").map(str::trim);
            missing.extend(ids.filter(|id| !rows.contains(id)).map(str::to_owned));
        }
    }
    assert!(missing.is_empty(), "docs/compat.md has no row for {missing:?}");
}
