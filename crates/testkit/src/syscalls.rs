//! The calls of a program that change files, and the states that a power cut can leave under the
//! weakest promises of a file system: a file is durable once it is synced, and a name once its
//! directory is. ext4 promises more, which hides a missing sync.

#![expect(clippy::disallowed_methods, reason = "runs strace and reads its output")]

mod model;
mod parse;

use std::{fs, path::Path, process::Command};

use anyhow::Context as _;

pub use self::model::Model;
pub use self::parse::Call;

/// Calls that change files or make changes durable.
const CALLS: &str = "trace=openat,openat2,write,pwrite64,fsync,fdatasync,rename,renameat,renameat2,\
                     unlink,unlinkat,rmdir,symlink,symlinkat,mkdir,mkdirat,fchmod,fchown,ftruncate,\
                     chmod,fchmodat,link,linkat,copy_file_range,sendfile,syncfs,sync";

/// Runs a program under strace and returns its calls in `root`, in their order. `log` is a new file.
/// Fails if the exit code is not one of `accepted`.
pub fn record(
    program: &Path,
    words: &[&str],
    root: &Path,
    log: &Path,
    accepted: &[i32],
) -> anyhow::Result<Vec<Call>> {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-y", "-x", "-s", "16777216", "-e", CALLS, "-o"]).arg(log);
    let output = strace.arg("--").arg(program).args(words).output();
    let output = output.context("failed to start strace")?;
    let accepts = output.status.code().is_some_and(|code| accepted.contains(&code));
    anyhow::ensure!(accepts, "{words:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read(log).with_context(|| format!("failed to read {}", log.display()))?;
    parse::calls(&String::from_utf8_lossy(&text), &root.display().to_string())
}

/// Returns true if strace is installed.
#[must_use]
pub fn is_available() -> bool {
    Command::new("strace").arg("-V").output().is_ok_and(|output| output.status.success())
}
