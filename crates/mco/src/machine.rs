//! What a MachineConfig puts on a machine, decoded and addressable by name.

use anyhow::Context as _;
use mco_api::MachineConfigSpec;
use mco_ignition::{
    Config,
    config::{Dropin, File, Unit},
    content::{ContentError, Limit},
};

use crate::{fault::Advice, suggest};

/// A MachineConfig with its Ignition config read and brought to the newest version.
#[derive(Debug)]
pub(crate) struct Machine {
    /// What to call it in messages.
    pub(crate) name: String,
    pub(crate) spec: MachineConfigSpec,
    pub(crate) config: Config,
}

/// Something with contents.
#[derive(Debug)]
pub(crate) enum Part<'m> {
    File(&'m File),
    Unit(&'m Unit),
    Dropin(&'m Dropin),
}

/// Where the daemon puts units.
pub(crate) const UNITS: &str = "/etc/systemd/system/";

impl Machine {
    pub(crate) fn new(name: String, spec: MachineConfigSpec) -> anyhow::Result<Self> {
        let config = match &spec.config {
            Some(raw) => mco_ignition::read(raw.get().as_bytes())
                .with_context(|| format!("MachineConfig {name} cannot be read"))?
                .upgrade()
                .with_context(|| format!("MachineConfig {name} cannot be upgraded"))?,
            None => Config::empty(),
        };
        Ok(Self { name, spec, config })
    }

    /// The file, unit or drop-in that a person means: a path, `UNIT` or `UNIT/DROPIN`.
    pub(crate) fn find(&self, wanted: &str) -> anyhow::Result<Part<'_>> {
        if let Some(file) = self.config.storage.files.iter().find(|file| file.path == wanted) {
            return Ok(Part::File(file));
        }
        if let Some(part) = self.unit_part(&unit_name(wanted)) {
            return Ok(part);
        }
        let names = self.names();
        let message = format!("{} has no file or unit {wanted}", self.name);
        let meant = suggest::closest(wanted, names.iter().map(String::as_str));
        // A person who leaves out the directory means the only file of that name.
        let tail = format!("/{}", wanted.trim_start_matches('/'));
        let mut ending = names.iter().filter(|name| name.ends_with(&tail)).map(String::as_str);
        Err(match meant.or_else(|| ending.next()) {
            Some(meant) => Advice::error(message, format!("did you mean {meant}?")),
            None => Advice::error(message, "name an absolute path, UNIT or UNIT/DROPIN"),
        })
    }

    /// Everything that can be asked for.
    pub(crate) fn names(&self) -> Vec<String> {
        let files = self.config.storage.files.iter().map(|file| file.path.clone());
        let units = self.config.systemd.units.iter().flat_map(|unit| {
            let dropins =
                unit.dropins.iter().map(|dropin| format!("{}/{}", unit.name, dropin.name));
            std::iter::once(unit.name.clone()).chain(dropins)
        });
        files.chain(units).collect()
    }

    fn unit_part(&self, name: &str) -> Option<Part<'_>> {
        let (unit, dropin) = match name.split_once('/') {
            Some((unit, dropin)) => (unit, Some(dropin)),
            None => (name, None),
        };
        let unit = self.config.systemd.units.iter().find(|found| found.name == unit)?;
        match dropin {
            None => Some(Part::Unit(unit)),
            Some(name) => unit.dropins.iter().find(|found| found.name == name).map(Part::Dropin),
        }
    }
}

/// `UNIT` or `UNIT/DROPIN` for a path in the directory of units, and anything else as it is.
pub(crate) fn unit_name(wanted: &str) -> String {
    let Some(below) = wanted.strip_prefix(UNITS) else { return wanted.to_owned() };
    match below.split_once(".d/") {
        Some((unit, dropin)) => format!("{unit}/{dropin}"),
        None => below.to_owned(),
    }
}

impl Part<'_> {
    /// The bytes.
    pub(crate) fn contents(&self) -> anyhow::Result<Vec<u8>> {
        match self {
            Self::File(file) => contents(file)
                .with_context(|| format!("the contents of {} cannot be decoded", file.path)),
            Self::Unit(unit) => match &unit.contents {
                Some(text) => Ok(text.clone().into_bytes()),
                None => Err(Advice::error(
                    format!("unit {} has no contents here", unit.name),
                    match unit.dropins.first() {
                        Some(dropin) => {
                            format!("it has drop-ins: try {}/{}", unit.name, dropin.name)
                        }
                        None => "it comes with the operating system".to_owned(),
                    },
                )),
            },
            Self::Dropin(dropin) => Ok(dropin.contents.clone().unwrap_or_default().into_bytes()),
        }
    }
}

/// The bytes of a file.
pub(crate) fn contents(file: &File) -> Result<Vec<u8>, ContentError> {
    file.contents.contents(Limit::DEFAULT)
}
