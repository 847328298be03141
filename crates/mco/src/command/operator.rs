//! `mco operator`: runs the operator, which deploys the other processes, installs CRDs, pools and the
//! ControllerConfig, and updates the ClusterOperator status.

mod bootstrap;

use std::{path::PathBuf, process::ExitCode};

use mco_api::controller_config::ProxyStatus;
use mco_cluster::{Health, NoteCount, client::Identity, lease, report::chain, telemetry::LogLevel};
use mco_host::input;
use mco_operator::{Config, ImagesFile, Leader, RootCa};

use crate::load::MAX_FILE_SIZE;
use crate::process::{self, LeaderArgs, ProcessArgs, ProcessOptions, TakeoverArgs};

const IDENTITY: Identity = Identity::new("machine-config-operator");

/// Run the operator: deploy the other processes, install CRDs and pools, and update the ClusterOperator
/// status
#[derive(Debug, clap::Args)]
pub(crate) struct OperatorArgs {
    #[command(subcommand)]
    command: OperatorCommand,
    /// Log level; 4 and above logs everything
    #[arg(long = "v", global = true, hide = true, default_value_t = 2)]
    verbosity: u8,
}

#[derive(Debug, clap::Subcommand)]
enum OperatorCommand {
    /// Run the operator until stopped
    Start(Box<StartArgs>),
    Bootstrap(Box<bootstrap::BootstrapArgs>),
}

// The operator and the controller may run on one machine; the reference's operator has no metrics.
#[derive(Debug, clap::Args)]
#[command(mut_arg("metrics_listen_address", |arg| arg.default_value("127.0.0.1:8796")))]
struct StartArgs {
    #[command(flatten)]
    process: ProcessArgs,
    /// Image of this process, from which the operator runs the other ones; it deploys nothing if omitted
    #[arg(long, default_value = "", value_name = "IMAGE")]
    operator_image: String,
    /// OS image of the release; machines keep their OS image if omitted
    #[arg(long, default_value = "", value_name = "IMAGE")]
    os_image: String,
    /// Image with the extensions for the OS image
    #[arg(long, default_value = "", value_name = "IMAGE")]
    os_extensions_image: String,
    /// File with the images of the release, as mounted from a release payload; it must name the version of
    /// the operator
    #[arg(long, value_name = "FILE")]
    images_json: Option<PathBuf>,
    /// URL of the API server for new machines on a cluster without an Infrastructure object; the config
    /// server looks it up in the cluster if omitted
    #[arg(long, default_value = "", value_name = "URL")]
    apiserver_url: String,
    /// Proxy of the nodes for HTTP, if neither the cluster nor the ConfigMap cluster-settings has a Proxy
    #[arg(long, default_value = "", value_name = "URL")]
    http_proxy: String,
    /// Proxy of the nodes for HTTPS, as with --http-proxy
    #[arg(long, default_value = "", value_name = "URL")]
    https_proxy: String,
    /// Hosts and networks that nodes reach without a proxy, separated by commas
    #[arg(long, default_value = "", value_name = "LIST")]
    no_proxy: String,
    /// Contents of the base configs: adopt leaves kubelet and container runtime alone, full installs
    /// them; the annotation of the ControllerConfig is left alone if omitted
    #[arg(long, value_parser = ["adopt", "full"], value_name = "PROFILE")]
    profile: Option<String>,
    /// Authentication of new machines: with required, only machines with a join token get a config;
    /// the annotation of the ControllerConfig is left alone if omitted
    #[arg(long, value_parser = ["required", "off"], value_name = "MODE")]
    join_tokens: Option<String>,
    /// Let the controller approve the certificate requests of new nodes; the annotation of the
    /// ControllerConfig is left alone if omitted
    #[arg(long)]
    approve_joins: bool,
    #[command(flatten)]
    leader: LeaderArgs,
    #[command(flatten)]
    takeover: TakeoverArgs,
}

impl StartArgs {
    fn proxy(&self) -> Option<ProxyStatus> {
        let proxy = ProxyStatus {
            http_proxy: self.http_proxy.clone(),
            https_proxy: self.https_proxy.clone(),
            no_proxy: self.no_proxy.clone(),
        };
        (proxy != ProxyStatus::default()).then_some(proxy)
    }
}

fn images_file(path: PathBuf) -> ImagesFile {
    ImagesFile::new(move || {
        let bytes = input::file(&path, MAX_FILE_SIZE).map_err(|error| chain(&error))?;
        String::from_utf8(bytes).map_err(|_| format!("{} is not text", path.display()))
    })
}

pub(crate) fn run(args: &OperatorArgs, verbose: bool) -> anyhow::Result<ExitCode> {
    let verbose = verbose || args.verbosity >= 4;
    let args = match &args.command {
        OperatorCommand::Start(args) => args,
        OperatorCommand::Bootstrap(args) => return bootstrap::run(args),
    };
    let timings = args.leader.timings()?;
    let (health, log_level) = (Health::default(), LogLevel::default());
    let options = ProcessOptions {
        health: health.clone(),
        log_level: log_level.clone(),
        ..ProcessOptions::new(args.process.client_options(IDENTITY))
    };
    process::run(
        &args.process,
        verbose,
        options,
        NoteCount::register,
        |notes, client, shutdown| async move {
            let leader = Leader { identity: lease::identity(), timings };
            let config = Config {
                image: args.operator_image.clone(),
                os_image: args.os_image.clone(),
                os_extensions_image: args.os_extensions_image.clone(),
                images_json: args.images_json.clone().map(images_file),
                api_server_url: args.apiserver_url.clone(),
                proxy: args.proxy(),
                profile: args.profile.as_deref().map(Into::into),
                join_tokens: args.join_tokens.as_deref().map(Into::into),
                approve_joins: args.approve_joins.then_some(true),
                root_ca: RootCa::Connection(args.process.kubeconfig.clone()),
                leader: Some(leader),
                order: args.takeover.order(),
                notes,
                health,
                log_level,
                ..Config::new(process::build(), &args.process.payload_version)
            };
            mco_operator::run(config, client, shutdown).await
        },
    )
}
