//! A disk with a volatile cache: every state that a power cut can leave is examined without a boot.

#![expect(clippy::disallowed_methods, reason = "reads and writes images of disks, runs mco")]

use std::{fs::File, process::Command, time::Instant};

use mco_testkit::vm::{CutState, Disk, Tree, Write};

use crate::{
    check::{Position, differing},
    done,
    fixture::{Fixture, WholeRun, fixture, turn},
    setting,
};

/// States of all changes together; `make soak` examines more.
const STATES: usize = 510;
/// Every state of this number is rolled back.
const ROLLED_BACK: usize = 10;
/// Files of the boot loader, which a rollback of a machine that does not run leaves alone.
const BOOT_LOADER: [&str; 2] = ["/boot/grub/grub.cfg", "/etc/default/grub.d/90-mco.cfg"];

// covers: C14
#[test]
fn a_lost_disk_cache_leaves_old_or_new_files_and_a_record_that_is_not_ahead() {
    let _turn = turn(2);
    let Some(fixture) = fixture() else { return };
    let start = Instant::now();
    let (count, seed) = (setting("MCO_VM_STATES", STATES), setting("MCO_VM_SEED", 1));
    let mut examined = 0;
    for run in &fixture.runs {
        let mut random = fastrand::Rng::with_seed(seed as u64);
        let states = run.log.cut_states(count / fixture.runs.len(), &mut random);
        examined += states.len();
        let (front, back) = states.split_at(states.len() / 2);
        let faults: Vec<String> = std::thread::scope(|scope| {
            let workers = [front, back].map(|part| scope.spawn(|| examine(fixture, run, part)));
            workers.into_iter().flat_map(|worker| done(worker.join().expect("no panic"))).collect()
        });
        assert!(
            faults.is_empty(),
            "{run}: {} faults in {} states: {:#?}",
            faults.len(),
            states.len(),
            faults.iter().take(5).collect::<Vec<_>>()
        );
    }
    let changes = fixture.runs.len();
    assert!(examined >= count / changes * changes, "only {examined} of {count} states");
    eprintln!("examined {examined} states in {:.1?}", start.elapsed());
}

/// Examines states in the order of their durable writes; returns their faults.
fn examine(fixture: &Fixture, run: &WholeRun, states: &[CutState]) -> anyhow::Result<Vec<String>> {
    let folder = &fixture.folder;
    let flushed = run.start.disk().copy(&folder.new_path("flushed"))?;
    let image = File::options().write(true).open(flushed.path())?;
    let (mut replayed, mut faults) = (0, Vec::new());
    for (number, state) in states.iter().enumerate() {
        run.log.replay(&image, replayed..state.durable)?;
        replayed = state.durable;
        let found = examine_one(fixture, run, state, &flushed, number % ROLLED_BACK == 0)?;
        let place = format!("{} writes and {} blocks", state.durable, state.kept.len());
        faults.extend(found.into_iter().map(|fault| format!("{place}: {fault}")));
    }
    std::fs::remove_file(flushed.path())?;
    Ok(faults)
}

fn examine_one(
    fixture: &Fixture,
    run: &WholeRun,
    state: &CutState,
    flushed: &Disk,
    rolls_back: bool,
) -> anyhow::Result<Vec<String>> {
    let root = fixture.folder.new_path("root");
    flushed.extract_changed(&root, |image, part| run.log.keep(image, &part, state))?;
    let tree = Tree::read(&root)?;
    let mut faults = run.change.faults(&tree);
    let position = run.change.position(&tree);
    if state.durable >= durable_when_reported(run) && position != Position::After {
        faults.push("success was reported, but the change is not complete".to_owned());
    }
    if rolls_back && faults.is_empty() && position == Position::Between {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mco"));
        let output = command.args(["host", "rollback", "--yes", "--root"]).arg(&root).output()?;
        let old = if run.name == "rollback" { &run.change.after } else { &run.change.before };
        let left = Tree::read(&root)?;
        let mut wrong = differing(&left, old);
        wrong.retain(|path| !BOOT_LOADER.contains(path));
        if !output.status.success() || !wrong.is_empty() {
            let text = String::from_utf8_lossy(&output.stderr);
            faults.push(format!("a rollback left {wrong:?}: {text}"));
        }
    }
    std::fs::remove_dir_all(&root)?;
    Ok(faults)
}

/// Returns the number of writes that were durable when the command reported its success.
fn durable_when_reported(run: &WholeRun) -> usize {
    let writes = run.log.writes.get(..run.reported).unwrap_or_default();
    writes.iter().rposition(|write| *write == Write::Flush).map_or(0, |flush| flush + 1)
}
