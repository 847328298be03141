//! `mco why`: which MachineConfig put something there, and which ones lost.

use std::{io::Write as _, process::ExitCode, sync::Arc};

use mco_core::render::{Contribution, Item, Kind, Rendered};

use crate::{
    fault::{Advice, Place},
    load::{
        Object, Sources,
        manifests::{Manifests, Pool},
        node::{self, Node},
    },
    machine,
    print::{BOLD, Screen},
    suggest,
};

/// Say which MachineConfig put a file, unit or setting there
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WhyArgs {
    #[command(flatten)]
    sources: Sources,
    /// Pool to look at; all pools when left out
    #[arg(long, short, value_name = "POOL")]
    pool: Option<String>,
    /// How to print
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
    /// Path, UNIT, UNIT/DROPIN, user, kernel argument, extension, or setting such as osImageURL
    #[arg(value_name = "WHAT", required = true)]
    wanted: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
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

/// Prints, for each thing asked for and each pool, the configs that speak about it.
pub(crate) fn run(
    args: &WhyArgs,
    verbose: bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let manifests = Manifests::new(args.sources.load()?).or_refuse()?;
    manifests.tell(verbose);
    let rendered = manifests.render_all(args.pool.as_deref())?;
    let mut findings = Vec::new();
    for wanted in &args.wanted {
        let before = findings.len();
        for (pool, rendered) in &rendered {
            findings.extend(find(&manifests, pool, rendered, wanted));
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

/// One thing in one pool.
struct Finding {
    pool: String,
    kind: Kind,
    key: String,
    said: Vec<Said>,
}

/// What one config says about it.
struct Said {
    config: String,
    place: Option<Place>,
    members: Vec<&'static str>,
    /// Members on which a later config has the last word.
    lost: Vec<&'static str>,
    verdict: Verdict,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Wins,
    Shares,
    Overridden,
}

fn find(manifests: &Manifests, pool: &Pool, rendered: &Rendered, wanted: &str) -> Vec<Finding> {
    let names = [wanted.to_owned(), machine::unit_name(wanted)];
    let items = rendered.provenance.items().filter(|(item, _)| names.contains(&item.key));
    items
        .map(|(item, contributions)| Finding {
            pool: pool.name.to_string(),
            kind: item.kind,
            key: item.key.clone(),
            said: contributions
                .iter()
                .enumerate()
                .map(|(index, said)| {
                    let later = contributions.get(index + 1..).unwrap_or_default();
                    speak(manifests, rendered, item, said, later)
                })
                .collect(),
        })
        .collect()
}

fn speak(
    manifests: &Manifests,
    rendered: &Rendered,
    item: &Item,
    said: &Contribution,
    later: &[Contribution],
) -> Said {
    let config = rendered.provenance.configs().get(said.config).cloned().unwrap_or_default();
    let is_lost = |member: &&&str| {
        !ADDED_UP.contains(member) && later.iter().any(|other| other.members.contains(member))
    };
    let lost: Vec<&'static str> = said.members.iter().filter(is_lost).copied().collect();
    let adds_up = matches!(item.kind, Kind::KernelArgument | Kind::Extension);
    // An entry that a later config has in another list (a link for a file) is gone altogether.
    let gone = later.iter().any(|other| other.list != said.list);
    let all_lost = !said.members.is_empty() && lost.len() == said.members.len();
    let verdict =
        if !adds_up && (gone || all_lost || (said.members.is_empty() && !later.is_empty())) {
            Verdict::Overridden
        } else if lost.is_empty() && (adds_up || later.is_empty()) {
            Verdict::Wins
        } else {
            Verdict::Shares
        };
    let found = manifests.configs.iter().find(|manifest| manifest.object.name == config);
    let place = found.map(|manifest| place(&manifest.object, item, said.list));
    Said { config, place, members: said.members.clone(), lost, verdict }
}

/// Where a config speaks of an item.
fn place(object: &Object, item: &Item, list: &str) -> Place {
    let spec = node::Path::of("spec");
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
    let entries = object.node.find(&list).map(Node::items).unwrap_or_default();
    let index = entries.iter().position(|entry| {
        let named = if key.is_empty() { Some(entry) } else { entry.get(key) };
        named.and_then(Node::as_str) == Some(name)
    });
    let path = index.map_or(list.clone(), |index| list.index(index));
    Place { file: Arc::clone(&object.file.name), at: Some(object.node.locate(&path)) }
}

/// Members that are lists, to which every config adds.
const ADDED_UP: [&str; 6] =
    ["sshAuthorizedKeys", "groups", "append", "options", "mountOptions", "dropins"];

impl Verdict {
    fn as_str(self) -> &'static str {
        match self {
            Self::Wins => "wins",
            Self::Shares => "in part",
            Self::Overridden => "overridden",
        }
    }
}

impl Finding {
    fn print(&self, screen: &mut Screen<'_>) -> std::io::Result<()> {
        screen.paint(BOLD, format_args!("{} {}", word(self.kind), self.key))?;
        writeln!(screen, " in pool {}:", self.pool)?;
        for said in self.said.iter().rev() {
            write!(screen, "  {:<10}  {}", said.verdict.as_str(), said.config)?;
            let members: Vec<String> = said
                .members
                .iter()
                .map(|member| {
                    let lost = said.verdict == Verdict::Shares && said.lost.contains(member);
                    format!("{member}{}", if lost { " (overridden)" } else { "" })
                })
                .collect();
            if !members.is_empty() {
                write!(screen, "  sets {}", members.join(", "))?;
            }
            match &said.place {
                Some(place) => writeln!(screen, "  [{place}]")?,
                None => writeln!(screen)?,
            }
        }
        Ok(())
    }

    fn to_json(&self) -> serde_json::Value {
        let said = self.said.iter().rev().map(|said| {
            serde_json::json!({
                "config": said.config,
                "place": said.place.as_ref().map(ToString::to_string),
                "sets": said.members,
                "overridden": said.lost,
                "verdict": said.verdict.as_str(),
            })
        });
        serde_json::json!({
            "pool": self.pool,
            "kind": self.kind,
            "key": self.key,
            "configs": said.collect::<Vec<_>>(),
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
    Advice::error(format!("no MachineConfig in the input says anything about {wanted}"), hint)
}
