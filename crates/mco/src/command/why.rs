//! `mco why`: prints the MachineConfigs that set an entry of a rendered config, and which one wins; for a
//! node or a pool, what an update changes and who changed it.

mod update;

use std::{io::Write as _, path::PathBuf, process::ExitCode, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mco_api::{MachineConfig, MachineConfiguration};
use mco_cluster::Api;
use mco_core::{
    history,
    lint::{FieldPath, Location, Manifests, Object, Pool, SpannedValue, suggest},
    render::{Contribution, Item, Kind, Rendered},
};

use self::update::Update;
use crate::{
    decoded,
    error::error_with_hint,
    live,
    load::{Sources, manifests::ManifestsExt as _},
    plan::input::policies,
    print::{BOLD, Screen},
    reference::ClusterObjects,
    remote::{self, Connection},
};

/// Show the MachineConfigs that set a file, unit or setting, or that make a node update
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WhyArgs {
    /// File or directory with manifests, or - for standard input; may be repeated. The cluster if omitted
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Read subdirectories too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Pool to search; all pools if omitted
    #[arg(long, short, value_name = "POOL")]
    pool: Option<String>,
    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
    /// Path, UNIT, UNIT/DROPIN, user, kernel argument, extension, or setting such as osImageURL; in a
    /// cluster also a node, a pool or a rendered config
    #[arg(value_name = "NAME", required = true)]
    wanted: Vec<String>,
    #[command(flatten)]
    connection: Connection,
}

const EXAMPLES: &str = "\
Examples:
  mco why worker-0                               why the node updates or reboots, and who changed what
  mco why worker                                 the last change of the pool
  mco why /etc/chrony.conf                       the MachineConfigs of the cluster that set a file
  mco why -f manifests/ --pool worker /etc/chrony.conf
  mco why -f manifests/ --pool worker kubelet.service/10-env.conf
  mco why -f manifests/ --pool worker nosmt
  mco why -f manifests/ osImageURL";

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum Output {
    #[default]
    Text,
    Json,
}

/// Prints the configs that set each given entry, per pool.
pub(crate) fn run(
    args: &WhyArgs,
    verbose: bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    if !args.paths.is_empty() {
        let sources = Sources { paths: args.paths.clone(), recursive: args.recursive };
        let manifests = sources.load()?.into_manifests().or_refuse()?;
        manifests.print_notes(verbose);
        return explain(args, &manifests, &args.wanted, screen);
    }
    remote::block_on(async {
        let client = args.connection.client().await?;
        let objects = ClusterObjects::fetch(&client).await?;
        let manifests = live::manifests(&client).await?.or_refuse()?;
        let (updates, entries): (Vec<_>, Vec<_>) =
            args.wanted.iter().cloned().partition(|name| objects.find(name).is_some());
        // Only the policies of the administrator are missing if the user may not read them.
        let configuration =
            Api::<MachineConfiguration>::all(client.clone()).get_opt("cluster").await;
        let policies = policies(configuration.ok().flatten().as_ref());
        for name in &updates {
            let update =
                Update { name, objects: &objects, manifests: &manifests, policies: &policies };
            update.explain(args.output, screen)?;
        }
        if entries.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        explain(args, &manifests, &entries, screen)
    })
}

/// Prints the configs that set each entry.
fn explain(
    args: &WhyArgs,
    manifests: &Manifests,
    entries: &[String],
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let rendered = manifests.render_all(args.pool.as_deref())?;
    let mut findings = Vec::new();
    for wanted in entries {
        let before = findings.len();
        for (pool, rendered) in &rendered {
            findings.extend(find(manifests, pool, rendered, wanted));
        }
        if findings.len() == before {
            return Err(unknown(wanted, &rendered));
        }
    }
    match args.output {
        Output::Text => findings.iter().try_for_each(|finding| finding.print(screen))?,
        Output::Json => {
            let values: Vec<serde_json::Value> = findings.iter().map(Finding::to_json).collect();
            serde_json::to_writer_pretty(&mut *screen, &values)?;
            writeln!(screen)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// An entry in one pool.
struct Finding {
    pool: String,
    kind: Kind,
    key: String,
    sources: Vec<ConfigSource>,
}

/// A config that sets the entry.
struct ConfigSource {
    config: String,
    location: Option<Location>,
    /// Last write of the config, if it comes from a cluster.
    written: Option<String>,
    members: Vec<&'static str>,
    /// Members that a later config overrides.
    overridden: Vec<&'static str>,
    precedence: Precedence,
}

/// The part of a config's entry that takes effect.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Precedence {
    Wins,
    Partial,
    Overridden,
}

fn find(manifests: &Manifests, pool: &Pool, rendered: &Rendered, wanted: &str) -> Vec<Finding> {
    let names = [wanted.to_owned(), decoded::unit_name(wanted)];
    let items = rendered.provenance.items().filter(|(item, _)| names.contains(&item.key));
    items
        .map(|(item, contributions)| Finding {
            pool: pool.name.to_string(),
            kind: item.kind,
            key: item.key.clone(),
            sources: contributions
                .iter()
                .enumerate()
                .map(|(index, contribution)| {
                    let later = contributions.get(index + 1..).unwrap_or_default();
                    source(manifests, rendered, item, contribution, later)
                })
                .collect(),
        })
        .collect()
}

fn source(
    manifests: &Manifests,
    rendered: &Rendered,
    item: &Item,
    own: &Contribution,
    later: &[Contribution],
) -> ConfigSource {
    let config = rendered.provenance.configs().get(own.config).cloned().unwrap_or_default();
    let is_overridden = |member: &&&str| {
        !APPENDED.contains(member) && later.iter().any(|other| other.members.contains(member))
    };
    let overridden: Vec<&'static str> = own.members.iter().filter(is_overridden).copied().collect();
    let is_appended = matches!(item.kind, Kind::KernelArgument | Kind::Extension);
    // An entry that a later config has in another list, such as a link for a file, is replaced.
    let replaced = later.iter().any(|other| other.list != own.list);
    let all = !own.members.is_empty() && overridden.len() == own.members.len();
    let is_empty = own.members.is_empty() && !later.is_empty();
    let precedence = if !is_appended && (replaced || all || is_empty) {
        Precedence::Overridden
    } else if overridden.is_empty() && (is_appended || later.is_empty()) {
        Precedence::Wins
    } else {
        Precedence::Partial
    };
    let found = manifests.all_configs().find(|manifest| manifest.object.name == config);
    let location = found.map(|manifest| location(&manifest.object, item, own.list));
    let location = location.filter(|location| &*location.file != live::CLUSTER);
    let written = found.and_then(|manifest| written(&manifest.value));
    ConfigSource { config, location, written, members: own.members.clone(), overridden, precedence }
}

/// Returns who wrote a config of a cluster last, and when.
fn written(config: &MachineConfig) -> Option<String> {
    let entry = history::last_write(config, None)?;
    let by = entry.manager.as_deref().unwrap_or("unknown");
    let at = entry.time.as_ref().map(|Time(time)| format!(" at {time:.0}")).unwrap_or_default();
    Some(format!("written by {by}{at}"))
}

/// Returns the location of an item in a config.
fn location(object: &Object, item: &Item, list: &str) -> Location {
    let spec = FieldPath::of("spec");
    let config = spec.member("config");
    let (list, key, name) = match item.kind {
        Kind::Path => (config.member("storage").member(list), "path", item.key.as_str()),
        Kind::Disk | Kind::Filesystem => {
            (config.member("storage").member(list), "device", item.key.as_str())
        }
        Kind::Luks | Kind::Raid => {
            (config.member("storage").member(list), "name", item.key.as_str())
        }
        Kind::Unit => (config.member("systemd").member("units"), "name", item.key.as_str()),
        Kind::Dropin => {
            let unit = item.key.split('/').next().unwrap_or_default();
            (config.member("systemd").member("units"), "name", unit)
        }
        Kind::User | Kind::Group => {
            (config.member("passwd").member(list), "name", item.key.as_str())
        }
        Kind::KernelArgument => (spec.member("kernelArguments"), "", item.key.as_str()),
        Kind::Extension => (spec.member("extensions"), "", item.key.as_str()),
        Kind::Setting => (spec.member(&item.key), "", ""),
    };
    let entries = object.root.find(&list).map(SpannedValue::items).unwrap_or_default();
    let index = entries.iter().position(|entry| {
        let named = if key.is_empty() { Some(entry) } else { entry.get(key) };
        named.and_then(SpannedValue::as_str) == Some(name)
    });
    let path = index.map_or(list.clone(), |index| list.index(index));
    Location { file: Arc::clone(&object.file.name), at: Some(object.root.locate(&path)) }
}

/// Lists to which every config appends.
const APPENDED: [&str; 6] =
    ["sshAuthorizedKeys", "groups", "append", "options", "mountOptions", "dropins"];

impl Precedence {
    fn as_str(self) -> &'static str {
        match self {
            Self::Wins => "wins",
            Self::Partial => "in part",
            Self::Overridden => "overridden",
        }
    }
}

impl Finding {
    fn print(&self, screen: &mut Screen<'_>) -> std::io::Result<()> {
        screen.paint(BOLD, format_args!("{} {}", word(self.kind), self.key))?;
        writeln!(screen, " in pool {}:", self.pool)?;
        for source in self.sources.iter().rev() {
            write!(screen, "  {:<10}  {}", source.precedence.as_str(), source.config)?;
            let members: Vec<String> = source
                .members
                .iter()
                .map(|member| {
                    let lost = source.precedence == Precedence::Partial
                        && source.overridden.contains(member);
                    format!("{member}{}", if lost { " (overridden)" } else { "" })
                })
                .collect();
            if !members.is_empty() {
                write!(screen, "  sets {}", members.join(", "))?;
            }
            match (&source.location, &source.written) {
                (Some(location), _) => writeln!(screen, "  [{location}]")?,
                (None, Some(written)) => writeln!(screen, "  [{written}]")?,
                (None, None) => writeln!(screen)?,
            }
        }
        Ok(())
    }

    fn to_json(&self) -> serde_json::Value {
        let configs = self.sources.iter().rev().map(|source| {
            let mut value = serde_json::json!({
                "config": source.config,
                "place": source.location.as_ref().map(ToString::to_string),
                "sets": source.members,
                "overridden": source.overridden,
                "verdict": source.precedence.as_str(),
            });
            if let (Some(written), Some(members)) = (&source.written, value.as_object_mut()) {
                members.insert("written".to_owned(), written.as_str().into());
            }
            value
        });
        serde_json::json!({
            "pool": self.pool,
            "kind": self.kind,
            "key": self.key,
            "configs": configs.collect::<Vec<_>>(),
        })
    }
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Path => "path",
        Kind::Unit => "unit",
        Kind::Dropin => "drop-in",
        Kind::User => "user",
        Kind::Group => "group",
        Kind::Disk => "disk",
        Kind::Filesystem => "filesystem",
        Kind::Luks => "encrypted volume",
        Kind::Raid => "array",
        Kind::KernelArgument => "kernel argument",
        Kind::Extension => "extension",
        Kind::Setting => "setting",
    }
}

fn unknown(wanted: &str, rendered: &[(&Pool, Rendered)]) -> anyhow::Error {
    let keys: Vec<&str> = rendered
        .iter()
        .flat_map(|(_, rendered)| rendered.provenance.items())
        .map(|(item, _)| item.key.as_str())
        .collect();
    let hint = match suggest::closest(wanted, keys) {
        Some(meant) => format!("did you mean {meant}?"),
        None => {
            "name an absolute path, UNIT, UNIT/DROPIN, user, kernel argument or setting".to_owned()
        }
    };
    error_with_hint(format!("no MachineConfig sets {wanted}"), hint)
}
