//! Mutations: single changes of the code that a test must notice.
//!
//! `cargo run -p xtask -- mutants [NAME…]` applies each to a copy of the committed tree and runs the
//! tests that should fail. A test of this crate checks that every mutation still applies.

#![expect(
    clippy::disallowed_methods,
    reason = "a development tool changes its own copy of the tree and runs programs on it"
)]

mod list;

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt, fs,
    io::{self, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

pub use self::list::ALL;

/// Time that the tests of one mutation may take: more than the longest wait of a test, which fails with
/// what it waited for. A mutation that only hangs is not caught: a developer would not know what broke.
const LIMIT: Duration = Duration::from_mins(7);

/// Pause between two looks at a running test.
const INTERVAL: Duration = Duration::from_millis(200);

/// A change of the code.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// Name on the command line.
    pub name: &'static str,
    /// File, from the root of the workspace.
    pub file: &'static str,
    /// Text that occurs once in the file.
    pub find: &'static str,
    /// Text in its place.
    pub replace: &'static str,
    /// Arguments of `cargo test` that select the tests which must fail.
    pub tests: &'static [&'static str],
}

/// The result of a mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// A test failed.
    Caught,
    /// All tests passed.
    Survived,
    /// The tests did not end in time.
    Hung,
    /// The changed code does not compile.
    Broken,
    /// The tests fail without the change, too.
    Unsound,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Caught => "caught",
            Self::Survived => "SURVIVED",
            Self::Hung => "HUNG",
            Self::Broken => "DOES NOT COMPILE",
            Self::Unsound => "TESTS FAIL WITHOUT IT",
        })
    }
}

impl Mutant {
    /// Returns the text of the file with the change.
    pub fn apply(&self, text: &str) -> anyhow::Result<String> {
        let found = text.matches(self.find).count();
        ensure!(found == 1, "{}: {:?} occurs {found} times in {}", self.name, self.find, self.file);
        Ok(text.replacen(self.find, self.replace, 1))
    }
}

/// Applies the named mutations, or all, one after the other; fails if one is not caught. The tests must
/// pass without the change.
pub fn run(root: &Path, names: &[&str]) -> anyhow::Result<()> {
    if let Some(unknown) = names.iter().find(|name| !ALL.iter().any(|it| it.name == **name)) {
        bail!("no mutation is called {unknown}");
    }
    let tree = Tree::checkout(root)?;
    let (mut missed, mut passing) = (0, BTreeMap::new());
    for mutant in ALL.iter().filter(|it| names.is_empty() || names.contains(&it.name)) {
        if let Entry::Vacant(entry) = passing.entry(mutant.tests) {
            entry.insert(tree.test(mutant)? == Outcome::Survived);
        }
        let outcome = match passing.get(mutant.tests) {
            Some(true) => tree.test_changed(mutant)?,
            Some(false) | None => Outcome::Unsound,
        };
        missed += usize::from(outcome != Outcome::Caught);
        writeln!(io::stdout(), "{:<40} {outcome}", mutant.name)?;
    }
    ensure!(missed == 0, "{missed} mutations were not caught");
    Ok(())
}

/// A copy of the committed tree.
struct Tree {
    root: PathBuf,
    folder: PathBuf,
    target: PathBuf,
}

impl Tree {
    fn checkout(root: &Path) -> anyhow::Result<Self> {
        let work = root.join("target/mutants");
        let tree =
            Self { root: root.to_owned(), folder: work.join("tree"), target: work.join("build") };
        tree.remove();
        let folder = tree.folder.to_string_lossy().into_owned();
        tree.git(&["worktree", "add", "--quiet", "--detach", &folder, "HEAD"])?;
        Ok(tree)
    }

    fn git(&self, arguments: &[&str]) -> anyhow::Result<()> {
        let done = Command::new("git").arg("-C").arg(&self.root).args(arguments).status()?;
        ensure!(done.success(), "git {} failed", arguments.join(" "));
        Ok(())
    }

    fn remove(&self) {
        let folder = self.folder.to_string_lossy().into_owned();
        let mut git = Command::new("git");
        git.arg("-C").arg(&self.root).args(["worktree", "remove", "--force", &folder]);
        // Fails if there is no such tree.
        drop(git.stdout(Stdio::null()).stderr(Stdio::null()).status());
    }

    fn cargo(&self, mutant: &Mutant, more: &[&str]) -> Command {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(&self.folder).env("CARGO_TARGET_DIR", &self.target);
        cargo.arg("test").args(["--quiet"]).args(more).args(mutant.tests);
        cargo.stdout(Stdio::null()).stderr(Stdio::null());
        cargo
    }

    /// Runs the tests of a mutation with its change.
    fn test_changed(&self, mutant: &Mutant) -> anyhow::Result<Outcome> {
        let path = self.folder.join(mutant.file);
        let text = fs::read_to_string(&path).with_context(|| mutant.file.to_owned())?;
        fs::write(&path, mutant.apply(&text)?)?;
        let outcome = self.test(mutant);
        fs::write(&path, text)?;
        outcome
    }

    /// Runs the tests of a mutation on the tree as it is.
    fn test(&self, mutant: &Mutant) -> anyhow::Result<Outcome> {
        if !self.cargo(mutant, &["--no-run"]).status()?.success() {
            return Ok(Outcome::Broken);
        }
        // A group of their own: tests that hang are ended with cargo.
        let mut tests = self.cargo(mutant, &[]).process_group(0).spawn()?;
        let start = Instant::now();
        while start.elapsed() < LIMIT {
            if let Some(ended) = tests.try_wait()? {
                return Ok(if ended.success() { Outcome::Survived } else { Outcome::Caught });
            }
            thread::sleep(INTERVAL);
        }
        killpg(Pid::from_raw(i32::try_from(tests.id())?), Signal::SIGKILL)?;
        tests.wait()?;
        Ok(Outcome::Hung)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.remove();
    }
}
