//! `mco diff`: prints the differences between two configs, decoded.

use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use similar::TextDiff;

use crate::{
    decoded::DecodedConfig,
    diff::{self, Change, ChangeKind, Contents, Secrets},
    print::{BOLD, CYAN, GREEN, RED, Screen, visible},
    reference::{self, ClusterObjects},
    remote::{self, Connection},
    target,
};

/// Compare two configs: files, units, users, kernel arguments and the OS image, decoded
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DiffArgs {
    /// File with a MachineConfig, manifests to render one from, or a pool, node or MachineConfig of the
    /// cluster
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// As OLD. If omitted, OLD is a node, which is compared with its pool, or a pool or rendered config,
    /// which is compared with the rendered config before
    #[arg(value_name = "NEW")]
    new: Option<PathBuf>,
    /// Pool to render, if the manifests have several
    #[arg(long, short, value_name = "POOL")]
    pool: Option<String>,
    /// Read subdirectories too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
    /// Show lines that look like passwords, tokens or private keys
    #[arg(long)]
    show_secrets: bool,
    #[command(flatten)]
    connection: Connection,
}

const EXAMPLES: &str = "\
Examples:
  mco diff worker-0                              what the node still has to change
  mco diff worker                                the last change of the pool
  mco diff worker-0 worker-1                     the configs of two nodes
  mco diff worker manifests/ --pool worker       the cluster and the manifests
  mco diff rendered-worker-old.yaml rendered-worker-new.yaml
  mco diff manifests-main/ manifests-branch/ --pool worker
  mco diff <(kubectl get mc rendered-worker-… -o yaml) manifests/ --pool worker

Exit status: 0 equal, 1 different, 2 failure. Contents are compared after decoding.";

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum Output {
    #[default]
    Text,
    Json,
}

/// Exits as diff(1) does.
pub(crate) fn run(
    args: &DiffArgs,
    verbose: bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let (old, new) = configs(args, verbose)?;
    let secrets = if args.show_secrets { Secrets::Show } else { Secrets::Hide };
    let changes = diff::between(&old, &new, secrets);
    match args.output {
        Output::Text => {
            for change in &changes {
                print(change, screen)?;
            }
        }
        Output::Json => {
            let changes: Vec<serde_json::Value> = changes.iter().map(to_json).collect();
            let document =
                serde_json::json!({ "old": old.name, "new": new.name, "changes": changes });
            serde_json::to_writer_pretty(&mut *screen, &document)?;
            writeln!(screen)?;
        }
    }
    Ok(ExitCode::from(u8::from(!changes.is_empty())))
}

/// Reads both configs, from files or from the cluster.
fn configs(args: &DiffArgs, verbose: bool) -> anyhow::Result<(DecodedConfig, DecodedConfig)> {
    let pool = args.pool.as_deref();
    let read = |path: &Path| target::read(path, args.recursive, pool, verbose);
    let is_file = |path: &Path| is_path(path) || path.exists();
    match &args.new {
        Some(new) if is_file(&args.old) && is_file(new) => Ok((read(&args.old)?, read(new)?)),
        new => remote::block_on(async {
            let client = args.connection.client().await?;
            let objects = ClusterObjects::fetch(&client).await?;
            let config = |path: &Path| {
                if is_file(path) {
                    return read(path);
                }
                reference::decoded(objects.config(&path.to_string_lossy())?)
            };
            if let Some(new) = new {
                return Ok((config(&args.old)?, config(new)?));
            }
            let (from, to) = objects.update(&args.old.to_string_lossy())?;
            Ok((reference::decoded(from)?, reference::decoded(to)?))
        }),
    }
}

/// Returns true for a path that is no name of an object.
fn is_path(path: &Path) -> bool {
    path == Path::new("-")
        || path.components().count() > 1
        || path.is_absolute()
        || path.extension().is_some_and(|it| it == "yaml" || it == "yml" || it == "json")
}

/// Prints a difference.
pub(super) fn print(change: &Change, screen: &mut Screen<'_>) -> io::Result<()> {
    let name = visible(&change.name);
    screen.paint(BOLD, format_args!("{} {name} {}", change.kind, word(change.operation)))?;
    writeln!(screen)?;
    for attribute in &change.attributes {
        let show = |value: &Option<String>| match value.as_deref() {
            None | Some("") => "(none)".to_owned(),
            Some(value) => visible(value),
        };
        write!(screen, "  {}: ", attribute.name)?;
        screen.paint(RED, show(&attribute.old))?;
        write!(screen, " -> ")?;
        screen.paint(GREEN, show(&attribute.new))?;
        writeln!(screen)?;
    }
    match &change.contents {
        None => Ok(()),
        Some(Contents::Hidden) => {
            writeln!(screen, "  lines with secrets differ; --show-secrets shows them")
        }
        Some(Contents::Binary { old, new }) => {
            writeln!(screen, "  binary contents differ: {old} bytes -> {new} bytes")
        }
        Some(Contents::Text { old, new }) => print_text(change, old, new, screen),
    }
}

fn print_text(change: &Change, old: &str, new: &str, screen: &mut Screen<'_>) -> io::Result<()> {
    for line in unified(change, old, new).split_inclusive('\n') {
        let text = visible(line);
        let text = text.trim_end_matches('\n');
        match line.as_bytes().first() {
            Some(b'+') => screen.paint(GREEN, text)?,
            Some(b'-') => screen.paint(RED, text)?,
            Some(b'@') => screen.paint(CYAN, text)?,
            _ => write!(screen, "{text}")?,
        }
        writeln!(screen)?;
    }
    Ok(())
}

fn unified(change: &Change, old: &str, new: &str) -> String {
    let side = |letter: char, absent: ChangeKind| {
        if change.operation == absent {
            return "/dev/null".to_owned();
        }
        let name = change.name.trim_start_matches('/');
        format!("{letter}/{name}")
    };
    let (old_name, new_name) = (side('a', ChangeKind::Added), side('b', ChangeKind::Removed));
    TextDiff::from_lines(old, new).unified_diff().header(&old_name, &new_name).to_string()
}

fn to_json(change: &Change) -> serde_json::Value {
    let attributes: serde_json::Map<String, serde_json::Value> = change
        .attributes
        .iter()
        .map(|attribute| {
            let value = serde_json::json!({ "old": attribute.old, "new": attribute.new });
            (attribute.name.to_owned(), value)
        })
        .collect();
    let mut value = serde_json::json!({
        "kind": change.kind,
        "name": change.name,
        "change": word(change.operation),
        "attributes": attributes,
    });
    let contents = match &change.contents {
        None => return value,
        Some(Contents::Hidden) => serde_json::json!({ "hidden": true }),
        Some(Contents::Binary { old, new }) => {
            serde_json::json!({ "binary": { "oldBytes": old, "newBytes": new } })
        }
        Some(Contents::Text { old, new }) => {
            serde_json::json!({ "diff": unified(change, old, new) })
        }
    };
    if let Some(object) = value.as_object_mut() {
        object.insert("contents".to_owned(), contents);
    }
    value
}

fn word(operation: ChangeKind) -> &'static str {
    match operation {
        ChangeKind::Added => "added",
        ChangeKind::Removed => "removed",
        ChangeKind::Changed => "changed",
    }
}
