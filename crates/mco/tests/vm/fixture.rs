//! The machines that the tests of power cuts start from, and one whole run of each change.

#![expect(clippy::disallowed_methods, reason = "measures the time that a whole change takes")]

use std::{
    fmt,
    ops::Range,
    path::Path,
    sync::{Arc, Condvar, Mutex, OnceLock, PoisonError},
    thread,
    time::Instant,
};

use anyhow::Context as _;
use mco_testkit::vm::{Layout, SavedMachine, Vm, VmFolder, VmPrerequisites, WriteLog};

use crate::{
    check::{Change, direction},
    configs, done, prerequisites,
};

const APPLY_FIRST: &str = "/opt/mco host apply -f /root/first.yaml --yes";
const APPLY_SECOND: &str = "/opt/mco host apply -f /root/second.yaml --yes";
const ROLL_BACK: &str = "/opt/mco host rollback --yes";

/// A change of a machine, executed once as a whole.
#[derive(Debug)]
pub(crate) struct WholeRun {
    /// The name of the change.
    pub(crate) name: &'static str,
    /// The layout of the machine's disk.
    pub(crate) layout: Layout,
    /// The machine before the change.
    pub(crate) start: SavedMachine,
    /// The command that makes the change.
    pub(crate) command: &'static str,
    /// Files before and after it.
    pub(crate) change: Change,
    /// Writes to the disk.
    pub(crate) log: WriteLog,
    /// Number of writes when the command reported its success.
    pub(crate) reported: usize,
    /// Sizes of the record of writes, from the start of the command to its success.
    pub(crate) sizes: Range<u64>,
}

/// The changes of a machine of each layout.
#[derive(Debug)]
pub(crate) struct Fixture {
    /// Folder of all machines. Removed with the process.
    pub(crate) folder: Arc<VmFolder>,
    /// A first install, an apply and a rollback of each layout. The first three are of each kind, and of
    /// both layouts.
    pub(crate) runs: [WholeRun; 6],
}

/// Number of machines that run at once: more of them would only be slower.
const MACHINES: usize = 2;

static FREE: (Mutex<usize>, Condvar) = (Mutex::new(MACHINES), Condvar::new());

/// The right to run a number of machines at once; given back when dropped.
#[derive(Debug)]
pub(crate) struct Turn(usize);

/// Waits until a test may start this number of machines.
pub(crate) fn turn(machines: usize) -> Turn {
    let free = FREE.0.lock().unwrap_or_else(PoisonError::into_inner);
    let free = FREE.1.wait_while(free, |free| *free < machines);
    *free.unwrap_or_else(PoisonError::into_inner) -= machines;
    Turn(machines)
}

impl Drop for Turn {
    fn drop(&mut self) {
        *FREE.0.lock().unwrap_or_else(PoisonError::into_inner) += self.0;
        FREE.1.notify_all();
    }
}

/// Returns the fixture, which the first call creates. Prints a line and returns `None` if the test
/// cannot run here.
pub(crate) fn fixture() -> Option<&'static Fixture> {
    static FIXTURE: OnceLock<Option<Fixture>> = OnceLock::new();
    FIXTURE.get_or_init(|| prerequisites().map(|found| done(Fixture::new(&found)))).as_ref()
}

/// Restores a machine with `mco` in `/opt` and the manifests in `/root`.
pub(crate) fn machine(
    prerequisites: &VmPrerequisites,
    layout: Layout,
    folder: &Arc<VmFolder>,
) -> anyhow::Result<Vm> {
    let saved = SavedMachine::find(prerequisites, layout)?
        .with_program(folder, Path::new(env!("CARGO_BIN_EXE_mco")))?;
    let mut vm = saved.restore(folder)?;
    vm.ask("mount /opt")?;
    vm.write("/root/first.yaml", configs::first().as_bytes())?;
    vm.write("/root/second.yaml", configs::second().as_bytes())?;
    vm.ask("sync")?;
    Ok(vm)
}

impl Fixture {
    fn new(prerequisites: &VmPrerequisites) -> anyhow::Result<Self> {
        let folder = Arc::new(VmFolder::make(&prerequisites.machines())?);
        let (one, separate) = thread::scope(|scope| {
            let one = scope.spawn(|| whole_runs(prerequisites, Layout::One, &folder));
            let separate = whole_runs(prerequisites, Layout::SeparateBoot, &folder);
            (one.join().expect("no panic"), separate)
        });
        let ([install_one, apply_one, back_one], [install, apply, back]) = (one?, separate?);
        Ok(Self { folder, runs: [install_one, apply, back_one, install, apply_one, back] })
    }
}

/// Executes a first install, an apply and a rollback on a machine with this layout.
fn whole_runs(
    prerequisites: &VmPrerequisites,
    layout: Layout,
    folder: &Arc<VmFolder>,
) -> anyhow::Result<[WholeRun; 3]> {
    let fresh = machine(prerequisites, layout, folder)?.save()?;
    let (install, _) = WholeRun::new("install", &fresh, APPLY_SECOND, folder)?;
    let mut vm = fresh.restore(folder)?;
    vm.ask(APPLY_FIRST)?;
    vm.ask("sync")?;
    let first = vm.save()?;
    let (apply, second) = WholeRun::new("apply", &first, APPLY_SECOND, folder)?;
    let (roll_back, _) = WholeRun::new("rollback", &second, ROLL_BACK, folder)?;
    Ok([install, apply, roll_back])
}

impl WholeRun {
    /// Executes a change. Returns also the machine after it.
    fn new(
        name: &'static str,
        start: &SavedMachine,
        command: &'static str,
        folder: &Arc<VmFolder>,
    ) -> anyhow::Result<(Self, SavedMachine)> {
        let mut vm = start.restore_recorded(folder)?;
        let (clock, quiet) = (Instant::now(), vm.log_size());
        let output = vm.run(command)?;
        let (duration, size) = (clock.elapsed(), vm.log_size());
        anyhow::ensure!(matches!(output.code, 0 | 3), "{name}: {output:?}");
        vm.ask("sync")?;
        let log = vm.log().context("the machine records its writes")?.to_owned();
        let end = vm.save()?;
        let log = WriteLog::read(&log)?;
        let change = Change {
            before: start.disk().tree(&folder.new_path("before"))?,
            after: end.disk().tree(&folder.new_path("after"))?,
            direction: direction(name),
        };
        let reported = log.writes_within(size);
        let writes = log.writes.len();
        let (start, layout) = (start.clone(), start.disk().layout());
        let run = Self { name, layout, start, command, change, log, reported, sizes: quiet..size };
        eprintln!("{run}: {duration:.1?}, {reported} of {writes} writes");
        Ok((run, end))
    }
}

impl fmt::Display for WholeRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.layout {
            Layout::One => "/boot in the root",
            Layout::SeparateBoot => "a separate /boot",
        };
        write!(f, "{} with {place}", self.name)
    }
}
