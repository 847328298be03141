//! Which functions of a program run, in the order in which they first do.
//!
//! Every function begins with a breakpoint that is taken away when it is first met, so that the program
//! soon runs as fast as ever.

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

/// The instruction that stops a process, on x86-64.
const BREAKPOINT: u8 = 0xcc;

/// Runs `program` with `words` until our own input ends, and writes the functions that ran to `list`.
pub fn trace(list: &Path, program: &Path, words: &[&str]) -> anyhow::Result<()> {
    if !cfg!(target_arch = "x86_64") {
        bail!("functions can be watched on x86-64 only");
    }
    let program = fs::canonicalize(program).with_context(|| program.display().to_string())?;
    let functions = functions(&program)?;
    // It stops before it becomes the program, so that nothing of that is missed.
    let script = "kill -STOP $$; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(&program).args(words).stdin(Stdio::null());
    let child = Pid::from_raw(command.spawn()?.id().try_into()?);
    waitpid(child, Some(WaitPidFlag::WUNTRACED))?;
    ptrace::seize(child, Options::PTRACE_O_TRACECLONE | Options::PTRACE_O_TRACEEXEC)?;
    kill(child, Signal::SIGCONT)?;
    thread::spawn(move || {
        // However the input ends, it has ended; and a program that has ended needs no signal.
        drop(io::copy(&mut io::stdin(), &mut io::sink()));
        let _ = kill(child, Signal::SIGTERM);
    });
    let mut met = String::new();
    for name in follow(child, &program, &functions)? {
        met.extend([name, "\n"]);
    }
    fs::write(list, met).with_context(|| list.display().to_string())
}

/// The functions of a program that has its names still, by address. `nm` comes with the C compiler.
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
        bail!("{} has no names of functions: it must not be stripped", program.display());
    }
    Ok(functions)
}

fn follow<'f>(
    child: Pid,
    program: &Path,
    functions: &'f BTreeMap<u64, String>,
) -> anyhow::Result<Vec<&'f str>> {
    let mut met = Vec::new();
    let mut armed: Option<Armed<'f>> = None;
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
                // It may do so again: our processes become themselves with other settings.
                armed = Some(Armed::new(child, program, functions)?);
                (thread, None)
            }
            WaitStatus::PtraceEvent(thread, ..) | WaitStatus::PtraceSyscall(thread) => {
                (thread, None)
            }
            WaitStatus::Stopped(thread, Signal::SIGTRAP) => {
                let stop = armed.as_ref().map(|armed| armed.stop(thread)).transpose()?;
                match stop {
                    Some(Stop::First(name)) => met.push(name),
                    Some(Stop::Again | Stop::Theirs) | None => {}
                }
                let is_theirs = matches!(stop, Some(Stop::Theirs) | None);
                (thread, is_theirs.then_some(Signal::SIGTRAP))
            }
            WaitStatus::Stopped(thread, signal) => (thread, Some(signal)),
        };
        match ptrace::cont(thread, signal) {
            // It was ended meanwhile, which we hear of next.
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Why a thread has stopped.
enum Stop<'f> {
    /// At a function that nobody has run yet.
    First(&'f str),
    /// At one that another thread ran a moment before.
    Again,
    /// At a breakpoint that is not ours.
    Theirs,
}

/// A process with a breakpoint at every function that it has not run yet.
struct Armed<'f> {
    memory: File,
    /// Each function's first byte and name, by its address in memory.
    functions: BTreeMap<u64, (u8, &'f str)>,
}

impl<'f> Armed<'f> {
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

    /// Why the thread has stopped; if that is our doing, it then goes on as if there had been no stop.
    #[cfg(target_arch = "x86_64")]
    fn stop(&self, thread: Pid) -> anyhow::Result<Stop<'f>> {
        let mut registers = match ptrace::getregs(thread) {
            Err(Errno::ESRCH) => return Ok(Stop::Again),
            registers => registers?,
        };
        let address = registers.rip - 1;
        let Some(&(first, name)) = self.functions.get(&address) else { return Ok(Stop::Theirs) };
        let mut now = [0];
        self.memory.read_exact_at(&mut now, address)?;
        self.memory.write_all_at(&[first], address)?;
        registers.rip = address;
        ptrace::setregs(thread, registers)?;
        Ok(if now == [BREAKPOINT] { Stop::First(name) } else { Stop::Again })
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn stop(&self, _: Pid) -> anyhow::Result<Stop<'f>> {
        Ok(Stop::Theirs)
    }
}
