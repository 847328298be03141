//! The control connection of QEMU.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    time::Duration,
};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

/// Timeout of a single answer.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A connection to QEMU.
#[derive(Debug)]
pub(super) struct Qmp {
    reader: BufReader<UnixStream>,
}

impl Qmp {
    /// Takes over a connected socket.
    pub(super) fn open(stream: UnixStream) -> anyhow::Result<Self> {
        stream.set_read_timeout(Some(TIMEOUT)).context("failed to set a timeout")?;
        let mut qmp = Self { reader: BufReader::new(stream) };
        // The greeting.
        qmp.line()?;
        qmp.execute("qmp_capabilities", &json!({}))?;
        Ok(qmp)
    }

    /// Executes a command and returns its result. Events before it are skipped.
    pub(super) fn execute(&mut self, command: &str, arguments: &Value) -> anyhow::Result<Value> {
        let request = json!({ "execute": command, "arguments": arguments });
        let mut stream = self.reader.get_ref();
        writeln!(stream, "{request}").with_context(|| format!("failed to send {command}"))?;
        loop {
            let answer = self.line().with_context(|| format!("no answer to {command}"))?;
            if let Some(result) = answer.get("return") {
                return Ok(result.clone());
            }
            if let Some(error) = answer.get("error") {
                bail!("QEMU refused {command}: {error}");
            }
        }
    }

    fn line(&mut self) -> anyhow::Result<Value> {
        let mut line = String::new();
        let read = self.reader.read_line(&mut line).context("failed to read from QEMU")?;
        anyhow::ensure!(read > 0, "QEMU closed its control connection");
        serde_json::from_str(&line).with_context(|| format!("unexpected answer of QEMU: {line}"))
    }
}
