//! Traces a program and lists its functions in the order in which they first ran.
//!
//! Each function begins with a breakpoint that is removed when it is first hit, so that the program
//! soon runs at full speed.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    os::unix::fs::FileExt as _,
    path::Path,
    process::{Command, Stdio},
    thread,
};

use anyhow::{Context, bail};
use nix::{
    errno::Errno,
    libc::PTRACE_EVENT_EXEC,
    sys::{
        ptrace::{self, Options},
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

/// The breakpoint instruction of x86-64.
const BREAKPOINT: u8 = 0xcc;

/// Runs `program` with the arguments `words` until standard input ends, and writes the functions
/// that ran to `list`.
pub fn trace(list: &Path, program: &Path, words: &[&str]) -> anyhow::Result<()> {
    if !cfg!(target_arch = "x86_64") {
        bail!("functions can be traced on x86-64 only");
    }
    let program = fs::canonicalize(program).with_context(|| program.display().to_string())?;
    let functions = functions(&program)?;
    // The child stops before it executes the program, so that no function is missed.
    let script = "kill -STOP $$; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(&program).args(words).stdin(Stdio::null());
    let child = Pid::from_raw(command.spawn()?.id().try_into()?);
    waitpid(child, Some(WaitPidFlag::WUNTRACED))?;
    ptrace::seize(child, Options::PTRACE_O_TRACECLONE | Options::PTRACE_O_TRACEEXEC)?;
    kill(child, Signal::SIGCONT)?;
    thread::spawn(move || {
        // An error ends the input too, and a program that has exited needs no signal.
        drop(io::copy(&mut io::stdin(), &mut io::sink()));
        let _ = kill(child, Signal::SIGTERM);
    });
    let mut met = String::new();
    for name in follow(child, &program, &functions)? {
        met.extend([name, "\n"]);
    }
    fs::write(list, met).with_context(|| list.display().to_string())
}

/// Returns the functions of an unstripped program by address. `nm` comes with the C compiler.
fn functions(program: &Path) -> anyhow::Result<BTreeMap<u64, String>> {
    let output = Command::new("nm").arg(program).output().context("nm")?;
    let text = String::from_utf8(output.stdout).context("nm")?;
    let functions: BTreeMap<u64, String> = text
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
            let is_code = matches!(kind, "t" | "T" | "w" | "W");
            let address = u64::from_str_radix(address, 16).ok()?;
            is_code.then(|| (address, name.to_owned()))
        })
        .collect();
    if functions.len() < 100 {
        bail!("{} has no symbols: it must not be stripped", program.display());
    }
    Ok(functions)
}

fn follow<'f>(
    child: Pid,
    program: &Path,
    functions: &'f BTreeMap<u64, String>,
) -> anyhow::Result<Vec<&'f str>> {
    let mut met = Vec::new();
    let mut traced: Option<TracedProcess<'f>> = None;
    loop {
        let (thread, signal) = match waitpid(None, Some(WaitPidFlag::__WALL))? {
            WaitStatus::Exited(thread, _) | WaitStatus::Signaled(thread, ..) if thread == child => {
                return Ok(met);
            }
            WaitStatus::Exited(..)
            | WaitStatus::Signaled(..)
            | WaitStatus::Continued(_)
            | WaitStatus::StillAlive => continue,
            WaitStatus::PtraceEvent(thread, _, PTRACE_EVENT_EXEC) => {
                // A process may execute a program again.
                traced = Some(TracedProcess::new(child, program, functions)?);
                (thread, None)
            }
            WaitStatus::PtraceEvent(thread, ..) | WaitStatus::PtraceSyscall(thread) => {
                (thread, None)
            }
            WaitStatus::Stopped(thread, Signal::SIGTRAP) => {
                let stop = traced.as_ref().map(|traced| traced.stop(thread)).transpose()?;
                match stop {
                    Some(StopReason::First(name)) => met.push(name),
                    Some(StopReason::Again | StopReason::Foreign) | None => {}
                }
                let is_theirs = matches!(stop, Some(StopReason::Foreign) | None);
                (thread, is_theirs.then_some(Signal::SIGTRAP))
            }
            WaitStatus::Stopped(thread, signal) => (thread, Some(signal)),
        };
        match ptrace::cont(thread, signal) {
            // The thread was killed in between; the next wait reports it.
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The reason for which a thread stopped.
enum StopReason<'f> {
    /// A function that has not run before.
    First(&'f str),
    /// A function that another thread ran a moment before.
    Again,
    /// A breakpoint of the program itself.
    Foreign,
}

/// A process with a breakpoint at every function that has not run yet.
struct TracedProcess<'f> {
    memory: File,
    /// First byte and name of each function, by its address in memory.
    functions: BTreeMap<u64, (u8, &'f str)>,
}

impl<'f> TracedProcess<'f> {
    fn new(child: Pid, program: &Path, names: &'f BTreeMap<u64, String>) -> anyhow::Result<Self> {
        let maps = fs::read_to_string(format!("/proc/{child}/maps"))?;
        let mut own = maps.lines().filter(|line| line.ends_with(&program.display().to_string()));
        let base = own.next().and_then(|line| line.split('-').next()).context("no program")?;
        let base = u64::from_str_radix(base, 16)?;
        let memory = File::options().read(true).write(true).open(format!("/proc/{child}/mem"))?;
        let mut functions = BTreeMap::new();
        for (address, name) in names {
            let address = base + address;
            let mut first = [0];
            memory.read_exact_at(&mut first, address)?;
            memory.write_all_at(&[BREAKPOINT], address)?;
            functions.insert(address, (first[0], name.as_str()));
        }
        Ok(Self { memory, functions })
    }

    /// Returns the reason for which the thread stopped, and undoes a stop at one of the
    /// breakpoints.
    #[cfg(target_arch = "x86_64")]
    fn stop(&self, thread: Pid) -> anyhow::Result<StopReason<'f>> {
        let mut registers = match ptrace::getregs(thread) {
            Err(Errno::ESRCH) => return Ok(StopReason::Again),
            registers => registers?,
        };
        let address = registers.rip - 1;
        let Some(&(first, name)) = self.functions.get(&address) else {
            return Ok(StopReason::Foreign);
        };
        let mut now = [0];
        self.memory.read_exact_at(&mut now, address)?;
        self.memory.write_all_at(&[first], address)?;
        registers.rip = address;
        ptrace::setregs(thread, registers)?;
        Ok(if now == [BREAKPOINT] { StopReason::First(name) } else { StopReason::Again })
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn stop(&self, _: Pid) -> anyhow::Result<StopReason<'f>> {
        Ok(StopReason::Foreign)
    }
}
