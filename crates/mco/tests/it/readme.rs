//! The transcripts of the README are the output of the program.

use std::process::Command;

use mco_testkit::{
    PATIENCE,
    api::{self, Process},
};

use crate::workspace;

/// Returns every `$ mco …` line of the README with the lines that follow it.
fn transcripts(text: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        match line {
            "```console" => inside = true,
            "```" => inside = false,
            _ if !inside => {}
            _ => match (line.strip_prefix("$ mco "), found.last_mut()) {
                (Some(command), _) => found.push((command.to_owned(), String::new())),
                (None, Some((_, output))) => output.extend([line, "\n"]),
                (None, None) => unreachable!("output without a command: {line}"),
            },
        }
    }
    found
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test runs the commands of the README")]
fn the_transcripts_of_the_readme_are_exact() {
    let readme = std::fs::read_to_string(workspace().join("README.md")).expect("the README exists");
    let transcripts = transcripts(&readme);
    assert!(transcripts.len() >= 4, "the README has transcripts");
    for (command, expected) in transcripts {
        let output = Command::new(env!("CARGO_BIN_EXE_mco"))
            .args(command.split_whitespace())
            .current_dir(workspace())
            .output()
            .expect("the program starts");
        let shown = [output.stdout, output.stderr].concat();
        assert_eq!(String::from_utf8_lossy(&shown), expected, "mco {command}");
    }
}

/// Returns the blocks of the section in order.
fn blocks(text: &str, section: &str) -> Vec<String> {
    let (_, rest) = text.split_once(section).expect("the section exists");
    let section = rest.split("\n## ").next().unwrap_or_default();
    let blocks = section.split("```text\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap_or_default().to_owned()).collect()
}

/// Replaces the ports and the name of the context, which differ from run to run.
fn without_ports(text: &str) -> String {
    let context = text.split_once(" context ").and_then(|(_, rest)| rest.split(' ').next());
    let text = &context.map_or(text.to_owned(), |context| text.replace(context, "CONTEXT"));
    let mut parts = text.split("127.0.0.1:");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.extend(["127.0.0.1:PORT", part.trim_start_matches(|c: char| c.is_ascii_digit())]);
    }
    plain
}

/// Ports are ignored; names of configs are exact. Of the lines about `worker-0`, the first and the
/// last are required, because a restart may end before the kubelet reports it. The order is exact.
#[test]
#[expect(clippy::disallowed_methods, reason = "the test runs the commands of the README")]
fn the_first_minute_of_the_readme_is_exact() {
    let readme = std::fs::read_to_string(workspace().join("README.md")).expect("the README exists");
    let blocks = blocks(&readme, "\n## The first minute\n");
    let [welcome, apply, progress, status] = &blocks[..] else { unreachable!("four blocks") };
    let folder = tempfile::tempdir().unwrap();
    let examples = workspace().join("examples").canonicalize().unwrap();
    std::os::unix::fs::symlink(examples, folder.path().join("examples")).unwrap();
    let mco = |command: &str| {
        let mut run = Command::new(env!("CARGO_BIN_EXE_mco"));
        run.args(command.split_whitespace()).env_remove("KUBECONFIG").env("NO_COLOR", "1");
        let output = run.current_dir(folder.path()).output().expect("the program starts");
        String::from_utf8([output.stderr, output.stdout].concat()).unwrap()
    };
    let updated = || {
        let shown = mco("status");
        let pools = shown.lines().filter(|line| line.contains("True      False      False"));
        let is_complete = pools.count() == 2 && shown.contains("worker-2");
        (is_complete && shown.contains("Available True, Progressing False")).then_some(shown)
    };
    let transcript = |block: &str| {
        let (command, output) = block.split_once('\n').expect("a command and its output");
        (command.trim_start_matches("$ mco ").to_owned(), output.to_owned())
    };

    let mut start = api::command(env!("CARGO_BIN_EXE_mco"));
    let start = start.arg("up").env_remove("KUBECONFIG").current_dir(folder.path());
    let mut up = Process::start("mco up", start, &folder.path().join("log")).unwrap();
    api::wait("all pools to be updated", PATIENCE, updated).unwrap();
    let here = folder.path().canonicalize().unwrap().display().to_string();
    let output = without_ports(&up.log()).replace(&here, "/path/to");
    assert!(output.starts_with(&without_ports(welcome)), "{output}");

    let (command, expected) = transcript(apply);
    assert_eq!(without_ports(&mco(&command)), without_ports(&expected));
    let (command, expected) = transcript(status);
    let reached = || updated().filter(|shown| shown.starts_with(&expected));
    api::wait(&format!("`mco {command}` to show\n{expected}"), PATIENCE, reached).unwrap();
    let last = progress.lines().last().expect("lines");
    let logged = || Some(up.log()).filter(|log| log.contains(last));
    let log = api::wait(&format!("the line {last:?}"), PATIENCE, logged).unwrap();
    let lines: Vec<Option<usize>> = progress.lines().map(|line| log.find(line)).collect();
    assert!(lines[0].is_some() && lines[lines.len() - 1].is_some(), "{progress}\n{log}");
    let lines: Vec<usize> = lines.into_iter().flatten().collect();
    assert!(lines.is_sorted(), "{progress}\n{log}");
    mco("down --purge");
    assert!(up.wait(PATIENCE).unwrap().success());
}
