//! Removes what this program keeps on a machine about itself.
//!
//! The files and units of MachineConfigs stay: the machine runs with them. So does a file among the
//! records that the current config has, or that is not known here.

use mco_host::{Host, Root, RootError, System};

use crate::{
    config,
    confirm::standby::{self, StandbyError},
    disk,
    execute::FORCE_FILE,
    first_boot, force,
    join::{self, JoinError},
    ledger::{self, LedgerError},
};

/// Directories of the records.
const FOLDERS: [&str; 3] = [disk::RECORDS, "/var/lib/machine-config-daemon", "/etc/mco"];

/// Directory of a machine that joins by itself.
const JOIN: &str = "/var/lib/machine-config-daemon/join";

/// Records in [`FOLDERS`].
const RECORDS: [&str; 17] = [
    "/etc/machine-config-daemon/currentconfig",
    "/etc/machine-config-daemon/currentimage",
    "/etc/machine-config-daemon/mco-kubelet-restart-deferred",
    "/etc/machine-config-daemon/mco-pinned-images.json",
    "/etc/machine-config-daemon/mco-registry-cas.json",
    "/etc/machine-config-daemon/node-annotation.json.bak",
    "/etc/machine-config-daemon/node-annotations.json",
    "/etc/machine-config-daemon/noorig",
    "/etc/machine-config-daemon/orig",
    "/etc/machine-config-daemon/previous-logs",
    force::ABANDONED,
    "/var/lib/machine-config-daemon/mco-before",
    "/var/lib/machine-config-daemon/mco-confirm.json",
    "/var/lib/machine-config-daemon/mco-last-update.json",
    first_boot::PIVOT,
    "/var/lib/machine-config-daemon/mco-taken-back.json",
    "/var/lib/machine-config-daemon/mco-update-progress.json",
];

/// Files of the pointer config that a machine was installed with. MachineConfigs may have them, too.
const OF_POINTER: [&str; 3] =
    ["/etc/mco/first-boot.env", "/etc/mco/join-token", "/etc/mco/server-ca.crt"];

/// Records of the first boot, which have whole configs, the credentials that the daemon gives to the
/// container runtime, and the force file.
const OTHERS: [&str; 5] = [
    "/etc/mco/internal-registry-pull-secret.json",
    disk::ENCAPSULATED,
    "/etc/ignition-machine-config-encapsulated.json.bak",
    disk::INSTALLED,
    FORCE_FILE,
];

/// Treatment of an update that is not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfinished {
    /// Nothing is removed.
    Refuse,
    /// It is forgotten, too: neither completed nor rolled back.
    Forget,
}

/// A failure to remove the records.
#[derive(Debug, thiserror::Error)]
pub enum ForgetError {
    /// An update is not complete.
    #[error("the machine has an unfinished update ({}): nothing was removed", ledger::LEDGER)]
    Unfinished,
    /// The standby unit cannot be removed.
    #[error(transparent)]
    Standby(#[from] StandbyError),
    /// The unit of a join cannot be removed.
    #[error(transparent)]
    Join(#[from] Box<JoinError>),
    /// The ledger cannot be moved from its former place.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A file cannot be read or removed.
    #[error(transparent)]
    Root(#[from] RootError),
}

/// Removes the records of this program, and returns the paths that existed. Can be repeated.
///
/// The ledger of an unfinished update is removed first: as long as it exists, the update can be resumed
/// and undone with all that it needs, and without it the next call removes the rest.
pub fn forget<S: System>(
    host: &mut Host<S>,
    unfinished: Unfinished,
) -> Result<Vec<String>, ForgetError> {
    // The record counts, whether it can be read or not.
    let has_update = ledger::exists(&host.root)?;
    if has_update && unfinished == Unfinished::Refuse {
        return Err(ForgetError::Unfinished);
    }
    let config = disk::current_config(&host.root).ok().flatten();
    let config = config.and_then(|config| config::parse(&config).ok());
    // Without a record of the config, a file of the pointer may be one of the config.
    let is_of_config = |path: &str| match &config {
        Some(config) => config.file(path).is_some(),
        None => OF_POINTER.contains(&path),
    };
    let mut removed = Vec::new();
    if remove(&host.root, ledger::LEDGER)? {
        removed.push(ledger::LEDGER.to_owned());
    }
    standby::remove(host)?;
    if host.root.stat(JOIN)?.is_some() {
        join::finish(host, None).map_err(Box::new)?;
        removed.push(JOIN.to_owned());
    }
    let root = &host.root;
    // The record of the config after what depends on it: a crash in between must change nothing.
    let all = OF_POINTER.iter().chain(&OTHERS).chain(&RECORDS);
    for path in all.copied() {
        if !is_of_config(path) && remove(root, path)? {
            removed.push(path.to_owned());
        }
    }
    for folder in FOLDERS {
        root.remove_empty_directory(folder)?;
    }
    Ok(removed)
}

/// Removes a file or a directory; returns false if it does not exist.
fn remove(root: &Root, path: &str) -> Result<bool, RootError> {
    let Some(found) = root.stat(path)? else { return Ok(false) };
    if found.is_directory() {
        root.remove_tree(path)?;
        return Ok(true);
    }
    root.remove(path)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mco_api::{MachineConfig, RawConfig};
    use mco_core::plan::{self, Circumstances, default_policies};
    use mco_host::{
        OfflineSystem, SimulatedSystem,
        fault::{Fault, Faults},
    };
    use serde_json::json;

    use super::*;
    use crate::ledger::Progress;

    /// Returns a machine whose config has these files, with records and files of others.
    fn machine(folder: &std::path::Path) -> Host<OfflineSystem> {
        let root = Root::open(folder).unwrap();
        for path in RECORDS.iter().chain(&OF_POINTER).chain(&OTHERS) {
            let path =
                if path.ends_with("orig") || path.ends_with("logs") || path.ends_with("before") {
                    format!("{path}/etc/a")
                } else {
                    (*path).to_owned()
                };
            root.write(&path, b"x", 0o600).unwrap();
        }
        for path in ["/etc/a", "/etc/systemd/system/a.service", "/etc/mco/proxy.env"] {
            root.write(path, b"of a config", 0o644).unwrap();
        }
        root.write("/etc/machine-config-daemon/checks.d/disk", b"of the user", 0o755).unwrap();
        let files = ["/etc/a", "/etc/mco/server-ca.crt"];
        let files = files.map(|path| json!({"path": path, "contents": {"source": "data:,x"}}));
        let config: MachineConfig = serde_json::from_value(json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": "rendered-worker-1"},
            "spec": {"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": files}}},
        }))
        .unwrap();
        disk::record_config(&root, &config).unwrap();
        let system = OfflineSystem::open(&root).unwrap();
        Host { root, system }
    }

    fn files(folder: &std::path::Path) -> Vec<String> {
        let mut found = Vec::new();
        let mut folders = vec![folder.join("etc"), folder.join("var")];
        let root = Root::open(folder).unwrap();
        while let Some(next) = folders.pop() {
            let below = format!("/{}", next.strip_prefix(folder).unwrap().display());
            for name in root.list(&below).unwrap() {
                let path = next.join(&name);
                if path.is_dir() {
                    folders.push(path);
                } else {
                    found.push(format!("/{}", path.strip_prefix(folder).unwrap().display()));
                }
            }
        }
        found.sort();
        found
    }

    #[test]
    fn records_are_removed_and_files_of_the_config_and_of_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let mut host = machine(folder.path());
        let removed = forget(&mut host, Unfinished::Refuse).unwrap();
        assert!(removed.iter().any(|path| path == disk::CURRENT_CONFIG), "{removed:?}");
        let left = [
            "/etc/a",
            "/etc/machine-config-daemon/checks.d/disk",
            "/etc/mco/proxy.env",
            "/etc/mco/server-ca.crt",
            "/etc/systemd/system/a.service",
        ];
        assert_eq!(files(folder.path()), left);
        assert!(!host.root.exists("/var/lib/machine-config-daemon").unwrap(), "it is empty");
        assert_eq!(forget(&mut host, Unfinished::Refuse).unwrap(), [""; 0], "nothing is left");
        assert_eq!(files(folder.path()), left, "also not what the config had");
    }

    #[test]
    fn an_unfinished_update_is_forgotten_only_by_force() {
        let folder = tempfile::tempdir().unwrap();
        let mut host = machine(folder.path());
        host.root.write(ledger::LEDGER, b"not readable", 0o600).unwrap();
        let before = files(folder.path());
        let error = forget(&mut host, Unfinished::Refuse).unwrap_err().to_string();
        assert!(error.contains("unfinished update"), "{error}");
        assert_eq!(files(folder.path()), before, "nothing was removed");
        forget(&mut host, Unfinished::Forget).unwrap();
        assert!(!host.root.exists(ledger::LEDGER).unwrap());
    }

    /// Returns a machine with an update that has begun, whose changes fail as `faults` says.
    fn updating(folder: &std::path::Path, faults: &Arc<Faults>) -> Host<SimulatedSystem> {
        let root = machine(folder).root;
        SimulatedSystem::write_base_files(&root).unwrap();
        let system = SimulatedSystem::open(&root).unwrap();
        let mut host = Host { root, system };
        host.system.boot().unwrap();
        let from = disk::current_config(&host.root).unwrap().unwrap();
        let mut to = from.clone();
        let file = json!({"path": "/etc/a", "contents": {"source": "data:,new"}});
        let config = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": [file]}});
        to.spec.config = Some(RawConfig::from_json(config.to_string()).unwrap());
        let machines = [&from, &to].map(|config| config::parse(config).unwrap());
        let at = Circumstances::default();
        let plan = plan::node(&machines[0], &machines[1], &default_policies(), &at).unwrap();
        ledger::begin(&host, (&from, &machines[0]), (&to, &machines[1]), plan).unwrap();
        ledger::advance(&host.root, &begun()).unwrap();
        Host { root: host.root.with_faults(Arc::clone(faults)), system: host.system }
    }

    /// Returns the progress of that update.
    fn begun() -> Progress {
        Progress { done: 1, ..Progress::default() }
    }

    #[test]
    fn a_crash_while_an_update_is_forgotten_leaves_it_whole_or_forgotten() {
        let whole = tempfile::tempdir().unwrap();
        let mut host = updating(whole.path(), &Arc::new(Faults::none()));
        forget(&mut host, Unfinished::Forget).unwrap();
        let mut left_whole = 0;
        for number in 1.. {
            let folder = tempfile::tempdir().unwrap();
            let faults = Arc::new(Faults::at(number, Fault::Crash));
            let mut host = updating(folder.path(), &faults);
            let result = forget(&mut host, Unfinished::Forget);
            let Some(point) = faults.failed() else {
                assert!(result.is_ok(), "{result:?}");
                assert!(number > 10 && left_whole > 0, "{number} crashes, {left_whole} at once");
                break;
            };
            // Another process looks at the machine.
            let root = Root::open(folder.path()).unwrap();
            let system = SimulatedSystem::open(&root).unwrap();
            let mut host = Host { root, system };
            if host.root.exists(ledger::LEDGER).unwrap() {
                let (ledger, progress) = ledger::open(&host.root).unwrap().unwrap();
                assert_eq!(progress, begun(), "{point}");
                ledger::pack(&host.root, &ledger).unwrap();
                forget(&mut host, Unfinished::Forget).unwrap();
                left_whole += 1;
            } else {
                forget(&mut host, Unfinished::Refuse).unwrap();
            }
            assert_eq!(files(folder.path()), files(whole.path()), "{point}");
        }
    }

    #[test]
    fn nothing_outside_the_root_is_removed() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let victim = Root::open(outside.path()).unwrap();
        victim.write("/machine-config-daemon/currentconfig", b"{}", 0o600).unwrap();
        let root = Root::open(folder.path()).unwrap();
        root.create_directory("/etc").unwrap();
        let target = outside.path().join("machine-config-daemon");
        root.link(&target.display().to_string(), "/etc/machine-config-daemon").unwrap();
        let system = OfflineSystem::open(&root).unwrap();
        // The link may be refused or followed inside the root; outside, nothing changes.
        drop(forget(&mut Host { root, system }, Unfinished::Forget));
        assert!(victim.exists("/machine-config-daemon/currentconfig").unwrap());
    }
}
