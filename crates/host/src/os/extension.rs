//! The packages of extensions, and their verification.

use super::CommandRunner;
use crate::system::SystemError;

const RPM: &str = "/usr/bin/rpm";

/// Compat: names and packages are the reference's (`pkg/controller/common/helpers.go`).
const EXTENSIONS: [(&str, &[&str]); 7] = [
    ("two-node-ha", &["pacemaker", "pcs", "fence-agents-all"]),
    ("ipsec", &["NetworkManager-libreswan", "libreswan", "openvswitch3.5-ipsec"]),
    ("usbguard", &["usbguard"]),
    ("kerberos", &["krb5-workstation", "libkadm5"]),
    ("kernel-devel", &["kernel-devel", "kernel-headers"]),
    ("sandboxed-containers", &["kata-containers"]),
    ("sysstat", &["sysstat"]),
];

/// Returns the packages of an extension; none if the extension is unknown.
#[must_use]
pub fn packages(extension: &str) -> Option<&'static [&'static str]> {
    EXTENSIONS.iter().find(|(name, _)| *name == extension).map(|(_, packages)| *packages)
}

/// Returns true if a package belongs to any extension.
#[must_use]
pub fn is_extension(package: &str) -> bool {
    EXTENSIONS.iter().any(|(_, packages)| packages.contains(&package))
}

/// Package sets of extensions in earlier releases, which count as well.
const LEGACY: [(&str, &[&str]); 1] = [("ipsec", &["NetworkManager-libreswan", "libreswan"])];

/// Fails if packages of these extensions are not installed.
///
/// Compat: any of the sets is enough, and the texts are the reference's (`pkg/daemon/update.go`).
pub(crate) fn verify(runner: &dyn CommandRunner, extensions: &[String]) -> Result<(), SystemError> {
    for name in extensions {
        let current = packages(name).into_iter();
        let legacy = LEGACY.iter().filter(|(it, _)| it == name).map(|(_, set)| *set);
        let lacks = |set: &[&'static str]| -> Vec<&'static str> {
            let is_missing = |package: &&str| runner.run(&[RPM, "-q", package]).is_err();
            set.iter().copied().filter(is_missing).collect()
        };
        let missing: Vec<Vec<&str>> = current.chain(legacy).map(lacks).collect();
        if missing.is_empty() || missing.iter().any(Vec::is_empty) {
            continue;
        }
        let sets: Vec<String> = missing.iter().map(|set| format!("[{}]", set.join(" "))).collect();
        return Err(SystemError::Os {
            what: format!(
                "extension package verification failed: extension {name:?} verification failed: no \
                 valid package set is fully installed. Tried {} package set(s), missing packages \
                 per set: [{}]",
                sets.len(),
                sets.join(" ")
            ),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with these packages.
    struct Installed(&'static [&'static str]);

    impl CommandRunner for Installed {
        fn run(&self, command: &[&str]) -> Result<String, SystemError> {
            let [RPM, "-q", package] = command else { panic!("{command:?}") };
            if self.0.contains(package) {
                return Ok(format!("{package}-1-1"));
            }
            Err(SystemError::Command {
                command: command.join(" "),
                fault: "exit status 1".to_owned(),
            })
        }
    }

    // covers: C34
    #[test]
    fn an_extension_is_installed_once_one_of_its_sets_is() {
        let ask = |names: &[&str], installed: &'static [&'static str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            verify(&Installed(installed), &names).map_err(|error| error.to_string())
        };
        assert_eq!(ask(&[], &[]), Ok(()));
        assert_eq!(ask(&["usbguard"], &["usbguard"]), Ok(()));
        assert_eq!(ask(&["ipsec"], &["libreswan", "NetworkManager-libreswan"]), Ok(()));
        assert_eq!(
            ask(&["usbguard", "kerberos"], &["usbguard", "libkadm5"]).unwrap_err(),
            "extension package verification failed: extension \"kerberos\" verification failed: no \
             valid package set is fully installed. Tried 1 package set(s), missing packages per set: \
             [[krb5-workstation]]"
        );
        let error = ask(&["ipsec"], &["libreswan"]).unwrap_err();
        assert!(error.contains("Tried 2 package set(s)"), "{error}");
    }
}
