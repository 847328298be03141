//! Power cuts at random moments of a change, and the boot after them.

#![expect(clippy::disallowed_methods, reason = "measures the time of the whole test")]

use std::{sync::Mutex, time::Instant};

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
/// Attempts to cut the power at a moment when the change has begun.
const ATTEMPTS: usize = 8;

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
                    let name = format!("{} {number} of seed {seed}", run.name);
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

/// Cuts the power at a random moment after the change has begun, and examines the disk.
fn cut(
    fixture: &Fixture,
    run: &WholeRun,
    random: &mut fastrand::Rng,
    name: &str,
) -> anyhow::Result<(Disk, Position)> {
    for attempt in 1..=ATTEMPTS {
        let mut vm = run.start.restore(&fixture.folder)?;
        let moment = run.begun + run.duration.saturating_sub(run.begun).mul_f32(random.f32());
        vm.begin(run.command)?;
        let output = vm.finish_within(moment)?;
        let disk = vm.cut()?;
        let tree = disk.tree(&fixture.folder.new_path("cut"))?;
        let faults = run.change.faults(&tree);
        anyhow::ensure!(faults.is_empty(), "{name}, cut after {moment:.2?}: {faults:#?}");
        let position = run.change.position(&tree);
        anyhow::ensure!(
            output.is_none() || position == Position::After,
            "{name}: success was reported, but the change is not complete"
        );
        eprintln!("{name}, attempt {attempt}: cut after {moment:.2?}: {position:?}");
        if position != Position::Before {
            return Ok((disk, position));
        }
        std::fs::remove_file(disk.path())?;
    }
    anyhow::bail!("{name}: no change in {ATTEMPTS} attempts")
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
