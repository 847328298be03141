//! `mco cat`: the decoded contents of one file or unit.

use std::{io::Write as _, path::PathBuf, process::ExitCode};

use crate::{fault::Advice, print::Screen, target};

/// Print the decoded contents of one file, unit or drop-in
#[derive(Debug, clap::Args)]
#[command(
    after_help = EXAMPLES,
    override_usage = "mco cat FILE WHAT\n       mco cat -f PATH... [--pool POOL] WHAT"
)]
pub(crate) struct CatArgs {
    /// File with a MachineConfig, or - for standard input; not with -f
    #[arg(value_name = "FILE")]
    first: String,
    /// Absolute path, UNIT or UNIT/DROPIN
    #[arg(value_name = "WHAT")]
    second: Option<String>,
    /// Manifests to render the config from; may be repeated
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Read directories below the given ones too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Pool to render, when there are several
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

/// Writes the bytes exactly as the node would have them.
pub(crate) fn run(
    args: &CatArgs,
    verbose: bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let pool = args.pool.as_deref();
    let (machine, wanted) = match (&args.second, args.paths.as_slice()) {
        (Some(wanted), []) => {
            (target::read(args.first.as_ref(), args.recursive, pool, verbose)?, wanted)
        }
        (None, []) => {
            let hint = "mco cat FILE WHAT, or mco cat -f PATH WHAT";
            return Err(Advice::error("both a config and what to print are needed", hint));
        }
        (None, paths) => (target::render(paths, args.recursive, pool, verbose)?, &args.first),
        (Some(_), [_, ..]) => {
            let hint = "mco cat FILE WHAT, or mco cat -f PATH WHAT";
            return Err(Advice::error("with -f only one thing can be named", hint));
        }
    };
    screen.write_all(&machine.find(wanted)?.contents()?)?;
    Ok(ExitCode::SUCCESS)
}
