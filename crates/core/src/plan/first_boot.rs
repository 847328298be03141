//! Actions after a change during first boot, when no policy is known yet.
//!
//! Compat: the fixed table of the reference (`pkg/daemon/update.go`,
//! `calculatePostConfigChangeAction`), which it also uses without a cluster.

use std::fmt;

use super::{Force, registries};
use crate::{diff::ConfigDiff, machine::Machine};

/// The action after a change during first boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SetupAction {
    /// Nothing.
    None,
    /// Reload the container engine.
    ReloadEngine,
    /// Restart the container engine.
    RestartEngine,
    /// Reboot the machine.
    Reboot,
}

impl fmt::Display for SetupAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::ReloadEngine => "reload crio",
            Self::RestartEngine => "restart crio",
            Self::Reboot => "reboot",
        })
    }
}

/// Returns the strongest action that any part of the change requires.
#[must_use]
pub fn action(diff: &ConfigDiff, force: Force) -> SetupAction {
    if force == Force::Yes || !diff.system().is_empty() || !diff.units.is_empty() {
        return SetupAction::Reboot;
    }
    let files = diff.files.iter().map(|file| for_file(&file.name));
    files.max().unwrap_or(SetupAction::None)
}

/// Returns the reason to drain the node before the action, if any.
pub fn drain(
    diff: &ConfigDiff,
    action: SetupAction,
    from: &Machine,
    to: &Machine,
) -> Result<Option<String>, registries::Unparsable> {
    match action {
        SetupAction::Reboot => Ok(Some(action.to_string())),
        SetupAction::None => Ok(None),
        SetupAction::ReloadEngine | SetupAction::RestartEngine => {
            let changed = diff.files.iter().any(|file| file.name == registries::PATH);
            if changed { registries::unsafe_change(from, to) } else { Ok(None) }
        }
    }
}

fn for_file(path: &str) -> SetupAction {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    match (path, folder) {
        ("/etc/kubernetes/kubelet-ca.crt" | "/var/lib/kubelet/config.json", _)
        | (_, "/etc/nmstate/openshift") => SetupAction::None,
        (
            registries::PATH
            | "/etc/machine-config-daemon/no-reboot/containers-gpg.pub"
            | "/etc/containers/policy.json",
            _,
        )
        | (_, "/etc/containers/registries.d") => SetupAction::ReloadEngine,
        ("/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt", _) => {
            SetupAction::RestartEngine
        }
        _ => SetupAction::Reboot,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{diff, fixture::machine};

    // covers: C46
    #[test]
    fn the_strongest_part_of_a_change_decides() {
        let ca = "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt=1";
        let cases = [
            ("", SetupAction::None),
            ("key:a", SetupAction::None),
            ("/var/lib/kubelet/config.json=1", SetupAction::None),
            ("/etc/nmstate/openshift/a.yml=1", SetupAction::None),
            ("/etc/nmstate/openshift/a/b.yml=1", SetupAction::Reboot),
            ("/etc/containers/policy.json=1", SetupAction::ReloadEngine),
            ("/etc/containers/registries.d/a=1", SetupAction::ReloadEngine),
            ("/etc/containers/policy.json=1 /etc/foo=1", SetupAction::Reboot),
            ("a.service=x", SetupAction::Reboot),
            ("karg:a", SetupAction::Reboot),
        ];
        for (to, want) in cases {
            let diff = diff::between(&machine("old", ""), &machine("new", to));
            assert_eq!(action(&diff, Force::No), want, "{to}");
            assert_eq!(action(&diff, Force::Yes), SetupAction::Reboot, "{to}");
        }
        let both = format!("{ca} /etc/containers/policy.json=1");
        let diff = diff::between(&machine("old", ""), &machine("new", &both));
        assert_eq!(action(&diff, Force::No), SetupAction::RestartEngine);
    }
}
