//! Keeps the names of network interfaces across a new major version of the operating system.
//!
//! Compat: which systems, and nmstatectl's arguments, are the reference's (`pkg/daemon/daemon.go`).
//! Better: the kernel arguments are set so that nothing is staged if nothing changes, because this
//! runs at every start of the daemon; and removed by an option that rpm-ostree has.

use tracing::{info, warn};

use super::{CommandRunner, OsRelease, words};
use crate::{root::Root, system::SystemError};

const RPM_OSTREE: &str = "/usr/bin/rpm-ostree";
/// Paths of nmstatectl: the daemon's own, or the machine's.
const PATHS: [&str; 2] = ["/run/machine-config-daemon-bin/nmstatectl", "/usr/bin/nmstatectl"];
/// File in which nmstatectl leaves the kernel arguments for the names.
const ARGUMENTS: &str = "/run/mco-nic-kargs";

/// Pins the names on Enterprise Linux 9, and unpins them on 10.
pub(crate) fn persist(root: &Root, runner: &dyn CommandRunner) -> Result<(), SystemError> {
    let release = OsRelease::read(root)?.unwrap_or_default();
    let (clean_up, verb) = match (release.is_el(9), release.is_el(10)) {
        (true, _) => (false, "--append-if-missing"),
        (_, true) => (true, "--delete-if-present"),
        (false, false) => return Ok(()),
    };
    let mut program = None;
    for place in PATHS {
        if program.is_none() && root.exists(place)? {
            program = Some(place);
        }
    }
    let Some(program) = program else {
        info!("nmstatectl is not installed; skipping the pinning of network interface names");
        return Ok(());
    };
    root.remove(ARGUMENTS)?;
    let mut command = vec![program, "persist-nic-names", "--root", "/", "--kargs-out", ARGUMENTS];
    if clean_up {
        command.push("--cleanup");
    }
    match runner.run(&command) {
        // Names that were never pinned cannot be unpinned.
        Err(error) if clean_up => {
            warn!(%error, "Failed to unpin the names of network interfaces");
            return Ok(());
        }
        done => done?,
    };
    let text = root.read(ARGUMENTS)?.unwrap_or_default();
    let arguments = words(&[String::from_utf8_lossy(&text).into_owned()]);
    if arguments.is_empty() {
        return Ok(());
    }
    let options: Vec<String> = arguments.iter().map(|it| format!("{verb}={it}")).collect();
    let mut command = vec![RPM_OSTREE, "kargs"];
    command.extend(options.iter().map(String::as_str));
    runner.run(&command).map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    struct Tools<'a> {
        root: &'a Root,
        calls: Mutex<Vec<String>>,
    }

    impl CommandRunner for Tools<'_> {
        fn run(&self, command: &[&str]) -> Result<String, SystemError> {
            self.calls.lock().unwrap().push(command.join(" "));
            if command.contains(&"persist-nic-names") {
                self.root.write(ARGUMENTS, b"ifname=eth0:aa\n", 0o600)?;
            }
            Ok(String::new())
        }
    }

    // covers: C05, C24
    #[test]
    fn names_are_pinned_on_one_release_and_unpinned_on_the_next() {
        let nmstate = "/run/machine-config-daemon-bin/nmstatectl persist-nic-names --root / --kargs-out /run/mco-nic-kargs";
        let cases = [
            (
                "ID=rhcos\nRHEL_VERSION=9.4",
                vec![
                    nmstate.to_owned(),
                    "/usr/bin/rpm-ostree kargs --append-if-missing=ifname=eth0:aa".to_owned(),
                ],
            ),
            (
                "ID=rhcos\nRHEL_VERSION=10.0",
                vec![
                    format!("{nmstate} --cleanup"),
                    "/usr/bin/rpm-ostree kargs --delete-if-present=ifname=eth0:aa".to_owned(),
                ],
            ),
            ("ID=fedora\nVARIANT_ID=coreos\nVERSION_ID=41", Vec::new()),
        ];
        for (release, want) in cases {
            let folder = tempfile::tempdir().unwrap();
            let root = Root::open(folder.path()).unwrap();
            root.write("/etc/os-release", release.as_bytes(), 0o644).unwrap();
            root.write("/run/machine-config-daemon-bin/nmstatectl", b"", 0o755).unwrap();
            let tools = Tools { root: &root, calls: Mutex::default() };
            persist(&root, &tools).unwrap();
            assert_eq!(*tools.calls.lock().unwrap(), want, "{release}");
        }
    }
}
