//! `mco node approve`: checks and approves the certificate requests of new nodes.

use std::{io::Write as _, process::ExitCode};

use jiff::Timestamp;
use kube::{Client, ResourceExt as _};
use mco_cluster::{Clock, error::Rejection};
use mco_controller::approval::{self, Checked, is_pending};
use mco_core::join::approval::RequestKind;

use crate::{
    error::error_with_hint,
    print::{self, Screen},
    remote::{self, Access, Connection, table},
};

/// Approve the certificate requests of a new node that pass all checks; list what waits without NODE
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ApproveArgs {
    /// Name of the node
    #[arg(value_name = "NODE")]
    node: Option<String>,
    /// Approve requests that do not pass the checks too
    #[arg(long, requires = "node")]
    force: bool,
    #[command(flatten)]
    connection: Connection,
}

const EXAMPLES: &str = "\
Examples:
  mco node approve                     the requests that wait, and what speaks against each
  mco node approve worker-3            approve those of worker-3 that pass the checks
  mco node approve worker-3 --force    approve all of them

The checks are those of the controller with --approve-joins: who requests it, subject, names and
usages, a name that is free, and with join tokens a machine that got its config with one.

Exit status: 0 all requests of the node are approved, or none waits without NODE; 1 otherwise.";

/// Lists or approves requests.
pub(super) fn run(args: &ApproveArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    remote::block_on(async {
        let access = Access::of_dry_run(args.node.is_none());
        let client = args.connection.installed(access).await?;
        let now = Clock::System.now();
        let checked = fetch(&client, now).await?;
        let Some(node) = &args.node else { return list(&checked, now, screen) };
        let of_node: Vec<&Checked> =
            checked.iter().filter(|checked| checked.verdict.node == *node).collect();
        if of_node.is_empty() {
            return Err(error_with_hint(
                format!("no certificate request of node {node} waits"),
                "list those that wait with `mco node approve`",
            ));
        }
        let mut code = ExitCode::SUCCESS;
        for one in of_node {
            if !approve(&client, one, args.force, screen).await? {
                code = ExitCode::FAILURE;
            }
        }
        Ok(code)
    })
}

/// Fetches the pending requests of kubelets and checks them.
async fn fetch(client: &Client, now: Timestamp) -> anyhow::Result<Vec<Checked>> {
    let requests = approval::fetch_requests(client).await.map_err(|error| {
        if error.is_not_found() {
            let hint =
                "the embedded API server has none; name another cluster with --kubeconfig FILE";
            return error_with_hint("the cluster has no certificate requests", hint);
        }
        error.into()
    })?;
    let mut checked = Vec::new();
    for request in requests.iter().filter(|request| is_pending(request)) {
        checked.extend(approval::check(client, request, now).await?);
    }
    Ok(checked)
}

fn list(checked: &[Checked], now: Timestamp, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    if checked.is_empty() {
        print::note("no certificate request of a node waits");
        return Ok(ExitCode::SUCCESS);
    }
    let titles = ["NODE", "CERTIFICATE", "REQUEST", "AGE", "CHECKS"];
    let mut lines = vec![titles.map(str::to_owned).to_vec()];
    lines.extend(checked.iter().map(|checked| {
        let verdict = &checked.verdict;
        let created = checked.request.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let age = created.map_or(0, |created| now.duration_since(created).as_secs());
        let found = if verdict.is_approved() { joined(checked) } else { verdict.text() };
        let cells = [
            verdict.node.clone(),
            kind(verdict.kind).to_owned(),
            checked.request.name_any(),
            format!("{age}s"),
            found,
        ];
        cells.map(|cell| print::visible(&cell)).to_vec()
    }));
    table::write(screen, &lines)?;
    Ok(ExitCode::SUCCESS)
}

const fn kind(kind: RequestKind) -> &'static str {
    match kind {
        RequestKind::First => "client, first",
        RequestKind::Renewal => "client, renewed",
        RequestKind::Serving => "serving",
    }
}

/// Returns what an approval uses.
fn joined(checked: &Checked) -> String {
    match &checked.verdict.claim {
        Some(claim) => format!("passed: join token {}, pool {}", claim.token, claim.pool),
        None => "passed".to_owned(),
    }
}

/// Approves a request, if it passes the checks or `force` is set. Returns false if it stays pending.
async fn approve(
    client: &Client,
    checked: &Checked,
    force: bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<bool> {
    let (name, node) = (checked.request.name_any(), &checked.verdict.node);
    let kind = kind(checked.verdict.kind);
    let shown = format!("certificate request {name} of node {node} ({kind})");
    let faults = checked.verdict.text();
    if !checked.verdict.is_approved() && !force {
        writeln!(screen, "{shown} stays pending: {}", print::visible(&faults))?;
        print::note(&format!(
            "if you know that the machine is yours: mco node approve {node} --force"
        ));
        return Ok(false);
    }
    let message = if faults.is_empty() {
        format!("Approved for node {node} by mco node approve")
    } else {
        print::note(&format!(
            "approved although {faults}. Whoever made this request can now act as node {node}: read \
             the Secrets of its pods and change its status"
        ));
        format!("Approved for node {node} by mco node approve --force although {faults}")
    };
    match approval::approve(client, checked, &message, Clock::System.now()).await {
        Ok(_) => writeln!(screen, "{shown} approved, {}", joined(checked))?,
        Err(error) if error.rejection() == Some(Rejection::Conflict) => {
            return Err(error_with_hint(
                format!("{shown} changed while it was checked"),
                "run the command again",
            ));
        }
        Err(error) => return Err(error.into()),
    }
    Ok(true)
}
