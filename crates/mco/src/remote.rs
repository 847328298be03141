//! Commands that talk to an API server: which one, and how a person names things in it.

pub(crate) mod kinds;
pub(crate) mod table;

use std::{
    future::Future,
    path::{Path, PathBuf},
};

use kube::Client;
use mco_cluster::client;

use crate::fault::Advice;

/// Where `mco up` keeps everything unless told otherwise.
pub(crate) const DIR: &str = ".mco";

/// Which cluster to talk to
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Connection {
    /// Kubeconfig of the cluster; without it, the cluster that `mco up` runs in --dir
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Directory of `mco up`
    #[arg(long, default_value = DIR, value_name = "DIR")]
    dir: PathBuf,
}

impl Connection {
    /// A client of the cluster.
    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        let of_up = kubeconfig(&self.dir);
        let file = match &self.kubeconfig {
            Some(file) if !file.as_os_str().is_empty() => file,
            Some(_) | None if of_up.exists() => &of_up,
            Some(_) | None => {
                return Err(Advice::error(
                    format!("there is no cluster in {}", self.dir.display()),
                    "start one with `mco up`, or name another with --kubeconfig FILE or --dir DIR",
                ));
            }
        };
        Ok(client::connect(Some(file)).await?)
    }
}

/// Where `mco up` puts the kubeconfig.
pub(crate) fn kubeconfig(dir: &Path) -> PathBuf {
    dir.join("kubeconfig")
}

/// Runs what a command does against the API server.
pub(crate) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work)
}

/// What a failed call means for a person.
pub(crate) fn explain(error: kube::Error) -> anyhow::Error {
    let unreachable = matches!(error, kube::Error::HyperError(_) | kube::Error::Service(_));
    let error = mco_cluster::CallError::from(error);
    if unreachable {
        return Advice::error(
            format!("the API server does not answer: {}", mco_cluster::report::chain(&error)),
            "is it running? `mco up` starts one; --kubeconfig names another",
        );
    }
    error.into()
}
