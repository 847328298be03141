//! `mco cat`: prints the decoded contents of one file, unit or drop-in.

use std::{io::Write as _, path::PathBuf, process::ExitCode};

use crate::{error::error_with_hint, print::Screen, target};

/// Print the decoded contents of one file, unit or drop-in
#[derive(Debug, clap::Args)]
#[command(
    after_help = EXAMPLES,
    override_usage = "mco cat FILE NAME\n       mco cat -f PATH... [--pool POOL] NAME"
)]
pub(crate) struct CatArgs {
    /// File with a MachineConfig, or - for standard input; not with -f
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
}

const EXAMPLES: &str = "\
Examples:
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
            let hint = "run `mco cat FILE NAME`, or `mco cat -f PATH NAME`";
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
