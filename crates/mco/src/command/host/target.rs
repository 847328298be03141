//! The machine of `mco host`, its desired config, and the plan to get there.

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
use mco_apply::{ParsedConfig, disk, verify};
use mco_core::{
    adopt,
    machine::Machine,
    plan::{Circumstances, Force, NodePlan, default_policies},
};
use mco_host::{Host, HostFacts, Lock, OfflineSystem, Root, System, SystemdSystem};

use self::policy::UpdateSettings;
use crate::{
    error::error_with_hint,
    load::{Sources, manifests::ManifestsExt as _},
};

/// The machine at the given root, with the system found there.
pub(crate) type LocalHost = Host<Box<dyn System>>;

/// The config to compare with
#[derive(Debug, clap::Args)]
pub(super) struct ConfigArgs {
    /// File or directory with manifests; the applied config if omitted
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Read subdirectories too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Pool to render, if the manifests have several
    #[arg(long, short, value_name = "POOL")]
    pool: Option<String>,
}

/// The update of a machine from one config to another.
pub(super) struct Transition {
    pub(super) from: ParsedConfig,
    pub(super) to: ParsedConfig,
    /// Steps of the update; `None` if there is nothing to do.
    pub(super) plan: Option<NodePlan>,
}

/// Opens the machine whose root is at `path`.
pub(crate) fn open(path: &Path) -> anyhow::Result<LocalHost> {
    let root = Root::open(path)?;
    let system: Box<dyn System> = if SystemdSystem::runs_in(&root)? {
        Box::new(SystemdSystem::open(path)?)
    } else {
        Box::new(OfflineSystem::open(&root)?)
    };
    Ok(Host { root, system })
}

/// Returns true if the machine is running.
pub(super) fn is_running(host: &LocalHost) -> anyhow::Result<bool> {
    Ok(!host.system.facts()?.boot_id.is_empty())
}

/// Locks the machine against other processes of `mco`, the daemon included, until the result is
/// dropped.
pub(super) fn lock(host: &LocalHost) -> anyhow::Result<Lock> {
    host.root.lock(disk::RECORDS)?.ok_or_else(|| {
        error_with_hint(
            "another mco process is changing this machine",
            "wait until that process has ended, or stop the daemon of the node",
        )
    })
}

/// The desired config of a machine, with the settings of the update.
pub(super) struct DesiredConfig {
    pub(super) config: MachineConfig,
    pub(super) policies: ClusterPolicies,
    pub(super) overrides: Vec<StorageOverride>,
}

impl DesiredConfig {
    fn new(config: MachineConfig) -> Self {
        Self { config, policies: default_policies(), overrides: Vec::new() }
    }
}

/// Renders the desired config from the manifests: MachineConfigs as a pool renders them, or one
/// Ignition config unchanged.
pub(super) fn render(
    sources: &Sources,
    pool: Option<&str>,
    verbose: bool,
) -> anyhow::Result<DesiredConfig> {
    if let Some(config) = ignition::only(&sources.paths)? {
        return Ok(DesiredConfig::new(config));
    }
    let mut loaded = sources.load()?;
    let settings = policy::take(&mut loaded);
    let manifests = loaded.into_manifests().or_refuse()?;
    manifests.print_notes(verbose);
    let rendered = manifests.render(manifests.pool(pool)?)?;
    let config = MachineConfig::new(rendered.name.as_str(), rendered.spec);
    Ok(DesiredConfig { config, policies: settings.policies, overrides: settings.overrides })
}

/// Reads the one config of a file unchanged: a MachineConfig, or an Ignition config.
pub(super) fn single(path: &Path) -> anyhow::Result<DesiredConfig> {
    let text = path.to_string_lossy();
    if text.starts_with("http://") || text.starts_with("https://") {
        return Err(error_with_hint(
            format!("{text} is a URL, which --once-from does not fetch"),
            format!("download the file first: curl -fsSLo config.ign {text}"),
        ));
    }
    if let Some(config) = ignition::read(path)? {
        return Ok(DesiredConfig::new(config));
    }
    let sources = Sources { paths: vec![path.to_owned()], recursive: false };
    let undeciphered = || format!("{}: {text}", ignition::UNDECIPHERED);
    let mut loaded = sources.load()?;
    let settings = policy::take(&mut loaded);
    let manifests = loaded.into_manifests().or_refuse().with_context(undeciphered)?;
    let [manifest] = manifests.configs.as_slice() else {
        return Err(error_with_hint(
            format!("{text} has {} MachineConfigs instead of one", manifests.configs.len()),
            "apply several with `mco host apply -f`, which merges them as a pool does",
        ));
    };
    let UpdateSettings { policies, overrides } = settings;
    Ok(DesiredConfig { config: manifest.value.clone(), policies, overrides })
}

impl ConfigArgs {
    /// Returns the config rendered from the manifests, or the applied config without manifests.
    pub(super) fn read(&self, host: &LocalHost, verbose: bool) -> anyhow::Result<MachineConfig> {
        if !self.paths.is_empty() {
            let sources = Sources { paths: self.paths.clone(), recursive: self.recursive };
            return Ok(render(&sources, self.pool.as_deref(), verbose)?.config);
        }
        disk::current_config(&host.root)?.ok_or_else(|| {
            error_with_hint("no config was applied to this machine", "name manifests with -f")
        })
    }
}

/// Parses a config.
pub(super) fn read(config: &MachineConfig) -> anyhow::Result<Machine> {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    Machine::read(config).with_context(|| format!("parsing config {name} failed"))
}

/// Plans the update of the machine from its current config to `to`.
pub(super) fn plan(
    host: &LocalHost,
    to: DesiredConfig,
    force: Force,
) -> anyhow::Result<Transition> {
    let DesiredConfig { config: to, policies, overrides } = to;
    let to = ParsedConfig::read(to)?;
    let from = match disk::current_config(&host.root)? {
        Some(config) => config,
        None => adopted_config(host, &to.machine)?,
    };
    let from = ParsedConfig::read(from)?;
    if force == Force::No {
        refuse_drift(host, &from.machine)?;
        if from.object.metadata.name == to.object.metadata.name {
            return Ok(Transition { from, to, plan: None });
        }
    }
    let facts = host.system.facts()?;
    let kernel_fips = facts.kernel_fips;
    let circumstances = Circumstances { force, kernel_fips, overrides, ..Circumstances::default() };
    let mut present = Machine::clone(&from.machine);
    if force == Force::Yes {
        forget_lost_system(&mut present, &facts);
    }
    let plan = mco_core::plan::node(&present, &to.machine, &policies, &circumstances)?;
    host.check_paths(&from.machine, &to.machine, &plan)?;
    Ok(Transition { from, to, plan: Some(plan) })
}

/// Removes the image and the kernel arguments from a config that the machine does not run, so that
/// the plan stages them again.
fn forget_lost_system(config: &mut Machine, facts: &HostFacts) {
    let booted = facts.booted_image.as_deref().unwrap_or_default();
    if !booted.is_empty() && !config.spec.os_image_url.is_empty() {
        booted.clone_into(&mut config.spec.os_image_url);
    }
    let is_present = |token: &str| facts.kernel_arguments.iter().any(|found| found == token);
    config.spec.kernel_arguments.retain(|text| text.split_whitespace().all(is_present));
}

/// Returns the parts of `target` that a machine without a config on record already has.
fn adopted_config(host: &LocalHost, target: &Machine) -> anyhow::Result<MachineConfig> {
    let differs = verify::differing(host, &adopt::checks(target));
    let facts = host.system.facts()?;
    let image = facts.booted_image.filter(|image| !image.is_empty());
    let mut part = adopt::adopted(target, &differs, image.as_deref(), &facts.kernel_arguments);
    // The record itself is missing, so that even a machine with the whole config has a step to do.
    if part.metadata.name.as_deref() == Some(target.name.as_str()) {
        part.metadata.name = Some(format!("{}present", adopt::PREFIX));
    }
    Ok(part)
}

fn refuse_drift(host: &LocalHost, source: &Machine) -> anyhow::Result<()> {
    let drifts = verify::differences(host, source)?;
    let Some(first) = drifts.first() else { return Ok(()) };
    let more = match drifts.len() - 1 {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    Err(error_with_hint(
        format!("unexpected on-disk state validating against {}: {first}{more}", source.name),
        "run `mco host verify`; restore the files, or add --force to write all of them again",
    ))
}

/// Asks the user for a confirmation, unless `yes` is set.
pub(crate) fn confirm(question: &str, yes: bool) -> anyhow::Result<()> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(error_with_hint(
            "confirmation required, but standard input is no terminal",
            "add --yes, or run the command on a terminal",
        ));
    }
    write!(io::stderr(), "{question} [y/N] ")?;
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(anyhow::anyhow!("not confirmed; nothing was changed")),
    }
}
