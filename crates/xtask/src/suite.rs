//! All tests of the workspace, in two lanes at once.
//!
//! The tests of machines mostly wait for boots, time-outs and drains, one after the other. `cargo test`
//! would run the other test programs only before and after them. A program that hangs is ended, with the
//! names of its unfinished tests and its processes.

#![expect(
    clippy::disallowed_methods,
    reason = "a development tool runs test programs and measures their time"
)]

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    fs::File,
    io::{self, BufReader, Write as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use cargo_metadata::Message;

/// Targets whose tests start machines.
const MACHINES: [&str; 4] = ["lab", "ostree", "systemd", "vm"];

/// Interval at which a lane reports what it waits for.
const PROGRESS: Duration = Duration::from_mins(1);

/// Interval at which a running test program is examined.
const INTERVAL: Duration = Duration::from_millis(100);

/// Time without the end of a test after which a program hangs. The longest tests take a third of it.
const HANG: Duration = Duration::from_mins(12);

/// The same for a program whose tests start machines.
const HANG_OF_MACHINES: Duration = Duration::from_mins(25);

/// Time that a program may take to end after it was killed.
const KILL_LIMIT: Duration = Duration::from_mins(1);

/// A program with the tests of one target.
#[derive(Debug)]
struct TestProgram {
    /// Folder name of the package.
    package: String,
    /// Package and target, for example `mco/lab`.
    name: String,
    program: PathBuf,
    /// Folder of the package, in which Cargo runs the program.
    folder: PathBuf,
    is_of_machines: bool,
}

/// Numbers of tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
}

/// The end of a test program.
#[derive(Debug)]
struct Ended {
    counts: Counts,
    success: bool,
    /// Report of the tests.
    report: String,
    /// Lines that tests wrote past the capture: what they ran, or why they did not.
    notes: String,
}

/// Builds all tests and runs those of the named packages, or all; fails if one failed.
pub fn run(root: &Path, packages: &[&str]) -> anyhow::Result<()> {
    let mut programs = build(root)?;
    programs.retain(|program| packages.is_empty() || packages.contains(&program.package.as_str()));
    ensure!(!programs.is_empty(), "no package is called {}", packages.join(", "));
    let (machines, others): (Vec<_>, Vec<_>) =
        programs.into_iter().partition(|program| program.is_of_machines);
    let (start, total, failed) =
        (Instant::now(), Mutex::new(Counts::default()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for lane in [machines, others] {
            let (total, failed) = (&total, &failed);
            scope.spawn(move || {
                for program in &lane {
                    let name = program.name.clone();
                    match run_one(program) {
                        Ok(ended) => {
                            if !ended.success {
                                failed.lock().expect("no panic").push(name);
                            }
                            total.lock().expect("no panic").add(ended.counts);
                        }
                        Err(error) => {
                            say(&format!("{name}: {error:#}"));
                            failed.lock().expect("no panic").push(name);
                        }
                    }
                }
            });
        }
    });
    let Counts { passed, failed: count, skipped } = total.into_inner().expect("no panic");
    say(&format!(
        "tests: {passed} passed, {count} failed, {skipped} skipped, in {:.0?}",
        start.elapsed()
    ));
    let failed = failed.into_inner().expect("no panic");
    ensure!(failed.is_empty(), "tests failed in {}", failed.join(", "));
    Ok(())
}

/// Builds all test programs and returns them.
fn build(root: &Path) -> anyhow::Result<Vec<TestProgram>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo)
        .current_dir(root)
        .args(["test", "--workspace", "--lib", "--bins", "--tests", "--no-run", "--quiet"])
        .arg("--message-format=json-render-diagnostics")
        .stdout(Stdio::piped())
        .spawn()
        .context("failed to run cargo test --no-run")?;
    let output = build.stdout.take().context("cargo has an output")?;
    let mut programs = Vec::new();
    for message in Message::parse_stream(BufReader::new(output)) {
        let Message::CompilerArtifact(artifact) = message.context("cargo's messages")? else {
            continue;
        };
        let (true, Some(program)) = (artifact.profile.test, artifact.executable) else { continue };
        let folder = artifact.manifest_path.parent().context("a manifest is in a folder")?;
        let package = folder.file_name().unwrap_or_default().to_owned();
        let target = &artifact.target;
        programs.push(TestProgram {
            name: format!("{package}/{}", target.name),
            package,
            program: program.into(),
            folder: folder.into(),
            is_of_machines: target.is_test() && MACHINES.contains(&target.name.as_str()),
        });
    }
    ensure!(build.wait()?.success(), "the tests do not compile");
    programs.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(programs)
}

/// Runs one program, and prints its report if a test failed.
fn run_one(program: &TestProgram) -> anyhow::Result<Ended> {
    let mut command = Command::new(&program.program);
    command.current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder);
    let start = Instant::now();
    let limit = if program.is_of_machines { HANG_OF_MACHINES } else { HANG };
    let ended = run_program(&program.name, &mut command, limit)?;
    say(&summary(&program.name, &ended, start.elapsed()));
    Ok(ended)
}

/// Runs a program until it ends, or no test of it has ended for `limit`.
fn run_program(name: &str, command: &mut Command, limit: Duration) -> anyhow::Result<Ended> {
    let (report, notes) = (temporary()?, temporary()?);
    let start = Instant::now();
    let mut running = command
        .stdin(Stdio::null())
        .stdout(report.try_clone()?)
        .stderr(notes.try_clone()?)
        .spawn()
        .context("failed to start it")?;
    let (mut said, mut written, mut seen, mut progress) = (start, 0, 0, start);
    let (mut hang, mut killed) = (String::new(), None);
    let success = loop {
        if let Some(status) = running.try_wait()? {
            break status.success();
        }
        // A process in an uninterruptible call of the kernel.
        if killed.is_some_and(|killed: Instant| killed.elapsed() > KILL_LIMIT) {
            hang.push_str("\nthe program does not end although it was killed");
            break false;
        }
        let length = report.metadata()?.len();
        if length != written {
            written = length;
            // The output of a program that a test starts is no progress.
            let ended = ended_tests(&contents(&report)?);
            if ended != seen {
                (seen, progress) = (ended, Instant::now());
            }
        }
        if said.elapsed() > PROGRESS {
            said = Instant::now();
            let tests = unfinished(&contents(&report)?);
            let tests = if tests.is_empty() { tests } else { format!(" ({tests})") };
            say(&format!("{name}: {seen} tests ended in {:.0?}{tests}", start.elapsed()));
        }
        if killed.is_none() && progress.elapsed() > limit {
            hang = format!(
                "no test ended for {limit:.0?}; unfinished: {}\nprocesses:\n{}",
                unfinished(&contents(&report)?),
                process_tree(running.id())
            );
            // The programs that tests start end with them.
            running.kill()?;
            killed = Some(Instant::now());
        }
        thread::sleep(INTERVAL);
    };
    let (mut report, notes) = (contents(&report)?, contents(&notes)?);
    let counts = counts(&report);
    report.push_str(&hang);
    Ok(Ended { counts, success, report, notes })
}

/// Returns the number of tests of a report that ended.
fn ended_tests(report: &str) -> usize {
    let has_ended = |line: &&str| line.starts_with("test ") && line.contains(" ... ");
    report.lines().filter(has_ended).count()
}

/// Returns the tests that a report calls slow, without those that ended since.
fn unfinished(report: &str) -> String {
    let mut tests = BTreeSet::new();
    for line in report.lines() {
        let Some(line) = line.strip_prefix("test ") else { continue };
        if let Some((test, _)) = line.split_once(" has been running for over") {
            tests.insert(test);
        } else if let Some((test, _)) = line.split_once(" ... ") {
            tests.remove(test);
        }
    }
    Vec::from_iter(tests).join(", ")
}

/// Returns a line for the process `of` and each that it started, with its state and its command.
fn process_tree(of: u32) -> String {
    let listed =
        Command::new("ps").args(["-eo", "pid,ppid,pgid,stat,etimes,wchan:20,args"]).output();
    let listed = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let text = listed.unwrap_or_default();
    let mut wanted = BTreeSet::from([of.to_string()]);
    let mut lines = Vec::new();
    // A process is listed after the one that started it.
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(pid), Some(parent)) = (words.next(), words.next()) else { continue };
        if wanted.contains(pid) || wanted.contains(parent) {
            wanted.insert(pid.to_owned());
            lines.push(line.chars().take(300).collect::<String>());
        }
    }
    lines.join("\n")
}

/// Returns the lines about a program that ended.
fn summary(name: &str, ended: &Ended, duration: Duration) -> String {
    let Counts { passed, failed, skipped } = ended.counts;
    let mut text =
        format!("{name}: {passed} passed, {failed} failed, {skipped} skipped in {duration:.1?}");
    for line in ended.notes.lines().filter(|line| !line.trim().is_empty()) {
        let _ = write!(text, "\n  {line}");
    }
    if !ended.success {
        for line in ended.report.lines().filter(|line| !line.ends_with(" ... ok")) {
            let _ = write!(text, "\n{line}");
        }
    }
    text
}

/// Returns the sums of the lines `test result: …` of a report.
fn counts(report: &str) -> Counts {
    let mut all = Counts::default();
    for line in report.lines().filter(|line| line.starts_with("test result:")) {
        let number = |what: &str| {
            let (before, _) = line.split_once(what)?;
            before.trim_end().rsplit(' ').next()?.parse().ok()
        };
        all.add(Counts {
            passed: number(" passed").unwrap_or_default(),
            failed: number(" failed").unwrap_or_default(),
            skipped: number(" ignored").unwrap_or_default(),
        });
    }
    all
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// Returns a new file without a name.
fn temporary() -> anyhow::Result<File> {
    let path = std::env::temp_dir().join(format!(
        "mco-tests-{}-{:?}-{:?}",
        std::process::id(),
        thread::current().id(),
        Instant::now()
    ));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Returns what a file contains. The position, which it shares with the running program, stays.
fn contents(file: &File) -> anyhow::Result<String> {
    let mut bytes = vec![0; usize::try_from(file.metadata()?.len())?];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Prints whole lines, so that those of two lanes do not mix.
fn say(text: &str) {
    let _ = writeln!(io::stdout().lock(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_the_sums_of_its_results() {
        let report = "running 3 tests\n...\n\
            test result: FAILED. 2 passed; 1 failed; 4 ignored; 0 measured; 0 filtered out; finished in 1.0s\n\
            test result: ok. 10 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(counts(report), Counts { passed: 12, failed: 1, skipped: 4 });
        assert_eq!(counts("a test that aborted"), Counts::default());
    }

    #[test]
    fn a_program_that_hangs_is_ended_and_its_tests_are_named() {
        let script = "echo 'test a::quick ... ok'; \
            echo 'test a::slow has been running for over 60 seconds'; \
            echo 'test a::hung has been running for over 60 seconds'; \
            echo 'test a::slow ... ok'; while :; do echo a program of a test; sleep 0.1; done";
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let ended = run_program("a", &mut command, Duration::from_millis(500)).unwrap();
        assert!(!ended.success);
        assert!(ended.report.contains("unfinished: a::hung\n"), "{}", ended.report);
        assert!(ended.report.contains("sh -c"), "{}", ended.report);
        assert_eq!(ended_tests(&ended.report), 2);
    }

    #[test]
    fn a_failed_program_is_reported_with_its_output() {
        let ended = |success| Ended {
            counts: Counts { passed: 1, failed: 1, skipped: 0 },
            success,
            report: "test a ... ok\nassertion failed".to_owned(),
            notes: "lab: skipped\n\n".to_owned(),
        };
        let line = "mco/lab: 1 passed, 1 failed, 0 skipped in 2.0s\n  lab: skipped";
        let duration = Duration::from_secs(2);
        assert_eq!(summary("mco/lab", &ended(true), duration), line);
        let failed = format!("{line}\nassertion failed");
        assert_eq!(summary("mco/lab", &ended(false), duration), failed);
    }
}
