//! A MachineConfig with its Ignition config decoded, whose files, units and drop-ins are found by
//! name.

use anyhow::Context as _;
use mco_api::MachineConfigSpec;
use mco_core::lint::suggest;
use mco_ignition::{
    Config,
    config::{Dropin, File, Unit},
    content::{ContentError, ContentLimit},
};

use crate::error::error_with_hint;

/// A MachineConfig with its Ignition config parsed and upgraded to the newest version.
#[derive(Debug)]
pub(crate) struct DecodedConfig {
    /// Name in messages.
    pub(crate) name: String,
    pub(crate) spec: MachineConfigSpec,
    pub(crate) config: Config,
}

/// An entry with contents.
#[derive(Debug)]
pub(crate) enum ConfigEntry<'m> {
    File(&'m File),
    Unit(&'m Unit),
    Dropin(&'m Dropin),
}

/// Directory of the units that the daemon writes.
pub(crate) const UNITS: &str = "/etc/systemd/system/";

impl DecodedConfig {
    pub(crate) fn new(name: String, spec: MachineConfigSpec) -> anyhow::Result<Self> {
        let config = match &spec.config {
            Some(raw) => mco_ignition::read(raw.get().as_bytes())
                .with_context(|| format!("failed to parse MachineConfig {name}"))?
                .upgrade()
                .with_context(|| format!("failed to upgrade MachineConfig {name}"))?,
            None => Config::empty(),
        };
        Ok(Self { name, spec, config })
    }

    /// Returns the file, unit or drop-in that the user names: a path, `UNIT` or `UNIT/DROPIN`.
    pub(crate) fn find(&self, wanted: &str) -> anyhow::Result<ConfigEntry<'_>> {
        if let Some(file) = self.config.storage.files.iter().find(|file| file.path == wanted) {
            return Ok(ConfigEntry::File(file));
        }
        if let Some(entry) = self.unit_entry(&unit_name(wanted)) {
            return Ok(entry);
        }
        let names = self.names();
        let message = format!("{} has no file or unit {wanted}", self.name);
        let meant = suggest::closest(wanted, names.iter().map(String::as_str));
        // A name without its directory means the only file of that name.
        let tail = format!("/{}", wanted.trim_start_matches('/'));
        let mut ending = names.iter().filter(|name| name.ends_with(&tail)).map(String::as_str);
        Err(match meant.or_else(|| ending.next()) {
            Some(meant) => error_with_hint(message, format!("did you mean {meant}?")),
            None => error_with_hint(message, "name an absolute path, UNIT or UNIT/DROPIN"),
        })
    }

    /// Returns the names of all entries.
    pub(crate) fn names(&self) -> Vec<String> {
        let files = self.config.storage.files.iter().map(|file| file.path.clone());
        let units = self.config.systemd.units.iter().flat_map(|unit| {
            let dropins =
                unit.dropins.iter().map(|dropin| format!("{}/{}", unit.name, dropin.name));
            std::iter::once(unit.name.clone()).chain(dropins)
        });
        files.chain(units).collect()
    }

    fn unit_entry(&self, name: &str) -> Option<ConfigEntry<'_>> {
        let (unit, dropin) = match name.split_once('/') {
            Some((unit, dropin)) => (unit, Some(dropin)),
            None => (name, None),
        };
        let unit = self.config.systemd.units.iter().find(|found| found.name == unit)?;
        match dropin {
            None => Some(ConfigEntry::Unit(unit)),
            Some(name) => {
                unit.dropins.iter().find(|found| found.name == name).map(ConfigEntry::Dropin)
            }
        }
    }
}

/// Returns `UNIT` or `UNIT/DROPIN` for a path in the directory of units, and any other name
/// unchanged.
pub(crate) fn unit_name(wanted: &str) -> String {
    let Some(below) = wanted.strip_prefix(UNITS) else { return wanted.to_owned() };
    match below.split_once(".d/") {
        Some((unit, dropin)) => format!("{unit}/{dropin}"),
        None => below.to_owned(),
    }
}

impl ConfigEntry<'_> {
    /// Returns the contents.
    pub(crate) fn contents(&self) -> anyhow::Result<Vec<u8>> {
        match self {
            Self::File(file) => contents(file)
                .with_context(|| format!("failed to decode the contents of {}", file.path)),
            Self::Unit(unit) => match &unit.contents {
                Some(text) => Ok(text.clone().into_bytes()),
                None => Err(error_with_hint(
                    format!("unit {} has no contents in this config", unit.name),
                    match unit.dropins.first() {
                        Some(dropin) => {
                            format!("print one of its drop-ins: {}/{}", unit.name, dropin.name)
                        }
                        None => "the unit is part of the operating system".to_owned(),
                    },
                )),
            },
            Self::Dropin(dropin) => Ok(dropin.contents.clone().unwrap_or_default().into_bytes()),
        }
    }
}

/// Returns the decoded contents of a file.
pub(crate) fn contents(file: &File) -> Result<Vec<u8>, ContentError> {
    file.contents.contents(ContentLimit::DEFAULT)
}
