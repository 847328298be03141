//! Observes the records on a machine's disk.

use mco_api::MachineConfig;
use mco_core::{
    drift,
    lifecycle::{DiskView, UnfinishedUpdate},
    plan::{NodePlan, Step},
};
use mco_host::{Host, HostFacts, System, SystemError, os};

use crate::{
    confirm, disk,
    execute::ExecuteError,
    force,
    ledger::{self, Ledger, LedgerError, Progress, Resume},
    report::chain,
};

/// Reads the records on the disk.
pub fn disk_view<S: System>(host: &mut Host<S>) -> Result<DiskView, ExecuteError> {
    let facts = host.system.facts()?;
    let name = disk::current_name(&host.root)?;
    let (opened, unreadable) = match ledger::open(&host.root) {
        Ok(opened) => (opened, None),
        Err(error @ (LedgerError::Parse { .. } | LedgerError::Version { .. })) => {
            (None, Some(chain(&error)))
        }
        Err(error) => return Err(error.into()),
    };
    let update = match opened {
        None => None,
        Some((ledger, progress)) => Some(UnfinishedUpdate {
            from: name_of(&ledger.from),
            to: name_of(&ledger.to),
            is_booted: is_booted(host, &facts, &ledger, &progress)?,
            began_in: ledger.boot_id,
            progress,
            deadline: confirm::policy(&host.root)?.map(|policy| policy.deadline()),
        }),
    };
    Ok(DiskView {
        // A recorded config without a usable name is treated as not recorded.
        current: name.and_then(|name| name.parse().ok()),
        initial_annotations: disk::initial_annotations(&host.root)?,
        update,
        unreadable,
        boot_id: facts.boot_id,
        force: force::is_requested(&host.root).map_err(disk::DiskError::from)?,
        abandoned: force::is_of_abandoned(&host.root).map_err(disk::DiskError::from)?,
        rolled_back: confirm::rolled_back(&host.root)?,
    })
}

/// Returns true if the machine runs the system that the update leads to, as far as the machine tells.
///
/// A power cut, or a boot loader that falls back, loses the staged deployment. Image and arguments alone
/// do not show a lost kernel, a lost extension, or an argument that was to be removed.
fn is_booted<S: System>(
    host: &Host<S>,
    facts: &HostFacts,
    update: &Ledger,
    progress: &Progress,
) -> Result<bool, SystemError> {
    let (image, arguments) = (facts.booted_image.as_deref(), &facts.kernel_arguments);
    if drift::compare_system(&update.to.spec, image, arguments).is_some() {
        return Ok(false);
    }
    if ledger::resume(progress, &update.boot_id, &facts.boot_id) != Resume::Verify {
        return Ok(true);
    }
    if progress.staged && update.staged.is_some() && host.system.staged()? == update.staged {
        return Ok(false);
    }
    // Arguments that the menu has no longer: it was not read yet.
    for argument in removed_arguments(&update.plan).iter().filter(|it| arguments.contains(it)) {
        if !host.system.boots_with(argument)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the kernel arguments that a plan removes.
fn removed_arguments(plan: &NodePlan) -> Vec<String> {
    let removed = plan.steps.iter().filter_map(|step| {
        let Step::StageKernelArguments { remove, add } = step else { return None };
        Some((os::words(remove), os::words(add)))
    });
    removed.flat_map(|(gone, add)| gone.into_iter().filter(move |it| !add.contains(it))).collect()
}

fn name_of(config: &MachineConfig) -> String {
    config.metadata.name.clone().unwrap_or_default()
}
