//! A MachineConfig with its parsed Ignition config, the input of every comparison.

pub mod paths;

use mco_api::{MachineConfig, MachineConfigSpec};
use mco_ignition::{
    Config, ReadError, UpgradeError,
    config::{File, Unit},
    content::{ContentError, ContentLimit},
};

/// Directory of the units on a machine.
pub const UNITS: &str = "/etc/systemd/system";

/// Suffixes of unit names.
pub const UNIT_TYPES: [&str; 11] = [
    "automount",
    "device",
    "mount",
    "path",
    "scope",
    "service",
    "slice",
    "socket",
    "swap",
    "target",
    "timer",
];

/// Mode of a file whose config names none.
pub const DEFAULT_MODE: u32 = 0o644;

/// Name of the config of a machine that has none yet.
pub const NO_CONFIG: &str = "mco-empty-mc";

/// A MachineConfig with its Ignition config parsed and upgraded to the newest version.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Name of the MachineConfig.
    pub name: String,
    /// Spec of the MachineConfig, with the Ignition config as text.
    pub spec: MachineConfigSpec,
    /// Parsed Ignition config.
    pub config: Config,
}

/// The reason why a MachineConfig cannot be parsed.
#[derive(Debug, thiserror::Error)]
pub enum UnreadableConfig {
    /// The Ignition config is malformed.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The Ignition config has an old version and cannot be upgraded.
    #[error(transparent)]
    Upgrade(#[from] UpgradeError),
}

impl Machine {
    /// Parses the Ignition config of a MachineConfig; a missing one counts as empty.
    pub fn read(config: &MachineConfig) -> Result<Self, UnreadableConfig> {
        let name = config.metadata.name.clone().unwrap_or_default();
        let spec = config.spec.clone();
        let config = match &spec.config {
            Some(raw) => mco_ignition::read(raw.get().as_bytes())?.upgrade()?,
            None => Config::empty(),
        };
        Ok(Self { name, spec, config })
    }

    /// Returns a machine without any config.
    #[must_use]
    pub fn blank() -> Self {
        let spec = MachineConfigSpec::default();
        Self { name: NO_CONFIG.to_owned(), spec, config: Config::empty() }
    }

    /// Returns the file at this path.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<&File> {
        self.config.storage.files.iter().find(|file| file.path == path)
    }

    /// Returns the unit of this name.
    #[must_use]
    pub fn unit(&self, name: &str) -> Option<&Unit> {
        self.config.systemd.units.iter().find(|unit| unit.name == name)
    }

    /// Returns the SSH keys of all entries of the user `core`.
    #[must_use]
    pub fn ssh_keys(&self) -> Vec<&str> {
        let users = self.config.passwd.users.iter();
        users.flat_map(|user| user.ssh_authorized_keys.iter().map(String::as_str)).collect()
    }

    /// Returns the password hash of the user `core`. An empty hash would allow a login without a
    /// password and counts as none.
    #[must_use]
    pub fn password_hash(&self) -> Option<&str> {
        // Compat: the last entry decides, as the one that is set last (pkg/daemon/update.go).
        let last = self.config.passwd.users.last()?;
        last.password_hash.as_deref().filter(|hash| !hash.is_empty())
    }

    /// Returns the kernel type, with one name for the default.
    #[must_use]
    pub fn kernel(&self) -> &str {
        // Compat: an unknown kernel counts as the default one (pkg/daemon/update.go).
        match self.spec.kernel_type.as_str() {
            known @ ("realtime" | "64k-pages") => known,
            _ => "default",
        }
    }
}

/// Decodes the contents of a file.
pub fn contents(file: &File) -> Result<Vec<u8>, ContentError> {
    file.contents.contents(ContentLimit::DEFAULT)
}

/// Returns the permissions of a file.
#[must_use]
pub fn mode(file: &File) -> u32 {
    file.mode.and_then(|mode| u32::try_from(mode).ok()).unwrap_or(DEFAULT_MODE)
}

/// Returns true if a password hash fits into its field of `/etc/shadow`: a line break would set the
/// password of another user.
#[must_use]
pub fn is_one_field(hash: &str) -> bool {
    !hash.contains(':') && !hash.contains(char::is_control)
}

/// Returns the path of a unit file.
#[must_use]
pub fn unit_path(unit: &str) -> String {
    format!("{UNITS}/{unit}")
}

/// Returns true if the config writes the unit's own path: contents, or a mask.
#[must_use]
pub fn has_file(unit: &Unit) -> bool {
    unit.mask == Some(true) || has_contents(unit)
}

/// Returns the path of a drop-in.
#[must_use]
pub fn dropin_path(unit: &str, dropin: &str) -> String {
    format!("{UNITS}/{unit}.d/{dropin}")
}

/// Returns true if the config has contents for the unit file itself.
#[must_use]
pub fn has_contents(unit: &Unit) -> bool {
    unit.contents.as_deref().is_some_and(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::ignition;

    // covers: C44
    #[test]
    fn every_supported_ignition_version_is_parsed() {
        let two = r#"{"ignition": {"version": "2.2.0"}, "storage": {"files":
            [{"filesystem": "root", "path": "/etc/a", "contents": {"source": "data:,1"}, "mode": 420}]}}"#;
        let three = r#"{"ignition": {"version": "3.x.0"}, "storage": {"files":
            [{"path": "/etc/a", "contents": {"source": "data:,1"}, "mode": 420}]}}"#;
        let threes = (0..=5).map(|minor| three.replace("3.x", &format!("3.{minor}")));
        for text in std::iter::once(two.to_owned()).chain(threes) {
            let machine = Machine::read(&ignition("a", "worker", &text)).unwrap();
            let file = machine.file("/etc/a").expect("the file");
            assert_eq!(contents(file).unwrap(), b"1", "{text}");
            assert_eq!(mode(file), 0o644, "{text}");
        }
        let unknown = ignition("a", "worker", &three.replace("3.x", "3.9"));
        assert!(Machine::read(&unknown).is_err());
    }

    // covers: C76
    #[test]
    fn an_empty_password_hash_counts_as_none() {
        let users = |users: &str| {
            let text = format!(
                r#"{{"ignition": {{"version": "3.5.0"}}, "passwd": {{"users": {users}}}}}"#
            );
            let machine = Machine::read(&ignition("a", "worker", &text)).unwrap();
            machine.password_hash().map(str::to_owned)
        };
        assert_eq!(users(r#"[{"name": "core", "passwordHash": "$6$a"}]"#).as_deref(), Some("$6$a"));
        assert_eq!(
            users(r#"[{"name": "core", "passwordHash": ""}]"#),
            None,
            "an empty hash allows a login without a password"
        );
        assert_eq!(users("[]"), None);
    }

    // covers: C76
    #[test]
    fn a_password_hash_is_one_field_of_one_line() {
        for hash in ["$6$a$b", "*", "!", ""] {
            assert!(is_one_field(hash), "{hash:?}");
        }
        for hash in ["$6$a\nroot:$6$b", "a:b", "a\r", "a\0"] {
            assert!(!is_one_field(hash), "{hash:?}");
        }
    }
}
