//! Child processes that do not outlive the test that started them.

#![expect(
    clippy::disallowed_methods,
    reason = "starts the programs under test, and reads the clock while it waits"
)]

use std::{
    ffi::OsStr,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};

/// Interval between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Returns a command that the kernel kills when the calling thread ends.
///
/// The thread of a test ends with the test. A process that must live longer has to be started by a
/// thread that does.
#[must_use]
pub fn command(program: impl AsRef<OsStr>) -> Command {
    // Setting the parent-death signal between fork and exec would take `unsafe` code; `setpriv`
    // does it instead.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// A running program. Killed when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` without input. Its output is appended to the file `log`.
    pub fn start(name: &str, command: &mut Command, log: &Path) -> anyhow::Result<Self> {
        let open = || -> io::Result<(File, File)> {
            let file = File::options().create(true).append(true).open(log)?;
            Ok((file.try_clone()?, file))
        };
        let (out, err) = open().with_context(|| format!("failed to open {}", log.display()))?;
        let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn();
        let child = child.with_context(|| format!("failed to start {name}"))?;
        Ok(Self { name: name.to_owned(), child, log: log.to_owned() })
    }

    /// Returns the process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns everything that the program wrote so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        kill_process(Pid::from_child(&self.child), signal)
            .with_context(|| format!("failed to send {} a signal", self.name))
    }

    /// Returns the exit status if the process has ended.
    pub fn try_wait(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("failed to get the status of {}", self.name))
    }

    /// Waits until the process ends by itself.
    pub fn wait(&mut self, patience: Duration) -> anyhow::Result<ExitStatus> {
        let what = format!("{} to end", self.name);
        wait(&what, patience, || self.child.try_wait().ok().flatten())
    }

    /// Kills the process with SIGKILL.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        // Fails only if the process has already ended.
        drop(self.child.kill());
        self.child.wait().with_context(|| format!("failed to wait for {}", self.name)).map(drop)
    }

    /// Polls `look` until it returns true. Fails early if the process ends first.
    pub fn wait_ready(
        &mut self,
        patience: Duration,
        mut look: impl FnMut() -> bool,
    ) -> anyhow::Result<()> {
        let what = format!("{} to be ready", self.name);
        let mut early = None;
        let seen = wait(&what, patience, || {
            early = self.child.try_wait().ok().flatten();
            (early.is_some() || look()).then_some(())
        });
        if let Some(status) = early {
            bail!("{} ended during startup ({status}):\n{}", self.name, self.log_tail());
        }
        seen.with_context(|| self.log_tail())
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines.get(lines.len().saturating_sub(20)..).unwrap_or_default().join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.kill());
    }
}

/// Polls `look` until it returns a value, or times out.
pub fn wait<T>(
    what: &str,
    patience: Duration,
    mut look: impl FnMut() -> Option<T>,
) -> anyhow::Result<T> {
    let start = Instant::now();
    loop {
        if let Some(seen) = look() {
            return Ok(seen);
        }
        if start.elapsed() > patience {
            bail!("timed out after {patience:?} waiting for {what}");
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
