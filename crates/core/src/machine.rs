//! A MachineConfig with its Ignition config read: what every comparison starts from.

use mco_api::{MachineConfig, MachineConfigSpec};
use mco_ignition::{
    Config, ReadError, UpgradeError,
    config::{File, Unit},
    content::{ContentError, Limit},
};

/// Where units live on a machine.
pub const UNITS: &str = "/etc/systemd/system";

/// What the names of units end in.
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

/// What a file has when its config names no mode.
pub const DEFAULT_MODE: u32 = 0o644;

/// The name of the config of a machine that has none yet.
pub const NO_CONFIG: &str = "mco-empty-mc";

/// A MachineConfig with its Ignition config read and brought to the newest version.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// The name of the MachineConfig.
    pub name: String,
    /// What the MachineConfig says, its Ignition config as text.
    pub spec: MachineConfigSpec,
    /// What the Ignition config says.
    pub config: Config,
}

/// Why a MachineConfig cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum UnreadableConfig {
    /// The Ignition config breaks the rules.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The Ignition config is in an old format and cannot be brought to the present one.
    #[error(transparent)]
    Upgrade(#[from] UpgradeError),
}

impl Machine {
    /// Reads the Ignition config inside a MachineConfig; none at all says nothing.
    pub fn read(config: &MachineConfig) -> Result<Self, UnreadableConfig> {
        let name = config.metadata.name.clone().unwrap_or_default();
        let spec = config.spec.clone();
        let config = match &spec.config {
            Some(raw) => mco_ignition::read(raw.get().as_bytes())?.upgrade()?,
            None => Config::empty(),
        };
        Ok(Self { name, spec, config })
    }

    /// A machine that nobody configured yet.
    #[must_use]
    pub fn blank() -> Self {
        let spec = MachineConfigSpec::default();
        Self { name: NO_CONFIG.to_owned(), spec, config: Config::empty() }
    }

    /// The file at this path.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<&File> {
        self.config.storage.files.iter().find(|file| file.path == path)
    }

    /// The unit of this name.
    #[must_use]
    pub fn unit(&self, name: &str) -> Option<&Unit> {
        self.config.systemd.units.iter().find(|unit| unit.name == name)
    }

    /// The keys that may log in, of all entries of the one user we manage.
    #[must_use]
    pub fn ssh_keys(&self) -> Vec<&str> {
        let users = self.config.passwd.users.iter();
        users.flat_map(|user| user.ssh_authorized_keys.iter().map(String::as_str)).collect()
    }

    /// The encrypted password of the one user we manage; an empty one would let anybody in, and is none.
    #[must_use]
    pub fn password_hash(&self) -> Option<&str> {
        // Compat: the last entry decides, as the one that is set last (pkg/daemon/update.go).
        let last = self.config.passwd.users.last()?;
        last.password_hash.as_deref().filter(|hash| !hash.is_empty())
    }

    /// The kernel, with its default by one name only.
    #[must_use]
    pub fn kernel(&self) -> &str {
        // Compat: an unknown kernel counts as the default one (pkg/daemon/update.go).
        match self.spec.kernel_type.as_str() {
            known @ ("realtime" | "64k-pages") => known,
            _ => "default",
        }
    }
}

/// The decoded contents of a file.
pub fn contents(file: &File) -> Result<Vec<u8>, ContentError> {
    file.contents.contents(Limit::DEFAULT)
}

/// The permissions of a file.
#[must_use]
pub fn mode(file: &File) -> u32 {
    file.mode.and_then(|mode| u32::try_from(mode).ok()).unwrap_or(DEFAULT_MODE)
}

/// Where a unit is written.
#[must_use]
pub fn unit_path(unit: &str) -> String {
    format!("{UNITS}/{unit}")
}

/// Whether a config puts anything at the unit's own path: contents, or a mask.
#[must_use]
pub fn has_file(unit: &Unit) -> bool {
    unit.mask == Some(true) || has_contents(unit)
}

/// Where a drop-in of a unit is written.
#[must_use]
pub fn dropin_path(unit: &str, dropin: &str) -> String {
    format!("{UNITS}/{unit}.d/{dropin}")
}

/// Whether the config brings the unit file itself.
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
    fn every_supported_version_puts_its_file_on_a_machine() {
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
    fn an_empty_password_is_none() {
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
            "or anybody could log in"
        );
        assert_eq!(users("[]"), None);
    }
}
