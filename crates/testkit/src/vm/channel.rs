//! The serial port through which a machine executes commands.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

/// Longest wait for a single read, so that the caller's timeout is noticed.
const READ_TIMEOUT: Duration = Duration::from_millis(200);

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandOutput {
    /// Exit code.
    pub code: i32,
    /// Standard output and standard error.
    pub text: String,
}

/// The connection to the agent in the machine.
#[derive(Debug)]
pub(super) struct Channel {
    stream: UnixStream,
    /// Bytes that were received but not yet returned.
    pending: Vec<u8>,
    /// Number of the last command.
    number: u32,
}

impl Channel {
    /// Takes over a connected socket.
    pub(super) fn open(stream: UnixStream) -> Self {
        // Distinguishes answers to a connection before the machine was saved.
        Self { stream, pending: Vec::new(), number: fastrand::u32(1..1_000_000_000) }
    }

    /// Starts a command of one line.
    pub(super) fn start(&mut self, command: &str) -> anyhow::Result<()> {
        anyhow::ensure!(!command.contains('\n'), "a command has one line: {command}");
        self.number += 1;
        let line = format!("{} {command}\n", self.number);
        let sent = self.stream.write_all(line.as_bytes());
        sent.with_context(|| format!("failed to send {command} to the machine"))
    }

    /// Reads until the command ends, or until `stop` returns true for a line of its output. Returns
    /// the exit code only in the first case.
    pub(super) fn read(
        &mut self,
        timeout: Duration,
        mut stop: impl FnMut(&str) -> bool,
    ) -> anyhow::Result<(Option<i32>, String)> {
        let mut is_stopped = false;
        let read = self.read_until(timeout, |line| {
            is_stopped = stop(line);
            is_stopped
        })?;
        if read.0.is_none() && !is_stopped {
            bail!("timed out after {timeout:?} waiting for the machine; its output:\n{}", read.1);
        }
        Ok(read)
    }

    /// Reads until the command ends, but not longer than `limit`.
    pub(super) fn read_for(&mut self, limit: Duration) -> anyhow::Result<(Option<i32>, String)> {
        self.read_until(limit, |_| false)
    }

    fn read_until(
        &mut self,
        limit: Duration,
        mut stop: impl FnMut(&str) -> bool,
    ) -> anyhow::Result<(Option<i32>, String)> {
        let start = Instant::now();
        let (mark, mut text) = (format!("@@{} ", self.number), String::new());
        loop {
            while let Some(line) = self.take_line() {
                if let Some(code) = line.strip_prefix(&mark) {
                    let code = code.trim().parse().context("the exit code is no number")?;
                    return Ok((Some(code), text));
                }
                text.push_str(&line);
                text.push('\n');
                if stop(&line) {
                    return Ok((None, text));
                }
            }
            let Some(left) = limit.checked_sub(start.elapsed()).filter(|left| !left.is_zero())
            else {
                return Ok((None, text));
            };
            self.stream
                .set_read_timeout(Some(left.min(READ_TIMEOUT)))
                .context("failed to set a timeout")?;
            self.fill().with_context(|| format!("the machine is gone; its output:\n{text}"))?;
        }
    }

    fn fill(&mut self) -> anyhow::Result<()> {
        let mut buffer = [0; 4096];
        match self.stream.read(&mut buffer) {
            Ok(0) => bail!("the connection was closed"),
            Ok(read) => self.pending.extend(buffer.get(..read).unwrap_or_default()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error).context("failed to read"),
        }
        Ok(())
    }

    fn take_line(&mut self) -> Option<String> {
        let end = self.pending.iter().position(|&byte| byte == b'\n')?;
        let line: Vec<u8> = self.pending.drain(..=end).collect();
        let line = line.strip_suffix(b"\n").unwrap_or(&line);
        Some(String::from_utf8_lossy(line).into_owned())
    }
}
