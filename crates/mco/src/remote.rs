//! Connection of the commands to an API server, and the resolution of kind names.

pub(crate) mod kinds;
mod locate;
pub(crate) mod table;

use std::{
    future::Future,
    path::{Path, PathBuf},
};

use kube::Client;
use mco_cluster::client::{self, ChoiceError, ChosenCluster, ClusterChoice, Environment, Options};

use self::locate::ClusterSource;
use crate::{error::error_with_hint, print};

/// Default state directory of `mco up`.
pub(crate) const DEFAULT_DIR: &str = ".mco";

/// The cluster to connect to
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct Connection {
    /// Kubeconfig of the cluster. If omitted: the files in KUBECONFIG, the cluster of `mco up` in .mco,
    /// ~/.kube/config, or the cluster of this pod
    #[arg(long, value_name = "FILE", conflicts_with = "dir")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig to use
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Cluster of the kubeconfig to use, with the user of the context
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// State directory of `mco up`, to use its cluster
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Connection {
    /// Returns a client of the cluster.
    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        Ok(self.connect().await?.client)
    }

    /// Returns a client for a command that changes objects, and prints the cluster.
    pub(crate) async fn writer(&self) -> anyhow::Result<Client> {
        let ChosenCluster { client, context, server } = self.connect().await?;
        let server = server.trim_end_matches('/');
        if context.is_empty() {
            print::note(&format!("writing to {server}"));
        } else {
            print::note(&format!("writing to context {context} at {server}"));
        }
        Ok(client)
    }

    /// Returns true if a flag names the cluster.
    pub(crate) fn is_given(&self) -> bool {
        let Self { kubeconfig, context, cluster, dir } = self;
        kubeconfig.is_some() || context.is_some() || cluster.is_some() || dir.is_some()
    }

    async fn connect(&self) -> anyhow::Result<ChosenCluster> {
        let environment = Environment::read();
        let source = locate::locate(self, &environment, Path::exists);
        let source = source.ok_or_else(|| {
            let dir = self.dir.as_deref().unwrap_or(Path::new(DEFAULT_DIR));
            error_with_hint(
                format!("no cluster in {}", dir.display()),
                "start one with `mco up`, or name another with --kubeconfig FILE or --dir DIR",
            )
        })?;
        let options = Options::default();
        let chosen = match source {
            ClusterSource::Pod => client::connect_in_pod(&options).await,
            ClusterSource::Files(files) => {
                let (context, cluster) = (self.context.clone(), self.cluster.clone());
                ClusterChoice { files, context, cluster }.connect(&options).await
            }
        };
        chosen.map_err(choice_error)
    }
}

/// Adds the entries that exist to the error of a wrong choice.
fn choice_error(error: ChoiceError) -> anyhow::Error {
    let hint = match &error {
        ChoiceError::NoContext { known } if !known.is_empty() => {
            format!("name one with --context: {}", known.join(", "))
        }
        ChoiceError::Unknown { kind, known, .. } if !known.is_empty() => {
            format!("the kubeconfig has the {kind}s {}", known.join(", "))
        }
        ChoiceError::Read { .. } => {
            "start a cluster with `mco up`, or name another with --kubeconfig FILE".to_owned()
        }
        ChoiceError::NoContext { .. }
        | ChoiceError::Unknown { .. }
        | ChoiceError::Parse { .. }
        | ChoiceError::Connect(_) => return error.into(),
    };
    error_with_hint(mco_cluster::report::chain(&error), hint)
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
