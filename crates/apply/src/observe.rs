//! Observes the records on a machine's disk.

use mco_api::MachineConfig;
use mco_core::{
    drift,
    lifecycle::{DiskView, UnfinishedUpdate},
};
use mco_host::{Host, System};

use crate::{
    confirm, disk,
    execute::ExecuteError,
    force,
    ledger::{self, LedgerError},
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
            is_booted: drift::compare_system(
                &ledger.to.spec,
                facts.booted_image.as_deref(),
                &facts.kernel_arguments,
            )
            .is_none(),
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
        rolled_back: confirm::rolled_back(&host.root)?,
    })
}

fn name_of(config: &MachineConfig) -> String {
    config.metadata.name.clone().unwrap_or_default()
}
