//! The stages of a join, each of which can be repeated.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use mco_apply::{
    disk, execute,
    join::{self, Applied, JoinRecord, JoinStage},
    program::Program,
};
use mco_cluster::report::chain;
use mco_core::{
    lint,
    plan::{NodePlan, Step},
    served_config::{self, ServedConfig},
};
use mco_host::{Host, Lock, Root, System as _, SystemdSystem};
use tokio::runtime::Runtime;

use super::{
    fetch, identity,
    node::{self, Waited},
    report::FailureReport,
    settings,
};
use crate::{
    command::host::confirm_with_user,
    error::{FaultsError, error_with_hint},
    load,
    print::{self, Screen},
};

/// Reboots into an operating system that does not come up before the join fails.
const MAX_REBOOTS: u32 = 2;

/// A join in progress.
pub(super) struct Join {
    pub(super) record: JoinRecord,
    /// Set if no confirmation is needed.
    pub(super) yes: bool,
    /// Set in the unit's own process, which cannot copy itself: the loader runs it.
    pub(super) is_resumed: bool,
    /// Time after which a node that has not registered is reported.
    pub(super) report_after: Duration,
    /// Held while the machine is changed; the daemon of the new node takes it afterwards.
    pub(super) lock: Option<Lock>,
    pub(super) runtime: Runtime,
}

/// Opens the machine whose root is at `path`. It must run systemd.
pub(super) fn open(path: &Path) -> anyhow::Result<Host<SystemdSystem>> {
    let root = Root::open(path)?;
    if !SystemdSystem::runs_in(&root)? {
        return Err(error_with_hint(
            "this machine does not run systemd",
            "run the command on the machine itself, as root, not in a container",
        ));
    }
    Ok(Host { root, system: SystemdSystem::open(path)? })
}

/// Locks the machine against other processes of `mco`.
pub(super) fn lock(host: &Host<SystemdSystem>) -> anyhow::Result<Lock> {
    host.root.lock(disk::RECORDS)?.ok_or_else(|| {
        error_with_hint(
            "another mco process is changing this machine",
            "wait until that process has ended; `systemctl status mco-join` shows a join at work",
        )
    })
}

impl Join {
    /// Carries out the stages that are left.
    pub(super) fn run(
        &mut self,
        host: &mut Host<SystemdSystem>,
        screen: &mut Screen<'_>,
    ) -> anyhow::Result<()> {
        loop {
            match self.record.stage {
                JoinStage::Fetching => self.fetch(host, screen)?,
                JoinStage::Applying => self.apply(host)?,
                JoinStage::Rebooting => {
                    if self.reboot(host, screen)? {
                        return Ok(());
                    }
                }
                JoinStage::Starting => self.start(host)?,
                JoinStage::Registering => {
                    self.lock = None;
                    self.register(host)?;
                    join::finish(host, Some(&self.record))?;
                    let JoinRecord { node, pool, .. } = &self.record;
                    writeln!(screen, "this machine has joined pool {pool} as {node}")?;
                    return Ok(());
                }
                JoinStage::Joined => return Ok(()),
            }
        }
    }

    /// Returns true if the machine was changed.
    pub(super) fn has_changed(&self) -> bool {
        self.record.stage != JoinStage::Fetching
    }

    /// Returns the name of the current step.
    pub(super) fn step(&self) -> &'static str {
        match self.record.stage {
            JoinStage::Fetching => "fetch",
            JoinStage::Applying => "apply",
            JoinStage::Rebooting => "reboot",
            JoinStage::Starting => "start",
            JoinStage::Registering | JoinStage::Joined => "register",
        }
    }

    fn advance(&mut self, host: &Host<SystemdSystem>, stage: JoinStage) -> anyhow::Result<()> {
        self.record.stage = stage;
        Ok(join::save(&host.root, &self.record)?)
    }

    /// Writes the record and installs the unit, so that the join continues after a power cut.
    fn keep(&self, host: &Host<SystemdSystem>) -> anyhow::Result<()> {
        join::save(&host.root, &self.record)?;
        if self.is_resumed {
            return Ok(());
        }
        Ok(join::install(&host.root, &Program::own()?)?)
    }

    fn fetch(
        &mut self,
        host: &mut Host<SystemdSystem>,
        screen: &mut Screen<'_>,
    ) -> anyhow::Result<()> {
        if self.yes {
            self.keep(host)?;
        }
        let document = if let Some(document) = join::document(&host.root)? {
            document
        } else {
            let server = settings::connect(&self.record)?;
            let machine = identity::machine(&host.root, &host.system, &self.record);
            print::note(&format!(
                "fetching the config of pool {} from {}",
                self.record.pool,
                server.address()
            ));
            self.runtime.block_on(fetch::fetch(&server, &self.record.pool, &machine))?
        };
        let served = read(&document)?;
        let plan = join::plan(host, &served)?;
        summarize(&self.record, &served, &plan, screen)?;
        confirm_with_user(&format!("Join pool {}?", self.record.pool), self.yes)?;
        join::keep_document(&host.root, &document)?;
        join::hold(host)?;
        self.record.stage = JoinStage::Applying;
        self.keep(host)
    }

    fn served(host: &Host<SystemdSystem>) -> anyhow::Result<ServedConfig> {
        let document = join::document(&host.root)?;
        read(&document.context("the fetched config is lost; remove the record of the join")?)
    }

    fn apply(&mut self, host: &mut Host<SystemdSystem>) -> anyhow::Result<()> {
        let served = Self::served(host)?;
        join::hold(host)?;
        if self.record.is_renamed {
            join::set_node_name(host, &self.record.node)?;
        }
        let mut show = |step: &Step| print::note(&step.to_string());
        let applied = join::apply(host, &served, &mut show)?;
        match applied {
            Applied::Complete => {
                join::release(&host.root)?;
                self.advance(host, JoinStage::Starting)
            }
            Applied::RebootDue => {
                self.record.rebooted_from = host.system.facts()?.boot_id;
                self.record.reboots += 1;
                self.advance(host, JoinStage::Rebooting)
            }
        }
    }

    /// Reboots the machine; returns false if it has rebooted.
    fn reboot(
        &mut self,
        host: &mut Host<SystemdSystem>,
        screen: &mut Screen<'_>,
    ) -> anyhow::Result<bool> {
        if host.system.facts()?.boot_id == self.record.rebooted_from {
            let config = disk::current_name(&host.root)?.unwrap_or_default();
            execute::reboot(host, &config)?;
            writeln!(screen, "the machine reboots; mco-join.service continues the join")?;
            return Ok(true);
        }
        if join::has_booted(host, &Self::served(host)?)? {
            join::release(&host.root)?;
            self.advance(host, JoinStage::Starting)?;
        } else if self.record.reboots < MAX_REBOOTS {
            print::note("the machine booted its previous system; applying the config again");
            self.advance(host, JoinStage::Applying)?;
        } else {
            return Err(error_with_hint(
                "the machine booted its previous system twice",
                "check the boot loader, and run `mco join --continue`",
            ));
        }
        Ok(false)
    }

    /// Waits until the node exists, and reports once to the config server if that takes too long.
    fn register(&self, host: &Host<SystemdSystem>) -> anyhow::Result<()> {
        let wait = |limit| {
            let waited = node::wait(&host.root, &self.record.node, limit);
            self.runtime.block_on(waited)
        };
        if let Waited::Overdue(reason) = wait(Some(self.report_after))? {
            self.report(host, &reason);
            wait(None)?;
        }
        Ok(())
    }

    /// Reports a failure of the current step to the config server.
    pub(super) fn report(&self, host: &Host<SystemdSystem>, error: &str) {
        let report = FailureReport::of_join(&host.root, &host.system, &self.record);
        match report.and_then(|report| report.send(self.step(), error, &self.runtime)) {
            Ok(()) => print::note("the failure was reported to the config server"),
            Err(fault) => {
                print::note(&format!("the failure was not reported: {}", chain(fault.as_ref())));
            }
        }
    }

    fn start(&mut self, host: &mut Host<SystemdSystem>) -> anyhow::Result<()> {
        let served = Self::served(host)?;
        print::note("starting the units of the config");
        let mut warn = |unit: &str, error: &mco_host::SystemError| {
            print::note(&format!("{unit} did not start: {}", chain(error)));
        };
        join::start_units(host, &served, &mut warn)?;
        self.advance(host, JoinStage::Registering)
    }
}

/// Reads and checks a document, as `mco check` does.
fn read(document: &[u8]) -> anyhow::Result<ServedConfig> {
    let served = served_config::read(document)?;
    let text = serde_json::to_vec(&served.target).context("failed to write the config as JSON")?;
    let loaded = load::text(&PathBuf::from("served.json"), text);
    let faults = lint::check(&loaded.into_manifests());
    let errors: Vec<_> = faults.into_iter().filter(lint::Fault::is_error).collect();
    if !errors.is_empty() {
        return Err(anyhow::Error::new(FaultsError(errors)).context("the config has errors"));
    }
    Ok(served)
}

/// Writes what the join will do.
fn summarize(
    record: &JoinRecord,
    served: &ServedConfig,
    plan: &NodePlan,
    screen: &mut Screen<'_>,
) -> anyhow::Result<()> {
    let count = |is: fn(&Step) -> bool| plan.steps.iter().filter(|step| is(step)).count();
    let files = count(|step| matches!(step, Step::WriteFile(_)));
    let units = count(|step| matches!(step, Step::WriteUnit(_) | Step::WriteDropin { .. }));
    let config = served.target.metadata.name.as_deref().unwrap_or_default();
    writeln!(screen, "{} joins pool {} with {config}:", record.node, record.pool)?;
    writeln!(screen, "  write {files} files and {units} units and drop-ins")?;
    let system = plan.diff.system();
    if system.is_empty() {
        writeln!(screen, "  start {} without a reboot", served.units.join(", "))?;
    } else {
        writeln!(screen, "  change {} and reboot", system.join(", "))?;
    }
    screen.flush()?;
    Ok(())
}
