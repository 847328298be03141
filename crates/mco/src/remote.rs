//! Connection of the commands to an API server, and the resolution of kind names.

pub(crate) mod installation;
pub(crate) mod kinds;
mod locate;
pub(crate) mod runner;
pub(crate) mod table;

use std::{
    future::Future,
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::Node;
use kube::{Client, api::ListParams};
use mco_cluster::client::{self, ChoiceError, ChosenCluster, ClusterChoice, Environment, Options};
use mco_core::lint::suggest;

use self::locate::ClusterSource;
use crate::{error::error_with_hint, print};

/// Default state directory of `mco up`.
pub(crate) const DEFAULT_DIR: &str = ".mco";

/// Directory with the disks of the nodes, below the state directory of `mco up`.
pub(crate) const NODES: &str = "nodes";

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

/// The access that a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    /// The user is told which cluster is changed.
    Write,
}

impl Access {
    /// Returns the access of a command that changes objects, or shows what it would change.
    pub(crate) fn of_dry_run(is_dry_run: bool) -> Self {
        if is_dry_run { Self::Read } else { Self::Write }
    }
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

    /// Returns a client for a command that changes objects unless it is a dry run.
    pub(crate) async fn client_for(&self, access: Access) -> anyhow::Result<Client> {
        match access {
            Access::Read => self.client().await,
            Access::Write => self.writer().await,
        }
    }

    /// Like [`Self::client_for`]. The client is that of the installation in the cluster.
    pub(crate) async fn installed(&self, access: Access) -> anyhow::Result<Client> {
        installation::enter(self.client_for(access).await?).await
    }

    /// Returns true if a flag names the cluster.
    pub(crate) fn is_given(&self) -> bool {
        let Self { kubeconfig, context, cluster, dir } = self;
        kubeconfig.is_some() || context.is_some() || cluster.is_some() || dir.is_some()
    }

    /// Returns true if flags, the environment or a default file name a cluster, reachable or not.
    pub(crate) fn has_cluster(&self) -> bool {
        locate::locate(self, &Environment::read(), Path::exists).is_some()
    }

    /// Returns the root directory of a node whose disk is on this machine: a node of `mco up`.
    pub(crate) fn disk(&self, node: &str) -> Option<PathBuf> {
        let source = locate::locate(self, &Environment::read(), Path::exists)?;
        let ClusterSource::Files(files) = source else { return None };
        let [file] = files.as_slice() else { return None };
        let disk = file.parent()?.join(NODES).join(node);
        disk.is_dir().then_some(disk)
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
pub(crate) fn choice_error(error: ChoiceError) -> anyhow::Error {
    let hint = match &error {
        ChoiceError::NoContext { known } if !known.is_empty() => {
            format!("name one with --context: {}", known.join(", "))
        }
        ChoiceError::Unknown { kind, known, .. } if !known.is_empty() => {
            format!("the kubeconfig has the {kind}s {}", known.join(", "))
        }
        ChoiceError::Read { .. } | ChoiceError::NoContext { .. } => {
            "start a cluster with `mco up`, or name another with --kubeconfig FILE".to_owned()
        }
        ChoiceError::Unknown { .. } | ChoiceError::Parse { .. } | ChoiceError::Connect(_) => {
            return error.into();
        }
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

/// Converts the error of a call, with a hint if it says that the cluster is the wrong one: unreachable,
/// without our kinds, or with other credentials.
pub(crate) fn call_error(error: kube::Error) -> anyhow::Error {
    let refused = if let kube::Error::Api(status) = &error {
        Some((status.code, status.message.clone()))
    } else {
        None
    };
    let is_unreachable = matches!(error, kube::Error::HyperError(_) | kube::Error::Service(_));
    let error = mco_cluster::CallError::from(error);
    let text = mco_cluster::report::chain(&error);
    match refused {
        None if is_unreachable && text.contains("certificate") => error_with_hint(
            format!("the API server is not the one of the kubeconfig: {text}"),
            "its certificate and the CA or the client certificate in the kubeconfig do not match, or one \
             of them has expired; fetch the kubeconfig again",
        ),
        None if is_unreachable => error_with_hint(
            format!("the API server is unreachable: {text}"),
            "start a cluster with `mco up`, or name another with --kubeconfig FILE",
        ),
        Some((404, message)) if NO_KIND.iter().any(|part| message.contains(part)) => {
            error_with_hint(
                "the cluster does not have the kinds of mco",
                "`mco doctor` says what is missing; name another cluster with --context or --kubeconfig",
            )
        }
        Some((401, _)) => error_with_hint(
            format!("the API server does not accept the credentials of the kubeconfig: {text}"),
            "fetch the kubeconfig again, or choose another user with --context",
        ),
        _ => error.into(),
    }
}

/// Parts of the answers to a request for a kind that the API server does not serve; the second one is
/// kube-apiserver's for a group.
const NO_KIND: [&str; 2] = ["could not find the requested resource", "404 page not found"];

/// Fetches a node; the error for an unknown one names the node that is meant.
pub(crate) async fn node(client: &Client, name: &str) -> anyhow::Result<Node> {
    let nodes = mco_cluster::Api::<Node>::all(client.clone());
    if let Some(node) = nodes.get_opt(name).await.map_err(call_error)? {
        return Ok(node);
    }
    let all = nodes.list(&ListParams::default()).await.map_err(call_error)?;
    let names: Vec<String> = all.items.into_iter().filter_map(|it| it.metadata.name).collect();
    Err(unknown_node(name, &names))
}

/// Returns the error for a node that does not exist.
pub(crate) fn unknown_node(name: &str, names: &[String]) -> anyhow::Error {
    let hint = match suggest::closest(name, names.iter().map(String::as_str)) {
        Some(meant) => format!("did you mean {meant}?"),
        None => "`mco get node` lists them".to_owned(),
    };
    error_with_hint(format!("unknown node {name:?}"), hint)
}
