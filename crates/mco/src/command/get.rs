//! `mco get`: prints objects of a cluster in the columns of their kind.

use std::{io::Write as _, process::ExitCode};

use anyhow::Context as _;
use http::{Request, header::ACCEPT};
use kube::Client;
use serde_json::Value;

use crate::{
    error::error_with_hint,
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
    /// Kinds such as `mc,mcp`, or `KIND/NAME`
    #[arg(value_name = "KIND")]
    kinds: String,
    /// Names of objects
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Namespace of the objects
    #[arg(long, short, default_value = "default", value_name = "NAMESPACE")]
    namespace: String,
    /// Show the objects of all namespaces
    #[arg(long, short = 'A')]
    all_namespaces: bool,
    /// Label selector such as `role=worker,tier!=db`
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    selector: Option<String>,
    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    connection: Connection,
}

const EXAMPLES: &str = "\
Examples:
  mco get mcp                       pools and their progress
  mco get mc,mcp                    configs and pools
  mco get node worker-0 -o yaml     one object as YAML
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

/// A request: all objects of a kind, or one of them.
struct ObjectQuery<'k> {
    kind: &'k Kind,
    name: Option<String>,
}

/// Fetches the objects and prints them.
pub(crate) fn run(args: &GetArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    remote::block_on(async {
        let client = args.connection.client().await?;
        let kinds = Kinds::fetch(&client).await?;
        let queries = queries(args, &kinds)?;
        match args.output {
            Output::Table | Output::Wide => tables(args, &client, &queries, screen).await,
            Output::Yaml | Output::Json | Output::Name => {
                objects(args, &client, &queries, screen).await
            }
        }
    })
}

fn queries<'k>(args: &GetArgs, kinds: &'k Kinds) -> anyhow::Result<Vec<ObjectQuery<'k>>> {
    let mut queries = Vec::new();
    for word in args.kinds.split(',').filter(|word| !word.is_empty()) {
        match word.split_once('/') {
            Some((kind, name)) => {
                queries
                    .push(ObjectQuery { kind: kinds.resolve(kind)?, name: Some(name.to_owned()) });
            }
            None if args.names.is_empty() => {
                queries.push(ObjectQuery { kind: kinds.resolve(word)?, name: None });
            }
            None => {
                let kind = kinds.resolve(word)?;
                let names = args.names.iter().cloned();
                queries.extend(names.map(|name| ObjectQuery { kind, name: Some(name) }));
            }
        }
    }
    Ok(queries)
}

async fn tables(
    args: &GetArgs,
    client: &Client,
    queries: &[ObjectQuery<'_>],
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let several = queries
        .windows(2)
        .any(|pair| pair.first().map(|q| &q.kind) != pair.last().map(|q| &q.kind));
    let mut before: Option<&Kind> = None;
    let mut empty = true;
    for query in queries {
        let table: Table = fetch(args, client, query, table::ACCEPT).await?;
        if table.kind != "Table" {
            anyhow::bail!("the API server does not return tables; use -o yaml");
        }
        if table.rows.is_empty() {
            continue;
        }
        let layout = Layout {
            wide: args.output == Output::Wide,
            namespace: args.all_namespaces && query.kind.namespaced,
            kind: several,
        };
        let mut lines = table.lines(layout, &query.kind.qualified_singular());
        match before {
            // Further objects of the same kind follow without titles.
            Some(kind) if kind == query.kind => drop(lines.remove(0)),
            Some(_) => writeln!(screen)?,
            None => {}
        }
        table::write(screen, &lines)?;
        before = Some(query.kind);
        empty = false;
    }
    if empty {
        crate::print::note("no objects found");
    }
    Ok(ExitCode::SUCCESS)
}

async fn objects(
    args: &GetArgs,
    client: &Client,
    queries: &[ObjectQuery<'_>],
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let mut found = Vec::new();
    for query in queries {
        let mut value: Value = fetch(args, client, query, "application/json").await?;
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
    let single = queries.len() == 1 && queries.iter().all(|query| query.name.is_some());
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

async fn fetch<T: serde::de::DeserializeOwned>(
    args: &GetArgs,
    client: &Client,
    query: &ObjectQuery<'_>,
    accept: &str,
) -> anyhow::Result<T> {
    let everywhere = args.all_namespaces && query.name.is_none();
    let namespace = (!everywhere).then_some(args.namespace.as_str());
    let mut path = query.kind.path(namespace, query.name.as_deref());
    if let Some(selector) = &args.selector {
        if query.name.is_some() {
            let hint = "omit the name or the selector";
            return Err(error_with_hint("a name and a selector cannot be combined", hint));
        }
        path.push_str("?labelSelector=");
        path.extend(selector.bytes().map(escaped));
    }
    let request = Request::get(path).header(ACCEPT, accept).body(Vec::new());
    let request = request.context("the name is not valid in a URL")?;
    client.request(request).await.map_err(remote::call_error)
}

/// Encodes a byte for a query string.
fn escaped(byte: u8) -> String {
    if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
        char::from(byte).to_string()
    } else {
        format!("%{byte:02X}")
    }
}
