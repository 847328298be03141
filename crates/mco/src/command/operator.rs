//! `mco operator`: runs the operator, which installs CRDs, pools and the ControllerConfig and updates the
//! ClusterOperator status.

use std::process::ExitCode;

use mco_cluster::{Health, NoteCount, client::Identity, lease};
use mco_operator::{Config, Leader, RootCa};

use crate::process::{self, LeaderArgs, ProcessArgs, ProcessOptions};

const IDENTITY: Identity = Identity::new("machine-config-operator");

/// Run the operator: install CRDs and pools, and update the ClusterOperator status
#[derive(Debug, clap::Args)]
pub(crate) struct OperatorArgs {
    #[command(subcommand)]
    command: OperatorCommand,
}

#[derive(Debug, clap::Subcommand)]
enum OperatorCommand {
    /// Run the operator until stopped
    Start(StartArgs),
}

// The operator and the controller may run on one machine; the reference's operator has no metrics.
#[derive(Debug, clap::Args)]
#[command(mut_arg("metrics_listen_address", |arg| arg.default_value("127.0.0.1:8796")))]
struct StartArgs {
    #[command(flatten)]
    process: ProcessArgs,
    /// Image of this process
    #[arg(long, default_value = "", value_name = "IMAGE")]
    operator_image: String,
    /// OS image of the release; machines keep their OS image if omitted
    #[arg(long, default_value = "", value_name = "IMAGE")]
    os_image: String,
    /// Image with the extensions for the OS image
    #[arg(long, default_value = "", value_name = "IMAGE")]
    os_extensions_image: String,
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
}

pub(crate) fn run(args: &OperatorArgs, verbose: bool) -> anyhow::Result<ExitCode> {
    let OperatorCommand::Start(args) = &args.command;
    let timings = args.leader.timings()?;
    let health = Health::default();
    let options = ProcessOptions {
        health: health.clone(),
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
                profile: args.profile.as_deref().map(Into::into),
                join_tokens: args.join_tokens.as_deref().map(Into::into),
                approve_joins: args.approve_joins.then_some(true),
                root_ca: RootCa::Connection(args.process.kubeconfig.clone()),
                leader: Some(leader),
                notes,
                health,
                ..Config::new(process::build(), &args.process.payload_version)
            };
            mco_operator::run(config, client, shutdown).await
        },
    )
}
