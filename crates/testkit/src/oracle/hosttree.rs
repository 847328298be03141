//! Suite: a disk, a sequence of configs, and the disk after the reference applied each of them.
//!
//! The recording includes owners, so only root can run it. For other users every case passes.
//!
//! Intended differences:
//! - After a failed step the reference leaves the files it had written so far; `mco` leaves
//!   nothing. These files are not compared in later steps.
//! - `mco` does not update a drifted disk until the administrator allows it. The recording bypasses
//!   that check, so the suite allows it; the drifted paths are not compared.
//! - A path that moves from one section of a config to another, say from a drop-in to a file, keeps
//!   what the new section has written; the reference removes it.
//! - A link that older releases leaked is removed unless the config has its unit, which would be
//!   disabled without the link.
//! - systemd identifies units by name, so a link may lead from any of its directories to any other;
//!   those of `mco` lead to the file that takes effect.
//! - The file of a unit that a config names without contents stays when the config goes, because
//!   another program may own it.
//! - An account that is in no config any more gets a locked password instead of an empty one.

mod drift;
mod purpose;
mod start;
mod tree;
mod validation;

use std::collections::{BTreeMap, BTreeSet};

use mco_api::MachineConfig;
use mco_apply::{ParsedConfig, execute, ledger};
use mco_core::{
    machine::{self, Machine},
    plan::{self, ApplyMode, Circumstances, Force, Step, default_policies},
};
use mco_host::{Host, LEAKED_LINKS, SimulatedSystem, System as _, original};
use serde::Deserialize;
use serde_json::{Value, json};

use self::{
    drift::Drift,
    start::{Start, write_disk},
    tree::{RECORDS, Tree},
};
use super::{difference, parsed, text};

/// A service that no config names, whose reload is made to fail.
const HOOK: &str = "oracle-hook.service";

#[derive(Deserialize)]
struct Input {
    root: Start,
    steps: Vec<MachineConfig>,
    options: Vec<Options>,
    #[serde(default)]
    drifts: Vec<Drift>,
}

#[derive(Deserialize)]
struct Options {
    entry: String,
    #[serde(default)]
    force: bool,
    #[serde(default, rename = "postError")]
    post_error: String,
}

type Simulated = Host<SimulatedSystem>;

/// Returns the section of a config that writes each path.
fn sections(machine: &Machine) -> BTreeMap<String, &'static str> {
    let files = machine.config.storage.files.iter().map(|file| (file.path.clone(), "file"));
    let units = machine.config.systemd.units.iter().flat_map(|unit| {
        let dropins = unit.dropins.iter();
        let dropins = dropins.map(|it| (machine::dropin_path(&unit.name, &it.name), "drop-in"));
        dropins.chain([(machine::unit_path(&unit.name), "unit")])
    });
    files.chain(units).collect()
}

/// A sequence of steps, and the state after the steps so far.
struct Sequence {
    host: Simulated,
    /// The disk before the first step.
    first: Tree,
    /// The recorded difference to the first disk.
    recorded: Tree,
    /// The current config.
    from: MachineConfig,
    /// Paths that are not compared any more.
    excluded: BTreeSet<String>,
}

pub(super) fn check(input: &str, expect: &Value) -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let Input { root: start, steps, options, drifts } = parsed(input)?;
    // In memory if possible: the disk need not survive a power failure.
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let folder = folder.map_err(|error| error.to_string())?;
    let host = write_disk(folder.path(), &start).map_err(|error| error.to_string())?;
    let first = tree::of(&host.root)?;
    let from = MachineConfig::new(&Machine::blank().name, Machine::blank().spec);
    let (recorded, excluded) = (Tree::new(), BTreeSet::new());
    let mut play = Sequence { host, first, recorded, from, excluded };
    let list =
        |member: &str| expect.get(member).and_then(Value::as_array).cloned().unwrap_or_default();
    let (expected, verdicts) = (list("steps"), list("drifts"));
    for (number, ((to, options), expect)) in steps.iter().zip(&options).zip(&expected).enumerate() {
        let at = |text: String| format!("step {number}: {text}");
        let error = text(expect, "error").unwrap_or_default();
        if purpose::fails_on_left_mask(&play.from, to, error) {
            return Ok(());
        }
        play.step(to, options, expect).map_err(at)?;
        for (drift, expect) in drifts.iter().zip(&verdicts) {
            if drift.after_step == number {
                play.drift(drift, expect).map_err(at)?;
            }
        }
    }
    Ok(())
}

impl Sequence {
    fn step(
        &mut self,
        to: &MachineConfig,
        options: &Options,
        expect: &Value,
    ) -> Result<(), String> {
        let mut before = tree::of(&self.host.root)?;
        let recorded = tree::recorded(expect, &["changed", "bookkeeping"]);
        self.exclude_paths(to, &before, &recorded);
        match (self.apply(to, options, expect), text(expect, "error")) {
            (Ok(()), None) => {
                self.recorded = recorded;
                self.from = to.clone();
                self.compare(to, expect)
            }
            (Err(_), Some(_)) => {
                let mut after = tree::of(&self.host.root)?;
                // The directory of the daemon's records may stay.
                after.remove(RECORDS);
                before.remove(RECORDS);
                if let Some(difference) = difference(&json!(before), &json!(after)) {
                    return Err(format!("a failed step left files behind: {difference}"));
                }
                self.compare_failed(to, expect, &recorded)?;
                // The files that the reference leaves behind are part of all later trees.
                let left = tree::changes(&self.recorded, &recorded).into_keys();
                self.excluded.extend(left.filter(|path| *path != RECORDS));
                Ok(())
            }
            (Ok(()), Some(error)) => Err(format!("allowed, expected {error}")),
            (Err(error), None) => Err(format!("rejected: {error}")),
        }
    }

    fn drift(&mut self, drift: &Drift, expect: &Value) -> Result<(), String> {
        let machine = Machine::read(&self.from).map_err(|error| error.to_string())?;
        drift::play(&mut self.host, drift, &machine, expect, &self.excluded)?;
        if drift.persist {
            self.excluded.extend(tree::recorded(expect, &["effect"]).into_keys());
        }
        Ok(())
    }

    /// Compares the validation of the disk after a failed step.
    fn compare_failed(
        &self,
        to: &MachineConfig,
        expect: &Value,
        recorded: &Tree,
    ) -> Result<(), String> {
        let from = Machine::read(&self.from).map_err(|error| error.to_string())?;
        if let Some(want) = text(expect, "validatePrevious").filter(|_| *recorded == self.recorded)
        {
            validation::compare(&self.host, &from, want, &self.excluded)?;
        }
        match (Machine::read(to), text(expect, "validateClass")) {
            (Err(_), Some("other")) => Ok(()),
            (Err(error), class) => {
                Err(format!("failed to parse the config ({error}), expected {class:?}"))
            }
            (Ok(_), Some("other")) => Err("the config parses, expected an error".to_owned()),
            (Ok(to), _) if *recorded == self.recorded => {
                let want = text(expect, "validate").unwrap_or("ok");
                validation::compare(&self.host, &to, want, &self.excluded)
            }
            (Ok(_), _) => Ok(()),
        }
    }

    /// Excludes paths on which `mco` differs on purpose.
    fn exclude_paths(&mut self, to: &MachineConfig, before: &Tree, recorded: &Tree) {
        let (Ok(from), Ok(to)) = (Machine::read(&self.from), Machine::read(to)) else { return };
        self.excluded.extend(purpose::paths_without_contents(&from, &to, [before, recorded]));
        self.excluded.extend(purpose::links_left_behind(&from, &to, recorded));
        let (old, new) = (sections(&from), sections(&to));
        for (path, section) in &old {
            if new.get(path).is_some_and(|now| now != section) {
                self.excluded.extend([path.clone(), original::stamp_path(path)]);
            }
        }
        for unit in &from.config.systemd.units {
            let path = machine::unit_path(&unit.name);
            let is_file = |found: mco_host::Stat| found.is_file();
            let is_there = self.host.root.stat(&path).ok().flatten().is_some_and(is_file);
            if to.unit(&unit.name).is_none() && !machine::has_file(unit) && is_there {
                self.excluded.insert(path);
            }
        }
        for link in LEAKED_LINKS {
            let unit = link.rsplit('/').next().unwrap_or(link);
            if to.unit(unit).is_some() {
                self.excluded.insert(link.to_owned());
            }
        }
    }

    fn apply(
        &mut self,
        to: &MachineConfig,
        options: &Options,
        expect: &Value,
    ) -> Result<(), String> {
        let read =
            |config: &MachineConfig| Machine::read(config).map_err(|error| error.to_string());
        let (source, target) = (read(&self.from)?, read(to)?);
        let writes_only = options.entry == "write";
        let has_drifted = validation::of(&self.host, &source) != "ok";
        if has_drifted && !options.force && text(expect, "error").is_some() {
            return Err("the disk has drifted".to_owned());
        }
        let circumstances = Circumstances {
            mode: if writes_only { ApplyMode::Rollback } else { ApplyMode::Serving },
            force: if options.force || has_drifted { Force::Yes } else { Force::No },
            ..Circumstances::default()
        };
        let mut plan = plan::node(&source, &target, &default_policies(), &circumstances)
            .map_err(|error| error.to_string())?;
        if writes_only {
            let is_other = |step: &Step| {
                matches!(step, Step::WriteKeys | Step::SetPassword | Step::RecordConfig)
            };
            plan.steps.retain(|step| !is_other(step));
        }
        // The recording replaces the last action by a hook.
        let is_action = |step: &Step| {
            matches!(
                step,
                Step::Reboot
                    | Step::ReloadService(_)
                    | Step::RestartService(_)
                    | Step::ReloadSystemd
            )
        };
        plan.steps.retain(|step| !is_action(step));
        if !options.post_error.is_empty() {
            plan.steps.push(Step::ReloadService(HOOK.to_owned()));
        }
        let parsed = |config: &MachineConfig| {
            ParsedConfig::read(config.clone()).map_err(|error| mco_cluster::report::chain(&error))
        };
        let (from, to) = (parsed(&self.from)?, parsed(to)?);
        let done = execute::begin(&mut self.host, &from, &to, plan, &mut |_| {});
        // The daemon keeps the files and retries the service; the reference rolls back.
        let kept = ledger::open(&self.host.root).map_err(|error| error.to_string())?;
        if let (Err(_), Some((update, progress))) = (&done, kept) {
            execute::withdraw(&mut self.host, &update, &progress)
                .map_err(|error| mco_cluster::report::chain(&error))?;
        }
        done.map(drop).map_err(|error| mco_cluster::report::chain(&error))
    }

    fn compare(&self, config: &MachineConfig, expect: &Value) -> Result<(), String> {
        let changed = tree::changes(&self.first, &tree::of(&self.host.root)?);
        let kept = |(path, _): &(String, Value)| !self.excluded.contains(path);
        let found: Tree = changed.into_iter().filter(kept).collect();
        let mut expected: Tree = self.recorded.clone().into_iter().filter(kept).collect();
        tree::accept_unit_directories(&mut expected, &found);
        if let Some(difference) = difference(&json!(expected), &json!(found)) {
            return Err(difference);
        }
        let machine = Machine::read(config).map_err(|error| error.to_string())?;
        if let Some(want) = text(expect, "validate") {
            validation::compare(&self.host, &machine, want, &self.excluded)?;
        }
        let units = expect.get("isEnabled").and_then(Value::as_object).cloned().unwrap_or_default();
        for (unit, want) in units {
            self.compare_unit(&unit, want.as_str().unwrap_or_default())?;
        }
        self.compare_password(text(expect, "passwordField"))
    }

    fn compare_unit(&self, unit: &str, want: &str) -> Result<(), String> {
        let found = self.host.system.unit_state(unit).map_err(|error| error.to_string())?;
        // The recording appends the exit code of systemctl to its word, and contains nothing for
        // missing units.
        let want = want.split(" (exit").next().unwrap_or_default();
        let want = if want.starts_with("(exit") { "not-found" } else { want };
        let is_aside = self.excluded.iter().any(|path| path.ends_with(&format!("/{unit}")));
        if found == want || is_aside {
            return Ok(());
        }
        Err(format!("{unit} is {found}, expected {want}"))
    }

    fn compare_password(&self, want: Option<&str>) -> Result<(), String> {
        let found = self.host.system.password("core").map_err(|error| error.to_string())?;
        match want {
            // An empty field would allow logins without a password; or the recorded machine has no
            // entry.
            None | Some("" | "<no entry>") => Ok(()),
            Some(want) if found.as_deref() == Some(want) => Ok(()),
            Some(want) => Err(format!("the password field is {found:?}, expected {want:?}")),
        }
    }
}
