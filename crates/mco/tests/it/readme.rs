//! What the README shows is what the program does.

use std::process::Command;

use crate::workspace;

/// Every `$ mco …` line of the README with the lines that follow it.
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
#[expect(clippy::disallowed_methods, reason = "runs the program as a reader of the README would")]
fn the_readme_shows_what_happens() {
    let readme = std::fs::read_to_string(workspace().join("README.md")).expect("a README");
    let transcripts = transcripts(&readme);
    assert!(transcripts.len() >= 4, "the README shows what the program does");
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
