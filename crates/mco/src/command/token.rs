//! `mco token`: makes, lists and revokes join tokens.

mod create;
mod list;

use std::{io::Write as _, process::ExitCode};

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Client,
    api::{DeleteParams, ListParams},
};
use mco_api::{ControllerConfig, annotation, join_token, label};
use mco_cluster::Api;
use mco_core::join::{StoredToken, token::secret_name};

pub(crate) use self::create::issue;
use crate::{
    error::error_with_hint,
    print::Screen,
    remote::{self, Connection},
};

/// Make, list and revoke the tokens that new machines get their config with
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, clap::Subcommand)]
enum TokenCommand {
    Create(create::CreateArgs),
    List(list::ListArgs),
    Revoke(RevokeArgs),
}

/// Revoke tokens: machines that did not get their config yet get none
#[derive(Debug, clap::Args)]
struct RevokeArgs {
    /// Ids of tokens, as `mco token list` shows them
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
    #[command(flatten)]
    connection: Connection,
}

const EXAMPLES: &str = "\
Examples:
  mco token create --pool worker                         for one machine, valid for a day
  mco token create --pool worker --node w-7 --ttl 2h     for the machine that becomes node w-7
  mco token create --pool worker --uses 40 --bind-address 10.0.4.0/24
  mco pointer --pool worker --token \"$(mco token create --pool worker)\"
  mco token list
  mco token revoke k3v9x2ab

Tokens are required if the ControllerConfig says so:
  kubectl annotate --overwrite controllerconfig machine-config-controller \\
    machineconfiguration.openshift.io/join-tokens=required
docs/join-tokens.md explains what a token protects, and what it does not.";

/// Runs a command on tokens.
pub(crate) fn run(args: &TokenArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    match &args.command {
        TokenCommand::Create(args) => create::run(args, screen),
        TokenCommand::List(args) => list::run(args, screen),
        TokenCommand::Revoke(args) => revoke(args, screen),
    }
}

/// Returns the Secrets of tokens.
pub(crate) fn secrets(client: &Client) -> Api<Secret> {
    Api::namespaced(client.clone(), join_token::NAMESPACE)
}

/// Fetches all tokens. Secrets that are none are left out.
pub(crate) async fn fetch(client: &Client) -> anyhow::Result<Vec<StoredToken>> {
    let of_type = format!("type={}", join_token::SECRET_TYPE);
    let secrets = secrets(client).list(&ListParams::default().fields(&of_type)).await;
    let secrets = secrets.map_err(remote::call_error)?;
    Ok(secrets.items.iter().filter_map(|secret| StoredToken::read(secret).ok()).collect())
}

/// Returns true if the ControllerConfig requires tokens.
pub(crate) async fn fetch_required(client: &Client) -> anyhow::Result<bool> {
    let configs = Api::<ControllerConfig>::all(client.clone());
    let config = configs.get_opt(label::CONTROLLER_CONFIG).await.map_err(remote::call_error)?;
    let annotations = config.and_then(|config| config.metadata.annotations).unwrap_or_default();
    let mode = annotation::JOIN_TOKENS.get(&annotations)?;
    Ok(mode.is_some_and(|mode| mode.are_required()))
}

fn revoke(args: &RevokeArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    remote::block_on(async {
        let client = args.connection.writer().await?;
        let api = secrets(&client);
        for given in &args.ids {
            // The whole token is accepted too; its secret is not repeated.
            let id = given.split('.').next().unwrap_or_default();
            let id = id.strip_prefix(join_token::SECRET_PREFIX).unwrap_or(id);
            match api.delete(&secret_name(id), &DeleteParams::default()).await {
                Ok(()) => writeln!(screen, "token \"{id}\" revoked")?,
                Err(kube::Error::Api(status)) if status.is_not_found() => {
                    return Err(error_with_hint(
                        format!("there is no token {id}"),
                        "list the tokens with `mco token list`",
                    ));
                }
                Err(error) => return Err(remote::call_error(error)),
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}
