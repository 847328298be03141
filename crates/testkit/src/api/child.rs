//! Child processes that do not outlive the test that started them.

#![expect(
    clippy::disallowed_methods,
    reason = "starts the programs that a test is about, and looks at the clock while it waits"
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

/// Time between two looks at something that has no way to tell.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A command that the kernel kills when the calling thread ends, however it ends.
///
/// The thread of a test ends with the test. What is to live longer must be started by a thread that
/// does.
#[must_use]
pub fn command(program: impl AsRef<OsStr>) -> Command {
    // Between fork and exec nobody but `unsafe` code could ask for this in our place.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// A running program; killed when it goes out of scope.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` without input, with everything it says added to the file `log`.
    pub fn start(name: &str, command: &mut Command, log: &Path) -> anyhow::Result<Self> {
        let open = || -> io::Result<(File, File)> {
            let file = File::options().create(true).append(true).open(log)?;
            Ok((file.try_clone()?, file))
        };
        let (out, err) = open().with_context(|| format!("cannot open {}", log.display()))?;
        let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn();
        let child = child.with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name: name.to_owned(), child, log: log.to_owned() })
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Everything it has said.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        kill_process(Pid::from_child(&self.child), signal)
            .with_context(|| format!("cannot send {} a signal", self.name))
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("cannot look after {}", self.name))
    }

    /// Waits until it has ended by itself.
    pub fn wait(&mut self, patience: Duration) -> anyhow::Result<ExitStatus> {
        let what = format!("{} to end", self.name);
        wait(&what, patience, || self.child.try_wait().ok().flatten())
    }

    /// Ends it at once, without giving it a chance to tidy up.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        // Fails only where it has ended already.
        drop(self.child.kill());
        self.child.wait().with_context(|| format!("cannot wait for {}", self.name)).map(drop)
    }

    /// Waits until `look` sees that it is ready; fails early if it ends instead.
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
            bail!("{} ended while it started ({status}):\n{}", self.name, self.last_words());
        }
        seen.with_context(|| self.last_words())
    }

    fn last_words(&self) -> String {
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

/// Looks again and again until there is something to see.
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
            bail!("waited {patience:?} in vain for {what}");
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}
