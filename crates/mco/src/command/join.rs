//! `mco join`: makes a node of a machine that is already booted, with the config of its pool.

mod fetch;
mod identity;
mod node;
mod report;
mod settings;
mod stage;

use std::{path::PathBuf, process::ExitCode};

use mco_api::duration::DurationText;
use mco_apply::join::{self, JoinStage, REFUSED};
use mco_cluster::{client, config_server::ConfigServerError};

pub(crate) use self::report::FailureReport;
use self::stage::Join;
use crate::print::{self, Screen};

/// Join this machine to a cluster with the config of a pool, without Ignition
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct JoinArgs {
    /// URL of the config server, `https://HOST[:PORT]`
    #[arg(long, value_name = "URL", required_unless_present = "resume")]
    server: Option<String>,
    /// Pool of the machine
    #[arg(long, value_name = "POOL", default_value = "worker")]
    pool: String,
    /// Join token (`mco token create`)
    #[arg(long, value_name = "TOKEN", env = settings::TOKEN, hide_env_values = true)]
    token: Option<settings::TokenArg>,
    /// File with the join token
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,
    /// File with the certificates that sign the server's (PEM)
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// SHA-256 of the server's certificate, or of the one that signed it
    #[arg(long, value_name = "HASH", conflicts_with = "ca")]
    ca_sha256: Option<String>,
    /// Name of the node; the machine's host name if omitted
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,
    /// Skip the confirmation
    #[arg(long, short)]
    yes: bool,
    /// Continue an unfinished join
    #[arg(long = "continue", conflicts_with_all = ["server", "token_file", "ca", "ca_sha256", "node_name"])]
    resume: bool,
    /// Report to the config server that the node has not registered, after this time
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    report_after: DurationText,
    /// Root directory of the machine; another one than `/` is for tests and containers
    #[arg(long, default_value = "/", hide = true, value_name = "DIR")]
    root_mount: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  mco join --server https://10.0.0.1:22623 --pool worker --ca ca.crt --token-file token
  mco join --server https://10.0.0.1:22623 --ca-sha256 1f0e… --token-file token --yes
  mco join --continue                       what mco-join.service runs at the next boot

The machine needs systemd, a container engine (containerd or CRI-O) and the kubelet's program. The
command fetches the config of the pool, shows what it will do, applies it as `mco host apply` does, and
reboots if the config changes the operating system. It then waits until the node exists, and names the
certificate request that waits for an approval; `mco node approve NODE` approves it. It approves nothing
itself.

Each step can be repeated. If the power fails, mco-join.service continues at the next boot; it is
removed when the node exists. The token is kept in a file that only root can read until then.

Certificates of the server, from a machine that administers the cluster:
  kubectl -n openshift-machine-config-operator get configmap machine-config-server-ca \\
    -o jsonpath='{.data.ca-bundle\\.crt}' > ca.crt
  openssl x509 -in ca.crt -noout -fingerprint -sha256

Exit status:
  0  the machine has joined, had joined before, or reboots in order to
  1  a step failed; the next run repeats it
  3  the config server refused the machine, and nothing was changed";

/// Joins the machine.
pub(crate) fn run(args: &JoinArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    settings::hide_token(args)?;
    client::use_ring();
    let mut host = stage::open(&args.root_mount)?;
    let Some(record) = settings::record(args, &host, screen)? else {
        return Ok(ExitCode::SUCCESS);
    };
    // The daemon of the new node holds the lock while the rest of the join waits for the node.
    let is_waiting = record.stage >= JoinStage::Registering;
    let lock = (!is_waiting).then(|| stage::lock(&host)).transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let is_resumed = args.resume;
    let (yes, report_after) = (args.yes || is_resumed, args.report_after.0);
    let mut join = Join { record, yes, is_resumed, report_after, lock, runtime };
    let Err(error) = join.run(&mut host, screen) else { return Ok(ExitCode::SUCCESS) };
    let refused = error.chain().find_map(|cause| cause.downcast_ref::<ConfigServerError>());
    let is_refused = matches!(refused, Some(ConfigServerError::Refused { .. }));
    if report::is_due(&error, join.has_changed()) {
        join.report(&host, &report::text(&error));
    }
    if !is_refused {
        return Err(error);
    }
    if !args.resume && !join.has_changed() {
        join::finish(&mut host, None)?;
    }
    print::failure(&error);
    Ok(ExitCode::from(REFUSED))
}
