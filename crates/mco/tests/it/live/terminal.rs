//! Commands on a terminal: the live view at three widths, questions, colours.

#![expect(clippy::disallowed_methods, reason = "the test starts programs and reads their output")]

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use kube::Api;
use mco_api::MachineConfig;
use mco_testkit::{PATIENCE, api::wait};

use super::{Cluster, Live};

on_both! {
    the_live_view_fits_into_the_terminal,
    a_resized_terminal_is_drawn_anew,
    apply_asks_on_a_terminal,
    colours_are_for_terminals_only,
}

/// Returns true if there is a program that makes terminals.
fn has_script() -> bool {
    let found = Command::new("script").arg("--version").output().is_ok();
    if !found {
        let _ = writeln!(std::io::stderr(), "skipped: script of util-linux is missing");
    }
    found
}

impl Live {
    /// Returns the command that runs a command line on a terminal of this width.
    fn on_terminal(&self, columns: u16, line: &str) -> Command {
        let mco = Path::new(env!("CARGO_BIN_EXE_mco")).parent().unwrap();
        let line =
            format!("stty cols {columns} rows 50; PATH=\"{}:$PATH\"; exec {line}", mco.display());
        let mut command = Command::new("script");
        command.args(["--quiet", "--flush", "--return", "--command", &line, "/dev/null"]);
        command.env("KUBECONFIG", &self.cluster.kubeconfig).env("TERM", "xterm");
        command.env("SHELL", "/bin/sh").env_remove("NO_COLOR").current_dir(self.folder.path("."));
        command
    }

    /// Runs a command line on a terminal with this input; returns exit code and output.
    async fn typed(&self, mut command: Command, input: &str) -> (i32, String) {
        let input = input.to_owned();
        let run = move || {
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            // Dropped at the end of the statement, which ends the input.
            child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
            let output = child.wait_with_output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).replace("\r\n", "\n");
            (output.status.code().unwrap(), text)
        };
        tokio::task::spawn_blocking(run).await.unwrap()
    }
}

/// Returns the lines of the last picture that is complete.
fn last_picture(text: &str) -> Option<Vec<String>> {
    let (drawn, _) = text.rsplit_once("\u{1b}[?7h")?;
    let (_, picture) = drawn.rsplit_once("\u{1b}[?7l")?;
    let picture = crate::without_colours(picture);
    assert!(!picture.contains('\u{1b}'), "{picture:?}");
    Some(picture.lines().map(|line| line.trim_end().to_owned()).collect())
}

/// Waits for a picture with a line that starts with these words.
fn wait_picture(file: &Path, start: &str) -> Vec<String> {
    let found = wait(&format!("a picture with {start:?}"), PATIENCE, || {
        let picture = last_picture(&fs::read_to_string(file).ok()?)?;
        picture.iter().any(|line| line.starts_with(start)).then_some(picture)
    });
    found.unwrap_or_else(|error| panic!("{error:#}\n{:?}", fs::read_to_string(file)))
}

/// Every line fits, and every word of the sentence is there.
fn assert_fits(picture: &[String], columns: usize) {
    for line in picture {
        assert!(line.chars().count() <= columns, "{columns}: {line}\n{picture:#?}");
    }
    let words: Vec<&str> = picture.iter().flat_map(|line| line.split_whitespace()).collect();
    let sentence = "node worker-0 is waiting: the pool is paused; run `mco rollout resume worker` to \
                    continue";
    let shown = words.join(" ");
    assert!(shown.contains(sentence), "{columns}: {picture:#?}");
    let command = "`mco rollout resume worker`";
    assert!(picture.iter().any(|line| line.contains(command)), "{columns}: {picture:#?}");
}

async fn the_live_view_fits_into_the_terminal(live: Live) {
    if !has_script() {
        return;
    }
    live.ok(&["rollout", "pause", "worker"]).await;
    let short = format!("{}…", &live.first["rendered-".len()..]["worker-".len()..][..7]);
    let mut widths = Vec::new();
    for columns in [60, 100, 160] {
        let mut command = live.on_terminal(columns, "mco status -w");
        let file = live.folder.path(&format!("screen-{columns}"));
        let run = move || {
            command.stdin(Stdio::piped()).stdout(fs::File::create(&file).unwrap());
            let mut child = command.spawn().unwrap();
            let picture = wait_picture(&file, "pool worker: [");
            // Ctrl-C on the terminal.
            child.stdin.take().unwrap().write_all(b"\x03").unwrap();
            let status = child.wait().unwrap();
            (picture, status.success())
        };
        let (picture, is_success) = tokio::task::spawn_blocking(run).await.unwrap();
        assert!(is_success, "Ctrl-C ends the view");
        assert_fits(&picture, columns.into());
        let bar = picture.iter().find(|line| line.starts_with("pool worker: [")).unwrap();
        assert!(bar.ends_with("] 0 of 1 nodes done, paused"), "{bar}");
        widths.push(bar.matches(['#', '.']).count());
        let node = picture.iter().find(|line| line.starts_with("worker-0 ")).unwrap();
        assert!(node.contains("Ready") && node.contains("Waiting"), "{node}");
        assert_eq!(node.contains(&live.first), columns > 60, "{node}");
        assert_eq!(node.contains(&short), columns == 60, "{node}");
    }
    assert!(widths.is_sorted(), "{widths:?}");
    // Piped, names are complete and the progress is in words.
    let (_, text, _) = live.run(&["status"]).await;
    assert!(text.contains("\npool worker: 0 of 1 nodes done, paused\n"), "{text}");
    assert!(text.contains(&live.first) && !text.contains('['), "{text}");
}

async fn a_resized_terminal_is_drawn_anew(live: Live) {
    if !has_script() {
        return;
    }
    live.ok(&["rollout", "pause", "worker"]).await;
    let mut command = live.on_terminal(160, "sh -c 'tty > terminal; exec mco status -w'");
    let (file, folder) = (live.folder.path("screen"), live.folder.path("."));
    let run = move || {
        command.stdin(Stdio::piped()).stdout(fs::File::create(&file).unwrap());
        let mut child = command.spawn().unwrap();
        assert_fits(&wait_picture(&file, "pool worker: ["), 160);
        let terminal = fs::read_to_string(folder.join("terminal")).unwrap();
        for columns in ["60", "100"] {
            let before = fs::read_to_string(&file).unwrap().len();
            let set = Command::new("stty").args(["-F", terminal.trim(), "cols", columns]).status();
            assert!(set.unwrap().success());
            let drawn = wait(&format!("a picture of {columns} columns"), PATIENCE, || {
                let text = fs::read_to_string(&file).ok()?;
                let new = text.get(before..)?;
                assert!(new.is_empty() || new.starts_with("\u{1b}[H"), "{new:?}");
                last_picture(new)
            });
            assert_fits(&drawn.unwrap(), columns.parse().unwrap());
        }
        child.stdin.take().unwrap().write_all(b"\x03").unwrap();
        assert!(child.wait().unwrap().success());
    };
    tokio::task::spawn_blocking(run).await.unwrap();
}

async fn apply_asks_on_a_terminal(live: Live) {
    if !has_script() {
        return;
    }
    let configs = Api::<MachineConfig>::all(live.cluster.client.clone());
    let is_applied = async || configs.get_opt("60-more").await.unwrap().is_some();
    let question = "apply MachineConfig/60-more? [y/N]";
    for answer in ["n\n", "\n", ""] {
        let command = live.on_terminal(100, "mco apply -f more.yaml");
        let (code, text) = live.typed(command, answer).await;
        assert!(text.contains("file /etc/more added   reboot"), "the plan is shown: {text}");
        assert!(code == 1 && text.contains(question), "{answer:?}: {code} {text}");
        assert!(text.contains("nothing was applied"), "{answer:?}: {text}");
        assert!(!is_applied().await, "{answer:?}");
    }
    // Ctrl-C ends the command by its signal.
    let mut command = live.on_terminal(100, "mco apply -f more.yaml");
    let file = live.folder.path("question");
    let interrupt = move || {
        command.stdin(Stdio::piped()).stdout(fs::File::create(&file).unwrap());
        let mut child = command.spawn().unwrap();
        let asked = || fs::read_to_string(&file).ok()?.contains(question).then_some(());
        wait("the question", PATIENCE, asked).unwrap();
        child.stdin.take().unwrap().write_all(b"\x03").unwrap();
        child.wait().unwrap().code()
    };
    assert_eq!(tokio::task::spawn_blocking(interrupt).await.unwrap(), Some(130));
    assert!(!is_applied().await, "Ctrl-C");
    let command = live.on_terminal(100, "mco apply -f more.yaml");
    let (code, text) = live.typed(command, "y\n").await;
    assert!(code == 0 && text.contains("/60-more created"), "{code} {text}");
    assert!(is_applied().await);
}

async fn colours_are_for_terminals_only(live: Live) {
    if !has_script() {
        return;
    }
    let green = "\u{1b}[32m+hello";
    let (code, text) = live.typed(live.on_terminal(100, "mco diff worker-0"), "").await;
    assert!(code == 1 && text.contains(green), "{text:?}");
    let phase = "\u{1b}[36mStarting\u{1b}[0m";
    let (_, text) = live.typed(live.on_terminal(100, "mco status"), "").await;
    assert!(text.contains(phase), "{text:?}");
    let (_, text, _) = live.run(&["status"]).await;
    assert!(text.contains("Starting") && !text.contains('\u{1b}'), "{text:?}");
    let mut plain = live.on_terminal(100, "mco diff worker-0");
    plain.env("NO_COLOR", "1");
    let (_, text) = live.typed(plain, "").await;
    assert!(text.contains("\n+hello\n") && !text.contains("\u{1b}[3"), "{text:?}");
    let mut piped = live.on_terminal(100, "sh -c 'mco diff worker-0 | cat'");
    piped.env_remove("NO_COLOR");
    let (_, text) = live.typed(piped, "").await;
    assert!(text.contains("\n+hello\n") && !text.contains("\u{1b}[3"), "{text:?}");
}
