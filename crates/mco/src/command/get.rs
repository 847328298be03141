//! `mco get`: objects of a cluster, in the columns their kind has.

use std::{io::Write as _, process::ExitCode};

use anyhow::Context as _;
use http::{Request, header::ACCEPT};
use kube::Client;
use serde_json::Value;

use crate::{
    fault::Advice,
    print::Screen,
    remote::{
        self, Connection,
        kinds::{Kind, Kinds},
        table::{self, Layout, Table},
    },
};

/// Show objects of a cluster
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct GetArgs {
    /// Kinds, as `mc,mcp`, or `KIND/NAME`
    #[arg(value_name = "KIND")]
    kinds: String,
    /// Names of objects
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Namespace of the objects
    #[arg(long, short, default_value = "default", value_name = "NAMESPACE")]
    namespace: String,
    /// Objects of all namespaces
    #[arg(long, short = 'A')]
    all_namespaces: bool,
    /// Only objects whose labels match, as `role=worker,tier!=db`
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    selector: Option<String>,
    /// How to print
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    connection: Connection,
}

const EXAMPLES: &str = "\
Examples:
  mco get mcp                       pools and how far they are
  mco get mc,mcp                    configs and pools
  mco get node worker-0 -o yaml     one object, in full
  mco get pods -A -o wide           more columns, all namespaces";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    #[default]
    Table,
    Wide,
    Yaml,
    Json,
    Name,
}

/// One thing to ask the server for.
struct Wanted<'k> {
    kind: &'k Kind,
    name: Option<String>,
}

/// Asks the server and prints what it says.
pub(crate) fn run(args: &GetArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    remote::block_on(async {
        let client = args.connection.client().await?;
        let kinds = Kinds::fetch(&client).await?;
        let wanted = wanted(args, &kinds)?;
        match args.output {
            Output::Table | Output::Wide => tables(args, &client, &wanted, screen).await,
            Output::Yaml | Output::Json | Output::Name => {
                objects(args, &client, &wanted, screen).await
            }
        }
    })
}

fn wanted<'k>(args: &GetArgs, kinds: &'k Kinds) -> anyhow::Result<Vec<Wanted<'k>>> {
    let mut wanted = Vec::new();
    for word in args.kinds.split(',').filter(|word| !word.is_empty()) {
        match word.split_once('/') {
            Some((kind, name)) => {
                wanted.push(Wanted { kind: kinds.meant(kind)?, name: Some(name.to_owned()) });
            }
            None if args.names.is_empty() => {
                wanted.push(Wanted { kind: kinds.meant(word)?, name: None });
            }
            None => {
                let kind = kinds.meant(word)?;
                let named = args.names.iter().cloned();
                wanted.extend(named.map(|name| Wanted { kind, name: Some(name) }));
            }
        }
    }
    Ok(wanted)
}

async fn tables(
    args: &GetArgs,
    client: &Client,
    wanted: &[Wanted<'_>],
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let several =
        wanted.windows(2).any(|pair| pair.first().map(|w| &w.kind) != pair.last().map(|w| &w.kind));
    let mut before: Option<&Kind> = None;
    let mut empty = true;
    for one in wanted {
        let table: Table = ask(args, client, one, table::ACCEPT).await?;
        if table.kind != "Table" {
            anyhow::bail!("the server cannot make tables; use -o yaml");
        }
        if table.rows.is_empty() {
            continue;
        }
        let layout = Layout {
            wide: args.output == Output::Wide,
            namespace: args.all_namespaces && one.kind.namespaced,
            kind: several,
        };
        let mut lines = table.lines(layout, &one.kind.qualified_singular());
        match before {
            // Further objects of the same kind go below the first without titles.
            Some(kind) if kind == one.kind => drop(lines.remove(0)),
            Some(_) => writeln!(screen)?,
            None => {}
        }
        table::write(screen, &lines)?;
        before = Some(one.kind);
        empty = false;
    }
    if empty {
        crate::print::note("there is no such object");
    }
    Ok(ExitCode::SUCCESS)
}

async fn objects(
    args: &GetArgs,
    client: &Client,
    wanted: &[Wanted<'_>],
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let mut found = Vec::new();
    for one in wanted {
        let mut value: Value = ask(args, client, one, "application/json").await?;
        match value.get_mut("items").and_then(Value::as_array_mut) {
            Some(items) => found.append(items),
            None => found.push(value),
        }
    }
    if args.output == Output::Name {
        for (value, kind) in found.iter().map(|value| (value, text(value, "/kind"))) {
            writeln!(screen, "{}/{}", kind.to_lowercase(), text(value, "/metadata/name"))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let single = wanted.len() == 1 && wanted.iter().all(|one| one.name.is_some());
    let shown = match found.pop() {
        Some(only) if single => only,
        last => {
            found.extend(last);
            serde_json::json!({"apiVersion": "v1", "kind": "List", "items": found})
        }
    };
    let text = if args.output == Output::Json {
        serde_json::to_string_pretty(&shown)? + "\n"
    } else {
        serde_saphyr::to_string(&shown)?
    };
    screen.write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

async fn ask<T: serde::de::DeserializeOwned>(
    args: &GetArgs,
    client: &Client,
    wanted: &Wanted<'_>,
    accept: &str,
) -> anyhow::Result<T> {
    let everywhere = args.all_namespaces && wanted.name.is_none();
    let namespace = (!everywhere).then_some(args.namespace.as_str());
    let mut path = wanted.kind.path(namespace, wanted.name.as_deref());
    if let Some(selector) = &args.selector {
        if wanted.name.is_some() {
            let hint = "leave out one of them";
            return Err(Advice::error("a name and a selector exclude each other", hint));
        }
        path.push_str("?labelSelector=");
        path.extend(selector.bytes().map(escaped));
    }
    let request = Request::get(path).header(ACCEPT, accept).body(Vec::new());
    let request = request.context("the name cannot be part of an address")?;
    client.request(request).await.map_err(remote::explain)
}

/// A byte as part of a query.
fn escaped(byte: u8) -> String {
    if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
        char::from(byte).to_string()
    } else {
        format!("%{byte:02X}")
    }
}
