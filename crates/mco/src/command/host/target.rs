//! The machine, and the config it is to have.

mod ignition;
mod policy;

use std::{
    io::{self, IsTerminal as _, Write as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use mco_api::{
    MachineConfig,
    machine_configuration::{StorageOverride, disruption::ClusterPolicies},
};
use mco_core::{
    adopt,
    machine::Machine,
    plan::{self, Circumstances, Force, NodePlan, default_policies},
};
use mco_daemon::{disk, verify};
use mco_host::{Host, Lock, OfflineSystem, Root, System, SystemdSystem};

use self::policy::Knobs;
use crate::{
    fault::Advice,
    load::{Sources, manifests::Manifests},
};

/// A machine of whatever kind turned out to be there.
pub(super) type Lone = Host<Box<dyn System>>;

/// The manifests, where they are not the applied config
#[derive(Debug, clap::Args)]
pub(super) struct Given {
    /// File or directory with manifests; the applied config when left out
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Read directories below the given ones too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Pool to render, where the manifests have several
    #[arg(long, short, value_name = "POOL")]
    pool: Option<String>,
}

/// What applying a config to a machine takes.
pub(super) struct Way {
    pub(super) from: MachineConfig,
    pub(super) to: MachineConfig,
    /// None where there is nothing to do.
    pub(super) plan: Option<NodePlan>,
}

/// Opens the machine whose root is at `path`.
pub(super) fn open(path: &Path) -> anyhow::Result<Lone> {
    let root = Root::open(path)?;
    let system: Box<dyn System> = if SystemdSystem::runs_in(&root)? {
        Box::new(SystemdSystem::open(path)?)
    } else {
        Box::new(OfflineSystem::open(&root)?)
    };
    Ok(Host { root, system })
}

/// Whether the machine runs.
pub(super) fn is_running(host: &Lone) -> anyhow::Result<bool> {
    Ok(!host.system.facts()?.boot_id.is_empty())
}

/// Keeps others of us, the daemon included, from the machine for as long as the result is held.
pub(super) fn lock(host: &Lone) -> anyhow::Result<Lock> {
    host.root.lock(disk::RECORDS)?.ok_or_else(|| {
        Advice::error(
            "another mco is at work on this machine",
            "wait until it is done; the daemon of a node must be stopped first",
        )
    })
}

/// A config, and how a machine is to take it.
pub(super) struct Target {
    pub(super) config: MachineConfig,
    pub(super) policies: ClusterPolicies,
    pub(super) overrides: Vec<StorageOverride>,
}

impl Target {
    fn new(config: MachineConfig) -> Self {
        Self { config, policies: default_policies(), overrides: Vec::new() }
    }
}

/// What the manifests come to: MachineConfigs as a pool renders them, or one Ignition config as it is.
pub(super) fn render(
    sources: &Sources,
    pool: Option<&str>,
    verbose: bool,
) -> anyhow::Result<Target> {
    if let Some(config) = ignition::only(&sources.paths)? {
        return Ok(Target::new(config));
    }
    let mut loaded = sources.load()?;
    let knobs = policy::take(&mut loaded);
    let manifests = Manifests::new(loaded).or_refuse()?;
    manifests.tell(verbose);
    let rendered = manifests.render(manifests.pool(pool)?)?;
    let config = MachineConfig::new(rendered.name.as_str(), rendered.spec);
    Ok(Target { config, policies: knobs.policies, overrides: knobs.overrides })
}

/// The one config of a file, as it is: a MachineConfig, or an Ignition config.
pub(super) fn single(path: &Path) -> anyhow::Result<Target> {
    let text = path.to_string_lossy();
    if text.starts_with("http://") || text.starts_with("https://") {
        return Err(Advice::error(
            format!("{text} is an address, and nothing is fetched for --once-from"),
            format!("fetch it first: curl -fsSLo config.ign {text}"),
        ));
    }
    if let Some(config) = ignition::read(path)? {
        return Ok(Target::new(config));
    }
    let sources = Sources { paths: vec![path.to_owned()], recursive: false };
    let undeciphered = || format!("{}: {text}", ignition::UNDECIPHERED);
    let mut loaded = sources.load()?;
    let knobs = policy::take(&mut loaded);
    let manifests = Manifests::new(loaded).or_refuse().with_context(undeciphered)?;
    let [manifest] = manifests.configs.as_slice() else {
        return Err(Advice::error(
            format!("{text} has {} MachineConfigs, and one is applied", manifests.configs.len()),
            "apply several with mco host apply -f, which merges them as a pool does",
        ));
    };
    let Knobs { policies, overrides } = knobs;
    Ok(Target { config: manifest.value.clone(), policies, overrides })
}

impl Given {
    /// The config that the manifests come to, or the one that was applied.
    pub(super) fn config(&self, host: &Lone, verbose: bool) -> anyhow::Result<MachineConfig> {
        if !self.paths.is_empty() {
            let sources = Sources { paths: self.paths.clone(), recursive: self.recursive };
            return Ok(render(&sources, self.pool.as_deref(), verbose)?.config);
        }
        disk::current_config(&host.root)?.ok_or_else(|| {
            Advice::error("no config was applied to this machine", "name manifests with -f")
        })
    }
}

/// Reads a config.
pub(super) fn read(config: &MachineConfig) -> anyhow::Result<Machine> {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    Machine::read(config).with_context(|| format!("parsing config {name} failed"))
}

/// Plans the way from what the machine has to `to`.
pub(super) fn way(host: &Lone, to: Target, force: Force) -> anyhow::Result<Way> {
    let Target { config: to, policies, overrides } = to;
    let target = read(&to)?;
    let from = match disk::current_config(&host.root)? {
        Some(config) => config,
        None => present(host, &target)?,
    };
    let source = read(&from)?;
    if force == Force::No {
        refuse_drift(host, &source)?;
        if from.metadata.name == to.metadata.name {
            return Ok(Way { from, to, plan: None });
        }
    }
    let facts = host.system.facts()?;
    let kernel_fips = facts.kernel_fips;
    let circumstances = Circumstances { force, kernel_fips, overrides, ..Circumstances::default() };
    let plan = plan::node(&source, &target, &policies, &circumstances)?;
    Ok(Way { from, to, plan: Some(plan) })
}

/// What a machine that has no config on record has of `target` already.
fn present(host: &Lone, target: &Machine) -> anyhow::Result<MachineConfig> {
    let differs = verify::differing(host, &adopt::questions(target));
    let facts = host.system.facts()?;
    let image = facts.booted_image.filter(|image| !image.is_empty());
    let mut part = adopt::adopted(target, &differs, image.as_deref(), &facts.kernel_arguments);
    // The record itself is missing, so that even a machine that has everything has a step to take.
    if part.metadata.name.as_deref() == Some(target.name.as_str()) {
        part.metadata.name = Some(format!("{}present", adopt::PREFIX));
    }
    Ok(part)
}

fn refuse_drift(host: &Lone, source: &Machine) -> anyhow::Result<()> {
    let drifts = verify::all(host, source)?;
    let Some(first) = drifts.first() else { return Ok(()) };
    let more = match drifts.len() - 1 {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    Err(Advice::error(
        format!("unexpected on-disk state validating against {}: {first}{more}", source.name),
        "look with mco host verify; repair it, or add --force to write everything again",
    ))
}

/// Asks a person, who may have said yes beforehand.
pub(super) fn confirm(question: &str, yes: bool) -> anyhow::Result<()> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(Advice::error(
            "nobody is there to be asked",
            "add --yes, or run it on a terminal",
        ));
    }
    write!(io::stderr(), "{question} [y/N] ")?;
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(anyhow::anyhow!("not confirmed, so nothing was changed")),
    }
}
