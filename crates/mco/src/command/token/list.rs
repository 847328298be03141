//! `mco token list`: the tokens and their use.

use std::{io::Write as _, process::ExitCode};

use jiff::Timestamp;
use mco_api::join_token::{Binding, Join};
use mco_cluster::Clock;
use mco_core::join::{StoredToken, TokenState};
use serde_json::json;

use super::fetch;
use crate::{
    print::{self, Screen},
    remote::{self, Connection, table},
};

/// List the tokens and their use
#[derive(Debug, clap::Args)]
pub(super) struct ListArgs {
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    connection: Connection,
}

/// Output of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// A line for each token
    Table,
    /// A list of objects, with the machines that used each token
    Json,
}

pub(super) fn run(args: &ListArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    remote::block_on(async {
        let client = args.connection.client().await?;
        let mut tokens = fetch(&client).await?;
        tokens.sort_by_key(|token| (token.token.expires.0, token.id.clone()));
        let now = Clock::System.now();
        if args.output == Output::Json {
            let shown: Vec<_> = tokens.iter().map(|token| object(token, now)).collect();
            writeln!(screen, "{}", serde_json::to_string_pretty(&shown)?)?;
        } else if tokens.is_empty() {
            print::note("there are no tokens; make one with `mco token create --pool POOL`");
        } else {
            table::write(screen, &lines(&tokens, now))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Returns a token without its hash.
fn object(stored: &StoredToken, now: Timestamp) -> serde_json::Value {
    let StoredToken { id, token, joins } = stored;
    json!({"id": id, "pool": token.pool, "created": token.created, "expires": token.expires,
        "uses": token.uses, "state": TokenState::of(stored, now).to_string(),
        "binding": token.binding, "description": token.description, "joins": joins})
}

fn lines(tokens: &[StoredToken], now: Timestamp) -> Vec<Vec<String>> {
    let titles =
        ["ID", "POOL", "EXPIRES", "USES", "STATE", "LAST USE", "NODES", "BOUND TO", "DESCRIPTION"];
    let mut lines = vec![titles.map(str::to_owned).to_vec()];
    lines.extend(tokens.iter().map(|stored| {
        let StoredToken { id, token, joins } = stored;
        let last = joins.iter().max_by_key(|join| join.last.0);
        let last = last.map(|join| format!("{:.0} {}", join.last.0, join.address));
        let cells = [
            id.clone(),
            token.pool.clone(),
            format!("{:.0}", token.expires.0),
            format!("{}/{}", joins.len(), token.uses),
            TokenState::of(stored, now).to_string(),
            last.unwrap_or_else(|| "never".to_owned()),
            nodes(joins),
            bound(&token.binding),
            token.description.clone(),
        ];
        cells.map(|cell| print::visible(&cell)).to_vec()
    }));
    lines
}

/// Returns the nodes that joined, a few of them by name.
fn nodes(joins: &[Join]) -> String {
    let names: Vec<&str> =
        joins.iter().map(|join| join.approved.as_str()).filter(|name| !name.is_empty()).collect();
    match names.as_slice() {
        [first, second, third, rest @ ..] if !rest.is_empty() => {
            format!("{first},{second},{third} and {} more", rest.len())
        }
        names => names.join(","),
    }
}

fn bound(binding: &Binding) -> String {
    let Binding { machine_id, mac, address, tpm_ek, node } = binding;
    let parts = [
        ("machine-id", machine_id),
        ("mac", mac),
        ("address", address),
        ("tpm-ek", tpm_ek),
        ("node", node),
    ];
    let parts = parts.into_iter().filter(|(_, value)| !value.is_empty());
    parts.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")
}
