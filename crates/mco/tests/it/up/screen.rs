//! The status of `mco up` on a terminal, which `script` provides.

#![expect(clippy::disallowed_methods, reason = "the test starts programs and reads their output")]

use std::{fs, io::Write as _, process::Command};

use mco_testkit::{
    PATIENCE,
    api::{self, Process},
};

/// Returns the drawn pictures, each with the number of lines that the cursor moved up before.
fn pictures(output: &str) -> Vec<(usize, String)> {
    let mut parts = output.split("\u{1b}[J");
    let up = |before: &str| {
        let (_, number) = before.rsplit_once("\u{1b}[")?;
        number.strip_suffix('A')?.parse().ok()
    };
    let mut moved = parts.next().and_then(up).unwrap_or(0);
    let mut found = Vec::new();
    for part in parts {
        let drawn = part.split("\u{1b}[?7h").next().unwrap_or(part);
        found.push((moved, crate::without_colours(&drawn.replace("\u{1b}[?7l", ""))));
        moved = up(part).unwrap_or(0);
    }
    found
}

#[test]
fn the_status_is_redrawn_in_place_on_a_terminal() {
    if Command::new("script").arg("--version").output().is_err() {
        let _ = writeln!(std::io::stderr(), "skipped: script of util-linux is missing");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mco = env!("CARGO_BIN_EXE_mco");
    let line = format!("exec {mco} up --nodes 1 --masters 1 --dir {}/mco", folder.path().display());
    let typescript = folder.path().join("typescript");
    let mut command = api::command("script");
    command.args(["--quiet", "--flush", "--return", "--command", &line]).arg(&typescript);
    let mut process = Process::start("script", &mut command, &folder.path().join("log")).unwrap();
    let seen =
        || fs::read(&typescript).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let wait = |what: &str, is: &dyn Fn(&str) -> bool| {
        let drawn = api::wait(what, PATIENCE, || {
            let drawn = pictures(&seen()?);
            is(&drawn.last()?.1).then_some(drawn)
        });
        drawn.unwrap()
    };
    wait("a picture of a cluster that is well", &|last| {
        last.contains("Available True, Progressing False, Degraded False")
            && last.matches(" Done ").count() == 2
    });
    let run = |words: &[&str]| {
        let done =
            Command::new(mco).args(words).arg("--dir").arg(folder.path().join("mco")).output();
        let done = done.unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    // A change that differs from every picture drawn so far.
    let pool = folder.path().join("pool.yaml");
    let text = "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\n\
                metadata: {name: worker}\nspec: {paused: true}\n";
    fs::write(&pool, text).unwrap();
    run(&["apply", "--force-conflicts", "-f", &pool.display().to_string()]);
    let drawn = wait("a picture of the pause", &|last| {
        last.contains("worker (paused)") && last.contains("NODE")
    });
    run(&["down", "--purge"]);
    assert!(process.wait(PATIENCE).unwrap().success(), "{}", process.log());

    assert!(drawn.len() > 1, "it was drawn more than once");
    let mut height = 0;
    for (moved, picture) in &drawn {
        assert_eq!(*moved, height, "the cursor goes to where the last picture began");
        height = picture.lines().count();
        assert!(picture.contains("POOL") && picture.contains("NODE"), "{picture}");
    }
}
