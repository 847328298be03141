//! Connection of the commands to an API server, and the resolution of kind names.

pub(crate) mod kinds;
pub(crate) mod table;

use std::{
    future::Future,
    path::{Path, PathBuf},
};

use kube::Client;
use mco_cluster::client;

use crate::error::error_with_hint;

/// Default state directory of `mco up`.
pub(crate) const DEFAULT_DIR: &str = ".mco";

/// The cluster to connect to
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Connection {
    /// Kubeconfig of the cluster; the cluster of `mco up` in --dir if omitted
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// State directory of `mco up`
    #[arg(long, default_value = DEFAULT_DIR, value_name = "DIR")]
    dir: PathBuf,
}

impl Connection {
    /// Returns a client of the cluster.
    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        let up_file = kubeconfig(&self.dir);
        let file = match &self.kubeconfig {
            Some(file) if !file.as_os_str().is_empty() => file,
            Some(_) | None if up_file.exists() => &up_file,
            Some(_) | None => {
                return Err(error_with_hint(
                    format!("no cluster in {}", self.dir.display()),
                    "start one with `mco up`, or name another with --kubeconfig FILE or --dir DIR",
                ));
            }
        };
        Ok(client::connect(Some(file)).await?)
    }
}

/// Returns the path of the kubeconfig that `mco up` writes.
pub(crate) fn kubeconfig(dir: &Path) -> PathBuf {
    dir.join("kubeconfig")
}

/// Runs a future on a current-thread runtime.
pub(crate) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work)
}

/// Converts the error of a call, with a hint if the API server is unreachable.
pub(crate) fn call_error(error: kube::Error) -> anyhow::Error {
    let unreachable = matches!(error, kube::Error::HyperError(_) | kube::Error::Service(_));
    let error = mco_cluster::CallError::from(error);
    if unreachable {
        return error_with_hint(
            format!("the API server is unreachable: {}", mco_cluster::report::chain(&error)),
            "start a cluster with `mco up`, or name another with --kubeconfig FILE",
        );
    }
    error.into()
}
