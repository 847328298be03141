//! The embedded API server, as a process of its own.

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
    /// Starts the API server of the binary `mco` on a free port; `dir` keeps its state and its log.
    pub fn start(mco: &Path, dir: &Path) -> anyhow::Result<Self> {
        let mut command = command(mco);
        command.args(["apiserver", "--listen", "127.0.0.1:0", "--dir"]).arg(dir.join("state"));
        let mut process =
            Process::start("mco apiserver", &mut command, &dir.join("apiserver.log"))?;
        let log = dir.join("apiserver.log");
        let mut url = None;
        process.wait_ready(PATIENCE, || {
            url = said(&log);
            url.is_some()
        })?;
        let url = url.context("mco apiserver does not say where it listens")?;
        Ok(Self { process, url, kubeconfig: dir.join("state/kubeconfig") })
    }

    /// The process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// Where it says that it listens, once it has said everything.
#[expect(clippy::disallowed_methods, reason = "reads what the program has said")]
fn said(log: &Path) -> Option<String> {
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
