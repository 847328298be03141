//! `mco get`: prints objects of a cluster in the columns of their kind.

mod watch;

use std::{io::Write as _, process::ExitCode, str::FromStr};

use anyhow::Context as _;
use http::{Request, header::ACCEPT};
use kube::Client;
use serde_json::Value;

use crate::{
    error::error_with_hint,
    jsonpath::{self, Template},
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
    /// Namespace of the objects; that of the context if omitted
    #[arg(long, short, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Show the objects of all namespaces
    #[arg(long, short = 'A')]
    all_namespaces: bool,
    /// Label selector such as `role=worker,tier!=db`
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    selector: Option<String>,
    /// table, wide, yaml, json, name, jsonpath=TEMPLATE or custom-columns=TITLE:PATH,...
    #[arg(long, short, default_value = "table", value_name = "FORMAT")]
    output: Output,
    /// Path of the field to sort by, such as .metadata.creationTimestamp
    #[arg(long, value_name = "PATH")]
    sort_by: Option<String>,
    /// Omit the titles of the columns
    #[arg(long)]
    no_headers: bool,
    /// Print every change of the objects, too, until stopped
    #[arg(long, short)]
    watch: bool,
    #[command(flatten)]
    connection: Connection,
}

const EXAMPLES: &str = "\
Examples:
  mco get mcp                       pools and their progress
  mco get mc,mcp                    configs and pools
  mco get node worker-0 -o yaml     one object as YAML
  mco get pods -A -o wide           more columns, all namespaces
  mco get mcp -w                    every change
  mco get mc --sort-by .metadata.creationTimestamp
  mco get node -o jsonpath='{.items[*].metadata.name}'
  mco get node -o custom-columns=NAME:.metadata.name,KERNEL:.status.nodeInfo.kernelVersion";

/// The output format.
#[derive(Clone, Debug, PartialEq)]
enum Output {
    Table,
    Wide,
    Yaml,
    Json,
    Name,
    JsonPath(Template),
    /// Titles and paths.
    Columns(Vec<(String, jsonpath::Path)>),
}

impl FromStr for Output {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (format, argument) = match text.split_once('=') {
            Some((format, argument)) => (format, Some(argument)),
            None => (text, None),
        };
        match (format, argument) {
            ("table", None) => Ok(Self::Table),
            ("wide", None) => Ok(Self::Wide),
            ("yaml", None) => Ok(Self::Yaml),
            ("json", None) => Ok(Self::Json),
            ("name", None) => Ok(Self::Name),
            ("jsonpath", Some(template)) => {
                Template::parse(template).map(Self::JsonPath).map_err(|error| error.to_string())
            }
            ("custom-columns", Some(columns)) => {
                let column = |text: &str| {
                    let (title, path) = text
                        .split_once(':')
                        .ok_or_else(|| format!("column {text:?} is not TITLE:PATH"))?;
                    let path = jsonpath::Path::parse(path).map_err(|error| error.to_string())?;
                    Ok((title.to_owned(), path))
                };
                columns.split(',').map(column).collect::<Result<_, String>>().map(Self::Columns)
            }
            (_, _) => Err("expected table, wide, yaml, json, name, jsonpath=TEMPLATE or \
                           custom-columns=TITLE:PATH,..."
                .to_owned()),
        }
    }
}

/// A request: all objects of a kind, or one of them.
struct ObjectQuery<'k> {
    kind: &'k Kind,
    name: Option<String>,
}

/// Fetches the objects and prints them.
pub(crate) fn run(args: &GetArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    let sort = args.sort_by.as_deref().map(jsonpath::Path::parse).transpose();
    let sort = sort.map_err(|error| error_with_hint(error.to_string(), "write --sort-by .a.b"))?;
    remote::block_on(async {
        let client = args.connection.client().await?;
        let kinds = Kinds::fetch(&client).await?;
        let queries = queries(args, &kinds)?;
        if args.watch {
            return watch::run(args, &client, &queries, screen).await;
        }
        match &args.output {
            Output::Table | Output::Wide => {
                tables(args, &client, &queries, sort.as_ref(), screen).await
            }
            Output::Yaml
            | Output::Json
            | Output::Name
            | Output::JsonPath(_)
            | Output::Columns(_) => objects(args, &client, &queries, sort.as_ref(), screen).await,
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
    sort: Option<&jsonpath::Path>,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let several = queries
        .windows(2)
        .any(|pair| pair.first().map(|q| &q.kind) != pair.last().map(|q| &q.kind));
    let mut before: Option<&Kind> = None;
    let mut empty = true;
    for query in queries {
        let mut table: Table = fetch(args, client, query, table::ACCEPT, sort.is_some()).await?;
        if table.kind != "Table" {
            anyhow::bail!("the API server does not return tables; use -o yaml");
        }
        if table.rows.is_empty() {
            continue;
        }
        if let Some(path) = sort {
            table.rows.sort_by(|left, right| path.compare(&left.object, &right.object));
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
            Some(_) | None if args.no_headers => drop(lines.remove(0)),
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
    sort: Option<&jsonpath::Path>,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let mut found = Vec::new();
    for query in queries {
        let mut value: Value = fetch(args, client, query, "application/json", true).await?;
        match value.get_mut("items").and_then(Value::as_array_mut) {
            Some(items) => {
                for item in items.iter_mut() {
                    query.kind.mark(item);
                }
                found.append(items);
            }
            None => found.push(value),
        }
    }
    if let Some(path) = sort {
        found.sort_by(|left, right| path.compare(left, right));
    }
    let single = queries.len() == 1 && queries.iter().all(|query| query.name.is_some());
    let shown = match found.pop() {
        Some(only) if single => only,
        last => {
            found.extend(last);
            serde_json::json!({"apiVersion": "v1", "kind": "List", "items": found})
        }
    };
    write(args, &shown, screen)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes an object or a list in a format that is not a table of the API server.
fn write(args: &GetArgs, shown: &Value, screen: &mut Screen<'_>) -> anyhow::Result<()> {
    let items: Vec<&Value> = match shown.get("items").and_then(Value::as_array) {
        Some(items) => items.iter().collect(),
        None => vec![shown],
    };
    match &args.output {
        Output::Json => writeln!(screen, "{}", serde_json::to_string_pretty(shown)?)?,
        Output::Name => {
            for item in items {
                let kind = text(item, "/kind").to_lowercase();
                let api_version = text(item, "/apiVersion");
                let group = api_version.split_once('/').map(|(group, _)| format!(".{group}"));
                let group = group.unwrap_or_default();
                writeln!(screen, "{kind}{group}/{}", text(item, "/metadata/name"))?;
            }
        }
        Output::JsonPath(template) => write!(screen, "{}", template.render(shown))?,
        Output::Columns(columns) => {
            let titles = columns.iter().map(|(title, _)| title.clone()).collect();
            let mut lines: Vec<Vec<String>> =
                if args.no_headers { Vec::new() } else { vec![titles] };
            lines.extend(items.into_iter().map(|item| cells(columns, item)));
            table::write(screen, &lines)?;
        }
        Output::Yaml | Output::Table | Output::Wide => {
            screen.write_all(serde_saphyr::to_string(shown)?.as_bytes())?;
        }
    }
    Ok(())
}

fn cells(columns: &[(String, jsonpath::Path)], item: &Value) -> Vec<String> {
    let cell = |path: &jsonpath::Path| {
        let found: Vec<String> = path.find(item).into_iter().map(jsonpath::text).collect();
        if found.is_empty() { "<none>".to_owned() } else { found.join(",") }
    };
    columns.iter().map(|(_, path)| cell(path)).collect()
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

async fn fetch<T: serde::de::DeserializeOwned>(
    args: &GetArgs,
    client: &Client,
    query: &ObjectQuery<'_>,
    accept: &str,
    whole: bool,
) -> anyhow::Result<T> {
    // Without `includeObject`, rows have only the metadata of their objects.
    let parameters = if whole { "includeObject=Object" } else { "" };
    let path = path(args, client, query, parameters)?;
    let request = Request::get(path).header(ACCEPT, accept).body(Vec::new());
    let request = request.context("the name is not valid in a URL")?;
    client.request(request).await.map_err(remote::call_error)
}

/// Returns the path of a request with its parameters.
fn path(
    args: &GetArgs,
    client: &Client,
    query: &ObjectQuery<'_>,
    parameters: &str,
) -> anyhow::Result<String> {
    let everywhere = args.all_namespaces && query.name.is_none();
    let own = args.namespace.as_deref().unwrap_or(client.default_namespace());
    let namespace = (!everywhere).then_some(own);
    let mut path = query.kind.path(namespace, query.name.as_deref());
    path.extend(["?", parameters]);
    if let Some(selector) = &args.selector {
        if query.name.is_some() {
            let hint = "omit the name or the selector";
            return Err(error_with_hint("a name and a selector cannot be combined", hint));
        }
        path.push_str("&labelSelector=");
        path.extend(selector.bytes().map(escaped));
    }
    Ok(path)
}

/// Encodes a byte for a query string.
fn escaped(byte: u8) -> String {
    if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
        char::from(byte).to_string()
    } else {
        format!("%{byte:02X}")
    }
}
