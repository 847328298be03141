//! The embedded API server as a separate process.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::{ApiServer, Process, command};
use crate::PATIENCE;

/// A running `mco apiserver`.
#[derive(Debug)]
pub struct Embedded {
    process: Process,
    url: String,
    kubeconfig: PathBuf,
}

impl Embedded {
    /// Starts the API server of the binary `mco` on a free port. `dir` holds its state and its log.
    pub fn start(mco: &Path, dir: &Path) -> anyhow::Result<Self> {
        let mut command = command(mco);
        command.args(["apiserver", "--listen", "127.0.0.1:0", "--dir"]).arg(dir.join("state"));
        let mut process =
            Process::start("mco apiserver", &mut command, &dir.join("apiserver.log"))?;
        let log = dir.join("apiserver.log");
        let mut url = None;
        process.wait_ready(PATIENCE, || {
            url = url_from_log(&log);
            url.is_some()
        })?;
        let url = url.context("mco apiserver did not print its address")?;
        Ok(Self { process, url, kubeconfig: dir.join("state/kubeconfig") })
    }

    /// Returns the process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// Parses the server's URL from its log, once the log is complete.
#[expect(clippy::disallowed_methods, reason = "reads the program's output")]
fn url_from_log(log: &Path) -> Option<String> {
    let text = std::fs::read_to_string(log).ok()?;
    let (url, rest) = text.strip_prefix("listening on ")?.split_once('\n')?;
    rest.contains('\n').then(|| url.to_owned())
}

impl ApiServer for Embedded {
    fn url(&self) -> &str {
        &self.url
    }

    fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }
}
