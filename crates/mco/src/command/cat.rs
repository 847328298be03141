//! `mco cat`: prints the decoded contents of one file, unit or drop-in.

use std::{io::Write as _, path::PathBuf, process::ExitCode};

use crate::{
    decoded::DecodedConfig,
    error::error_with_hint,
    print::Screen,
    reference::{self, ClusterObjects},
    remote::{self, Connection},
    target,
};

/// Print the decoded contents of one file, unit or drop-in
#[derive(Debug, clap::Args)]
#[command(
    after_help = EXAMPLES,
    override_usage = "mco cat NODE|POOL|CONFIG:NAME\n       mco cat FILE NAME\n       mco cat -f PATH... [--pool POOL] NAME"
)]
pub(crate) struct CatArgs {
    /// Node, pool or MachineConfig of the cluster with the name of an entry, such as `worker-0:/etc/motd`;
    /// or a file with a MachineConfig, or - for standard input; not with -f
    #[arg(value_name = "FILE")]
    first: String,
    /// Absolute path, UNIT or UNIT/DROPIN
    #[arg(value_name = "NAME")]
    second: Option<String>,
    /// Manifests to render the config from; may be repeated
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Read subdirectories too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Pool to render, if the manifests have several
    #[arg(long, short, value_name = "POOL")]
    pool: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

const EXAMPLES: &str = "\
Examples:
  mco cat worker-0:/etc/chrony.conf              as in the config that the node runs
  mco cat worker:/etc/chrony.conf                as in the config of the pool
  mco cat 99-worker-custom:custom.service        as in a MachineConfig of the cluster
  mco cat rendered-worker.yaml /etc/kubernetes/kubelet.conf
  mco cat rendered-worker.yaml kubelet.service
  mco cat rendered-worker.yaml kubelet.service/10-mco-default-env.conf
  mco cat -f manifests/ --pool worker /etc/chrony.conf
  kubectl get mc rendered-worker-… -o json | mco cat - /etc/crio/crio.conf.d/00-default";

/// Writes the bytes exactly as on the node.
pub(crate) fn run(
    args: &CatArgs,
    verbose: bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let pool = args.pool.as_deref();
    let (config, wanted) = match (&args.second, args.paths.as_slice()) {
        (Some(wanted), []) => {
            (target::read(args.first.as_ref(), args.recursive, pool, verbose)?, wanted)
        }
        (None, []) => {
            if let Some((name, wanted)) = args.first.split_once(':') {
                let config = live(args, name)?;
                screen.write_all(&config.find(wanted)?.contents()?)?;
                return Ok(ExitCode::SUCCESS);
            }
            let hint = "run `mco cat NODE:PATH`, `mco cat FILE NAME`, or `mco cat -f PATH NAME`";
            return Err(error_with_hint("a config and the name of an entry are required", hint));
        }
        (None, paths) => (target::render(paths, args.recursive, pool, verbose)?, &args.first),
        (Some(_), [_, ..]) => {
            let hint = "run `mco cat FILE NAME`, or `mco cat -f PATH NAME`";
            return Err(error_with_hint("with -f, only the name of one entry is allowed", hint));
        }
    };
    screen.write_all(&config.find(wanted)?.contents()?)?;
    Ok(ExitCode::SUCCESS)
}

/// Fetches the config that a name of the cluster stands for.
fn live(args: &CatArgs, name: &str) -> anyhow::Result<DecodedConfig> {
    remote::block_on(async {
        let client = args.connection.client().await?;
        let objects = ClusterObjects::fetch(&client).await?;
        reference::decoded(objects.config(name)?)
    })
}
