//! `mco pointer`: prints the config that makes a machine fetch its first config.

use std::{io::Write as _, net::IpAddr, process::ExitCode};

use anyhow::Context as _;
use k8s_openapi::api::{core::v1::ConfigMap, discovery::v1::EndpointSlice};
use kube::{Client, api::ListParams};
use mco_api::{ControllerConfig, label};
use mco_cluster::{Api, Clock, client::namespace};
use mco_core::join::{
    StoredToken, TokenText,
    pointer::{Pointer, default_server, server_url},
    token::secret_name,
};
use serde_json::Value;

use super::token;
use crate::{
    error::error_with_hint,
    print::{self, Screen},
    remote::{self, Access, Connection},
};

/// Member of the ConfigMap with the CA certificates of the server.
const CA_BUNDLE: &str = "ca-bundle.crt";

/// Print the config that makes a new machine fetch its first config from the server
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PointerArgs {
    /// Pool of the machine
    #[arg(long, value_name = "POOL")]
    pool: String,
    /// Token of `mco token create`
    #[arg(long, env = "MCO_JOIN_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    token: Option<String>,
    /// URL of the config server; port 22623 on the host of the API server if omitted
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Name of the machine's node, sent with the token
    #[arg(long, default_value = "", hide_default_value = true, value_name = "NAME")]
    node: String,
    /// Form of the config
    #[arg(long, short, value_enum, default_value_t = Form::Ignition)]
    output: Form,
    #[command(flatten)]
    connection: Connection,
}

/// Form of the config.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    /// An Ignition config for the user data of machines that run Ignition at their first boot
    Ignition,
    /// User data for cloud-init: runs `mco join` on a machine that is booted already
    CloudInit,
    /// Kernel arguments for machines that boot over the network; they cannot carry a token
    KernelArguments,
}

const EXAMPLES: &str = "\
Examples:
  mco pointer --pool worker > worker.ign
  mco pointer --pool worker --token \"$TOKEN\" -o cloud-init > user-data
  mco pointer --pool worker -o kernel-arguments --server https://api-int.example.com:22623

The output with a token is a secret: every reader of it can get the config of the pool, with the
credentials in it, until the token is used or expires.";

/// Prints the config.
pub(crate) fn run(args: &PointerArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    let token = args.token.as_deref().map(|text| TokenText::parse(text.trim())).transpose()?;
    let server = args.server.as_deref().map(server_url).transpose()?;
    remote::block_on(async {
        let client = args.connection.installed(Access::Read).await?;
        check_token(args, token.as_ref(), &client).await?;
        let server = match server {
            Some(server) => server,
            None => find_server(&client).await?,
        };
        let ca = fetch_ca(&client).await?;
        let (pool, node) = (args.pool.clone(), args.node.clone());
        let pointer = Pointer { server, pool, ca, token, node };
        match args.output {
            Form::Ignition => {
                writeln!(screen, "{}", serde_json::to_string_pretty(&pointer.ignition())?)?;
            }
            Form::CloudInit => write!(screen, "{}", pointer.cloud_init())?,
            Form::KernelArguments => {
                let line = pointer.kernel_arguments().ok_or_else(no_arguments)?;
                writeln!(screen, "{line}")?;
                print::note(
                    "kernel arguments carry no CA certificates either: the machine's image must \
                     trust the server's, which `-o ignition` contains",
                );
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Returns the error for kernel arguments with a token.
fn no_arguments() -> anyhow::Error {
    error_with_hint(
        "kernel arguments cannot carry a token: Ignition sends no headers for \
         ignition.config.url, and every process of the machine can read them",
        "write the output of `-o ignition` to the machine's disk or user data, or serve it at a URL \
         that only this machine can reach and name that URL in ignition.config.url",
    )
}

/// Checks the token against the cluster, if the user may read it.
async fn check_token(
    args: &PointerArgs,
    given: Option<&TokenText>,
    client: &Client,
) -> anyhow::Result<()> {
    let Some(given) = given else {
        if !token::fetch_required(client).await? {
            return Ok(());
        }
        if args.output == Form::KernelArguments {
            return Err(no_arguments());
        }
        return Err(error_with_hint(
            "the machines of this cluster need a join token",
            format!("add --token \"$(mco token create --pool {})\"", args.pool),
        ));
    };
    let id = given.id();
    let secret = token::secrets(client).get_opt(&secret_name(id)).await;
    let secret = match secret {
        // The user who builds the config may lack the right to read tokens.
        Err(kube::Error::Api(status)) if status.code == 403 => return Ok(()),
        secret => secret.map_err(remote::call_error)?,
    };
    let stored = secret.as_ref().and_then(|secret| StoredToken::read(secret).ok());
    let hint = format!("make one with `mco token create --pool {}`", args.pool);
    let Some(stored) = stored.filter(|stored| given.matches(Some(&stored.token))) else {
        return Err(error_with_hint(format!("the token {id} is not valid in this cluster"), hint));
    };
    if stored.token.pool != args.pool {
        let pool = &stored.token.pool;
        return Err(error_with_hint(format!("the token {id} is for pool {pool}"), hint));
    }
    if Clock::System.now() >= stored.token.expires.0 {
        return Err(error_with_hint(format!("the token {id} has expired"), hint));
    }
    Ok(())
}

/// Returns the URL of the config server on the host by which machines reach the API server.
async fn find_server(client: &Client) -> anyhow::Result<String> {
    let configs = Api::<ControllerConfig>::all(client.clone());
    let config = configs.get_opt(label::CONTROLLER_CONFIG).await.map_err(remote::call_error)?;
    let internal = config.and_then(|config| config.spec.infra).and_then(|infra| infra.status);
    let internal = internal.map(|status| status.api_server_internal_uri);
    let info = Api::<ConfigMap>::namespaced(client.clone(), "kube-public");
    let info = info.get_opt("cluster-info").await.map_err(remote::call_error)?;
    let info = info.and_then(|map| map.data?.remove("kubeconfig"));
    let info = info.as_deref().and_then(server_of);
    let slices = Api::<EndpointSlice>::namespaced(client.clone(), "default");
    let of_api = ListParams::default().labels("kubernetes.io/service-name=kubernetes");
    let slices = slices.list(&of_api).await.map(|list| list.items).unwrap_or_default();
    let endpoints = slices.into_iter().flat_map(|slice| slice.endpoints.unwrap_or_default());
    let addresses: Vec<IpAddr> = endpoints
        .flat_map(|endpoint| endpoint.addresses)
        .filter_map(|address| address.parse().ok())
        .collect();
    default_server(internal.as_deref(), info.as_deref(), &addresses).ok_or_else(|| {
        error_with_hint(
            "the cluster does not say by which host machines reach it",
            "name the config server with --server https://HOST:22623",
        )
    })
}

/// Returns the server of the first cluster in a kubeconfig.
fn server_of(kubeconfig: &str) -> Option<String> {
    let config: Value = serde_saphyr::from_str(kubeconfig).ok()?;
    Some(config.pointer("/clusters/0/cluster/server")?.as_str()?.to_owned())
}

/// Fetches the CA certificates of the server.
async fn fetch_ca(client: &Client) -> anyhow::Result<String> {
    let maps = Api::<ConfigMap>::own(client.clone());
    let map = maps.get_opt(label::SERVER_CA).await.map_err(remote::call_error)?;
    let ca = map.and_then(|map| map.data?.remove(CA_BUNDLE)).filter(|ca| !ca.trim().is_empty());
    let named = format!(
        "ConfigMap {}/{} has no {CA_BUNDLE}; the controller writes it",
        namespace(client),
        label::SERVER_CA
    );
    ca.context(named)
}
