//! Verifies the disk against a config.

use std::collections::BTreeSet;

use mco_core::{
    drift::{
        self, Account, Difference, Drift, Expected, FoundAccount, FoundOwner, Mode, Observed, Want,
    },
    machine::Machine,
};
use mco_host::{Host, Owner, System, SystemError, account};

use crate::report::chain;

/// Returns the first difference in files and units.
pub fn files<S: System>(host: &Host<S>, machine: &Machine) -> Option<Drift> {
    drift::expected(machine)
        .iter()
        .find_map(|expected| drift::compare(expected, &observe(host, expected)))
}

/// Returns every difference in files and units.
pub fn file_differences<S: System>(host: &Host<S>, machine: &Machine) -> Vec<Drift> {
    inspect(host, machine).into_iter().map(|difference| difference.drift).collect()
}

/// Returns every difference in files and units, with the state that the machine has instead.
pub fn inspect<S: System>(host: &Host<S>, machine: &Machine) -> Vec<Difference> {
    let differing = |expected: Expected| {
        let observed = observe(host, &expected);
        let drift = drift::compare(&expected, &observed)?;
        Some(Difference { expected, observed, drift })
    };
    drift::expected(machine).into_iter().filter_map(differing).collect()
}

/// Returns every difference, including the booted OS image and kernel arguments if the machine
/// runs.
pub fn differences<S: System>(
    host: &Host<S>,
    machine: &Machine,
) -> Result<Vec<Drift>, SystemError> {
    let facts = host.system.facts()?;
    let booted = facts.booted_image.as_deref();
    // A machine that does not run has booted nothing.
    let is_running = !facts.boot_id.is_empty();
    let system = drift::compare_system(&machine.spec, booted, &facts.kernel_arguments);
    let files = file_differences(host, machine);
    Ok(system.filter(|_| is_running).into_iter().chain(files).collect())
}

/// Returns the paths and units in `list` that differ on the machine.
pub fn differing<S: System>(host: &Host<S>, list: &[Expected]) -> BTreeSet<String> {
    let differs =
        |expected: &&Expected| drift::compare(expected, &observe(host, expected)).is_some();
    list.iter().filter(differs).map(|expected| expected.path.clone()).collect()
}

/// Returns the first difference, including the booted OS image and kernel arguments.
pub fn whole<S: System>(host: &Host<S>, machine: &Machine) -> Result<Option<Drift>, SystemError> {
    let facts = host.system.facts()?;
    let booted = facts.booted_image.as_deref();
    Ok(drift::compare_system(&machine.spec, booted, &facts.kernel_arguments)
        .or_else(|| files(host, machine)))
}

fn observe<S: System>(host: &Host<S>, expected: &Expected) -> Observed {
    let path = expected.path.as_str();
    let unreadable = |error: &(dyn std::error::Error + 'static)| Observed::Unreadable(chain(error));
    match &expected.want {
        Want::Enabled(_) => match host.system.unit_state(path) {
            Ok(state) => Observed::Enablement(state),
            Err(error) => unreadable(&error),
        },
        Want::Masked => match host.root.destination(path) {
            Ok(Some(end)) => Observed::Link(end),
            Ok(None) => Observed::Missing,
            Err(error) => unreadable(&error),
        },
        Want::File { .. } | Want::EmptyOrAbsent | Want::Unusable(_) => {
            match host.root.stat(path) {
                Ok(None) => Observed::Missing,
                Ok(Some(stat)) => {
                    let mode = Mode::from_kernel(stat.mode);
                    // The mode shows any file type other than a regular file.
                    let contents =
                        if stat.is_file() { host.root.read(path) } else { Ok(Some(Vec::new())) };
                    match contents {
                        Ok(Some(contents)) => {
                            let owner = owned(host, &expected.want, stat.owner);
                            Observed::Present { mode, contents, owner }
                        }
                        Ok(None) => Observed::Missing,
                        Err(error) => unreadable(&error),
                    }
                }
                Err(error) => unreadable(&error),
            }
        }
    }
}

/// Returns the owner of a file, by the names in its config if these match.
///
/// Returns none unless the process is root, because only root can change the owner of files.
fn owned<S: System>(host: &Host<S>, want: &Want, found: Owner) -> Option<FoundOwner> {
    let Want::File { owner: want, .. } = want else { return None };
    if !host.root.can_chown() {
        return None;
    }
    let named = |account: &Option<Account>, id: u32, lookup: &dyn Fn(&str) -> Option<u32>| {
        let name = match account {
            Some(Account::Name(name)) => Some(name.clone()).filter(|name| lookup(name) == Some(id)),
            Some(Account::Id(_)) | None => None,
        };
        FoundAccount { id, name }
    };
    // If the accounts cannot be read, the user counts as unknown, and the file as different.
    let user = |name: &str| account::user(&host.root, name).ok().flatten().map(|found| found.user);
    let group = |name: &str| account::group(&host.root, name).ok().flatten();
    Some(FoundOwner {
        user: named(&want.user, found.user, &user),
        group: named(&want.group, found.group, &group),
    })
}
