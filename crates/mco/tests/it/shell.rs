//! Completion scripts, manual pages and the list of exit codes.

use snapbox::cmd::Command;

use crate::{Folder, mco};

/// Prints the words with which bash completes a command line.
const COMPLETE: &str = r#"
    source ./mco.bash
    COMP_WORDS=(mco ro) COMP_CWORD=1; _mco mco ro mco
    printf '%s\n' "${COMPREPLY[@]}"
    COMP_WORDS=(mco rollout p) COMP_CWORD=2; _mco mco p rollout
    printf '%s\n' "${COMPREPLY[@]}"
"#;

#[test]
fn bash_completes_commands_and_subcommands() {
    let folder = Folder::new(&[]);
    let script = folder.mco(&["completion", "bash"]).output().unwrap();
    folder.write("mco.bash", &script.stdout);
    let out = Command::new("bash").args(["-c", COMPLETE]).current_dir(folder.path(".")).output();
    let out = out.unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stderr), "");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "rollout\npause\n");
}

#[test]
fn every_shell_has_a_script() {
    for (shell, start) in [("zsh", "#compdef mco\n"), ("fish", "# Print an optspec")] {
        let out = mco(&["completion", shell]).output().unwrap();
        assert!(out.stdout.starts_with(start.as_bytes()), "{shell}");
    }
    let out = mco(&["completion", "tcsh"]).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test reads what it made")]
fn every_command_has_a_manual_page() {
    let folder = Folder::new(&[]);
    folder.mco(&["manual", "man1"]).assert().success();
    for page in ["mco.1", "mco-plan.1", "mco-rollout-undo.1"] {
        let text = std::fs::read_to_string(folder.path("man1").join(page)).unwrap();
        assert!(text.contains(".SH SYNOPSIS"), "{page}");
    }
    let hidden = folder.path("man1/mco-surroundings.1");
    assert!(!hidden.exists(), "commands for tests have no page");
}

#[test]
fn exit_codes_are_those_of_the_help() {
    let out = mco(&["exit-codes"]).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(text.contains("\nmco diff "), "{text}");
    assert!(text.contains("  0 equal, 1 different, 2 failure."), "{text}");
    let help = mco(&["help", "exit-codes"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let list: Vec<&str> = text.lines().collect();
    assert!(list.iter().all(|line| help.contains(line)), "{help}");
}
