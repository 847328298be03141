//! From bytes to a config: find the declared version, read by its rules, check.

mod error;
mod position;
mod version;

pub use error::{CheckError, ModeError, ReadError};
pub(crate) use version::Version;

use crate::{
    config::Config,
    json::{self, Node},
    object::{Decoder, Field as _},
    report::{Path, Report, Step},
    spec::Spec,
    v2::{self, UpgradeError},
    validate,
};

/// A document that was read and found valid by the rules of the version it declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// A document of the 3.x specification.
    V3(V3),
    /// A document of the 2.x specification.
    V2(V2),
}

/// A document of the 2.x specification, with the meaning of 2.2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct V2 {
    /// What it says.
    pub config: v2::Config,
    /// The version it was written for.
    pub declared: &'static str,
    /// What its author may want to know.
    pub warnings: Report,
}

/// A document of the 3.x specification, with the meaning of the newest version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct V3 {
    /// What it says.
    pub config: Config,
    /// The version it was written for.
    pub declared: Spec,
    /// What its author may want to know.
    pub warnings: Report,
}

/// Reads a document of any supported version.
pub fn read(raw: &[u8]) -> Result<Document, ReadError> {
    if raw.is_empty() {
        return Err(ReadError::Empty);
    }
    let root = json::parse(raw).map_err(|error| {
        let mut report = Report::default();
        report.error(Path::default(), error.to_string());
        let place = position::position(raw, error.at);
        report.faults.iter_mut().for_each(|fault| fault.position = Some(place));
        ReadError::V3(report)
    })?;
    let declared = version::declared(&root).map_err(|report| refused(report, raw))?;
    let version = Version::parse(&declared).ok_or(ReadError::InvalidVersion)?;
    match version.spec() {
        Some(spec) => read_v3(root, spec, raw),
        None => read_v2(root, &version, raw),
    }
}

fn read_v2(root: Node<'_>, version: &Version, raw: &[u8]) -> Result<Document, ReadError> {
    let plain = version.pre_release.is_empty() && version.metadata.is_empty();
    let (spec, declared) = match (version.major, version.minor, version.patch) {
        (2, 0, 0) if plain => (Spec::V3_0, "2.0.0"),
        (2, 1, 0) if plain => (Spec::V3_1, "2.1.0"),
        (2, 2, 0) if plain => (Spec::V3_2, "2.2.0"),
        _ => return Err(ReadError::UnknownVersion),
    };
    let (config, mut report) = v2::read(root, spec);
    if let Some(config) = config {
        return Ok(Document::V2(V2 { config, declared, warnings: report }));
    }
    position::place(&mut report, raw);
    Err(ReadError::V2 { reason: "config is not valid", report })
}

fn read_v3(root: Node<'_>, spec: Spec, raw: &[u8]) -> Result<Document, ReadError> {
    let mut decoder = Decoder::new(spec);
    let mut config = Config::default();
    config.decode(root, &mut decoder);
    let mut report = decoder.report;
    if !report.is_fatal() {
        report.absorb(validate::by(spec, &config));
    }
    if report.is_fatal() {
        return Err(refused(report, raw));
    }
    lift(&mut config, spec, &mut report);
    Ok(Document::V3(V3 { config, declared: spec, warnings: report }))
}

fn refused(mut report: Report, raw: &[u8]) -> ReadError {
    position::place(&mut report, raw);
    ReadError::V3(report)
}

/// Gives a config that was read by the rules of `spec` the meaning of the newest version.
fn lift(config: &mut Config, spec: Spec, warnings: &mut Report) {
    config.ignition.version = Spec::V3_5.to_string();
    if spec != Spec::V3_4 {
        return;
    }
    // Compat: the reference loses advertisements on the way from 3.4 to 3.5, so that the names of
    // rendered configs depend on it.
    for (at, luks) in config.storage.luks.iter_mut().enumerate() {
        for (server, tang) in luks.clevis.tang.iter_mut().enumerate() {
            if tang.advertisement.take().is_some() {
                let mut path = Path::default().member("storage").member("luks").index(at);
                path.0.extend([Step::Member("clevis"), Step::Member("tang")]);
                let path = path.index(server).member("advertisement");
                warnings.warning(path, "advertisement is dropped unless the version is 3.5.0");
            }
        }
    }
}

impl Document {
    /// The version that the document declares.
    #[must_use]
    pub fn declared(&self) -> String {
        match self {
            Self::V3(document) => document.declared.to_string(),
            Self::V2(document) => document.declared.to_owned(),
        }
    }

    /// What the author may want to know, without positions.
    #[must_use]
    pub fn warnings(&self) -> &Report {
        match self {
            Self::V3(document) => &document.warnings,
            Self::V2(document) => &document.warnings,
        }
    }

    /// What the author may want to know, with positions in `raw`, the text this was read from.
    #[must_use]
    pub fn warnings_in(&self, raw: &[u8]) -> Report {
        let mut report = self.warnings().clone();
        position::place(&mut report, raw);
        report
    }

    /// Refuses files whose mode has more than the permission bits.
    pub fn check_modes(&self) -> Result<(), ModeError> {
        match self {
            Self::V3(document) => check_modes(&document.config),
            Self::V2(document) => {
                let files = &document.config.storage.files;
                check_each_mode(files.iter().map(|file| (&file.path, file.mode)))
            }
        }
    }

    /// Refuses what the newest version does not allow, and special mode bits.
    ///
    /// After this and [`Document::upgrade`] the config is good to use.
    pub fn check(&self) -> Result<(), CheckError> {
        match self {
            Self::V3(document) => {
                if document.has_looser_rules() {
                    check(&document.config)
                } else {
                    Ok(self.check_modes()?)
                }
            }
            Self::V2(document) => match document.config.clone().upgrade() {
                Ok(config) => check(&config),
                // Upgrading says so itself; until then the modes are all there is to look at.
                Err(_) => Ok(self.check_modes()?),
            },
        }
    }

    /// The config as the newest version has it.
    #[must_use = "the config is in the result"]
    pub fn upgrade(self) -> Result<Config, UpgradeError> {
        match self {
            Self::V3(document) => Ok(document.config),
            Self::V2(document) => document.config.upgrade(),
        }
    }
}

impl V3 {
    /// Whether there is anything for which the declared version has looser rules than the newest:
    /// up to 3.2 links without a target and settings of custom pins without a pin, in 3.0
    /// references without a source.
    fn has_looser_rules(&self) -> bool {
        let Config { ignition, storage, .. } = &self.config;
        let references = !ignition.config.is_empty() || !ignition.security.is_empty();
        let devices = !storage.links.is_empty() || !storage.luks.is_empty();
        (self.declared <= Spec::V3_2 && devices) || (self.declared == Spec::V3_0 && references)
    }
}

/// Refuses a config that the newest version does not allow, or with special mode bits.
///
/// Compat: a config without anything, not even a version, passes.
pub fn check(config: &Config) -> Result<(), CheckError> {
    if config.is_empty() {
        return Ok(());
    }
    let report = validate::validate(config);
    if report.is_fatal() {
        return Err(CheckError::Invalid(report));
    }
    Ok(check_modes(config)?)
}

fn check_modes(config: &Config) -> Result<(), ModeError> {
    check_each_mode(config.storage.files.iter().map(|file| (&file.path, file.mode)))
}

fn check_each_mode<'a>(
    mut files: impl Iterator<Item = (&'a String, Option<i64>)>,
) -> Result<(), ModeError> {
    let special = files.find_map(|(path, mode)| {
        let mode = mode.filter(|mode| has_special_bits(*mode))?;
        Some(ModeError { path: path.clone(), mode })
    });
    special.map_or(Ok(()), Err)
}

/// Compat: the reference looks at the low 32 bits only.
fn has_special_bits(mode: i64) -> bool {
    mode & 0xffff_ffff > 0o777
}

impl Version {
    /// The version of the 3.x specification that this is.
    pub(crate) fn spec(&self) -> Option<Spec> {
        let plain = self.pre_release.is_empty() && self.metadata.is_empty();
        let spec = match (self.major, self.minor, self.patch) {
            (3, 0, 0) => Spec::V3_0,
            (3, 1, 0) => Spec::V3_1,
            (3, 2, 0) => Spec::V3_2,
            (3, 3, 0) => Spec::V3_3,
            (3, 4, 0) => Spec::V3_4,
            (3, 5, 0) => Spec::V3_5,
            _ => return None,
        };
        plain.then_some(spec)
    }
}

#[cfg(test)]
mod tests;
