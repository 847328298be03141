//! Power cuts at random moments of a change, and the boot after them.

#![expect(clippy::disallowed_methods, reason = "measures the time of the whole test")]

use std::{
    path::Path,
    sync::Mutex,
    time::{Duration, Instant},
};

use mco_testkit::vm::{Disk, Vm};

use crate::{
    check::{Position, differing},
    done,
    fixture::{Fixture, WholeRun, fixture, turn},
    setting,
};

/// Power cuts of all changes together; `make soak` makes more.
const CUTS: usize = 30;
/// Power cuts after which the machine boots and the change is repeated.
const BOOTS: usize = 3;
/// Interval at which a running change is examined.
const LOOK: Duration = Duration::from_millis(10);

// covers: C14
#[test]
fn a_machine_whose_power_is_cut_finishes_the_change_after_the_next_boot() {
    let _turn = turn(2);
    let Some(fixture) = fixture() else { return };
    let start = Instant::now();
    let (cuts, boots) = (setting("MCO_VM_CUTS", CUTS), setting("MCO_VM_BOOTS", BOOTS));
    let seed = setting("MCO_VM_SEED", 1) as u64;
    let next = Mutex::new(0..cuts);
    let between = Mutex::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(number) = { next.lock().expect("no panic").next() } {
                    let run = &fixture.runs[number % fixture.runs.len()];
                    let mut random = fastrand::Rng::with_seed(seed * 100_000 + number as u64);
                    let name = format!("{run}, {number} of seed {seed}");
                    let (disk, position) = done(cut(fixture, run, &mut random, &name));
                    *between.lock().expect("no panic") +=
                        usize::from(position == Position::Between);
                    if number < boots {
                        done(repeat(fixture, run, &disk, &name));
                    }
                    done(std::fs::remove_file(disk.path()).map_err(Into::into));
                }
            });
        }
    });
    let between = between.into_inner().expect("no panic");
    eprintln!("{cuts} power cuts, {between} amid a change, in {:.1?}", start.elapsed());
    assert!(between * 2 > cuts, "only {between} of {cuts} cuts were amid a change");
}

/// Cuts the power after a random write of the change, and examines the disk. A cut before the first
/// file has changed is followed by a later one.
fn cut(
    fixture: &Fixture,
    run: &WholeRun,
    random: &mut fastrand::Rng,
    name: &str,
) -> anyhow::Result<(Disk, Position)> {
    let (mut earliest, last) = (run.sizes.start, run.sizes.end);
    while earliest < last {
        let size = random.u64(earliest..last);
        let (disk, position) = cut_after(fixture, run, size, name)?;
        if position != Position::Before {
            return Ok((disk, position));
        }
        std::fs::remove_file(disk.path())?;
        earliest = size + 1;
    }
    anyhow::bail!("{name}: no cut changed a file")
}

/// Cuts the power when the record of writes has grown beyond `size`.
fn cut_after(
    fixture: &Fixture,
    run: &WholeRun,
    size: u64,
    name: &str,
) -> anyhow::Result<(Disk, Position)> {
    let mut vm = run.start.restore_recorded(&fixture.folder)?;
    vm.begin(run.command)?;
    let mut output = None;
    while output.is_none() && vm.log_size() <= size {
        output = vm.finish_within(LOOK)?;
    }
    let log = vm.log().map(Path::to_owned);
    let disk = vm.cut()?;
    log.map(std::fs::remove_file).transpose()?;
    let moment = format!("{} of {} bytes", size - run.sizes.start, run.sizes.end - run.sizes.start);
    let tree = disk.tree(&fixture.folder.new_path("cut"))?;
    let faults = run.change.faults(&tree);
    anyhow::ensure!(faults.is_empty(), "{name}, cut after {moment}: {faults:#?}");
    let position = run.change.position(&tree);
    anyhow::ensure!(
        output.is_none() || position == Position::After,
        "{name}: success was reported, but the change is not complete"
    );
    eprintln!("{name}: cut after {moment}: {position:?}");
    Ok((disk, position))
}

/// Boots the machine and repeats the command, which finishes the change.
fn repeat(fixture: &Fixture, run: &WholeRun, disk: &Disk, name: &str) -> anyhow::Result<()> {
    let start = Instant::now();
    let mut vm = Vm::boot(&fixture.folder, disk, &run.start)?;
    let booted = start.elapsed();
    let output = vm.run(run.command)?;
    let is_done = output.text.contains("no apply on record");
    anyhow::ensure!(matches!(output.code, 0 | 3) || is_done, "{name}: {output:?}");
    vm.ask("sync")?;
    let tree = vm.cut()?.tree(&fixture.folder.new_path("booted"))?;
    let missing = differing(&tree, &run.change.after);
    anyhow::ensure!(missing.is_empty(), "{name}: after the next boot {missing:?} are not there");
    eprintln!("{name}: booted in {booted:.1?}, finished in {:.1?}", start.elapsed());
    Ok(())
}
