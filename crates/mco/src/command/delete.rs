//! `mco delete`: deletes objects of a cluster.

use std::{io::Write as _, process::ExitCode};

use kube::api::DeleteParams;

use super::apply::api;
use crate::{
    error::error_with_hint,
    print::Screen,
    remote::{self, Connection, kinds::Kinds},
};

/// Delete objects of a cluster
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DeleteArgs {
    /// Kind, or `KIND/NAME`
    #[arg(value_name = "KIND")]
    kind: String,
    /// Names of objects
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Namespace of the objects
    #[arg(long, short, default_value = "default", value_name = "NAMESPACE")]
    namespace: String,
    #[command(flatten)]
    connection: Connection,
}

const EXAMPLES: &str = "\
Examples:
  mco delete mc 99-worker-custom
  mco delete mc/99-worker-custom";

/// Deletes the objects in order.
pub(crate) fn run(args: &DeleteArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    let (kind, first) = match args.kind.split_once('/') {
        Some((kind, name)) => (kind, Some(name)),
        None => (args.kind.as_str(), None),
    };
    let names: Vec<&str> = first.into_iter().chain(args.names.iter().map(String::as_str)).collect();
    if names.is_empty() {
        return Err(error_with_hint("no object named", "run `mco delete KIND NAME`"));
    }
    remote::block_on(async {
        let client = args.connection.client().await?;
        let kinds = Kinds::fetch(&client).await?;
        let kind = kinds.resolve(kind)?;
        let api = api(&client, kind, &args.namespace);
        for name in names {
            api.delete(name, &DeleteParams::default()).await.map_err(remote::call_error)?;
            writeln!(screen, "{} \"{name}\" deleted", kind.qualified_singular())?;
        }
        Ok(ExitCode::SUCCESS)
    })
}
