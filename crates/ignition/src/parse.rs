//! Parsing of documents: detects the declared version, decodes by its rules, and validates.

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

/// A document that is valid by the rules of the version that it declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// A document of the 3.x specification.
    V3(V3),
    /// A document of the 2.x specification.
    V2(V2),
}

/// A document of the 2.x specification, converted to 2.2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct V2 {
    /// Contents of the document.
    pub config: v2::Config,
    /// Version that the document declares.
    pub declared: &'static str,
    /// Warnings for the author of the document.
    pub warnings: Report,
}

/// A document of the 3.x specification, converted to the newest version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct V3 {
    /// Contents of the document.
    pub config: Config,
    /// Version that the document declares.
    pub declared: Spec,
    /// Warnings for the author of the document.
    pub warnings: Report,
}

/// Parses a document of any supported version.
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
    let declared = version::declared(&root).map_err(|report| invalid_v3(report, raw))?;
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
    position::set_positions(&mut report, raw);
    Err(ReadError::V2 { reason: "config is not valid", report })
}

fn read_v3(root: Node<'_>, spec: Spec, raw: &[u8]) -> Result<Document, ReadError> {
    let mut decoder = Decoder::new(spec);
    let mut config = Config::default();
    config.decode(root, &mut decoder);
    let mut report = decoder.report;
    if !report.is_fatal() {
        report.extend(validate::validate_for(spec, &config));
    }
    if report.is_fatal() {
        return Err(invalid_v3(report, raw));
    }
    convert_to_newest(&mut config, spec, &mut report);
    Ok(Document::V3(V3 { config, declared: spec, warnings: report }))
}

fn invalid_v3(mut report: Report, raw: &[u8]) -> ReadError {
    position::set_positions(&mut report, raw);
    ReadError::V3(report)
}

/// Converts a config that was decoded by the rules of `spec` to the newest version.
fn convert_to_newest(config: &mut Config, spec: Spec, warnings: &mut Report) {
    config.ignition.version = Spec::V3_5.to_string();
    if spec != Spec::V3_4 {
        return;
    }
    // Compat: the reference loses advertisements in the conversion from 3.4 to 3.5, and the names
    // of rendered configs depend on that.
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
    /// Returns the version that the document declares.
    #[must_use]
    pub fn declared(&self) -> String {
        match self {
            Self::V3(document) => document.declared.to_string(),
            Self::V2(document) => document.declared.to_owned(),
        }
    }

    /// Returns the warnings for the author, without positions.
    #[must_use]
    pub fn warnings(&self) -> &Report {
        match self {
            Self::V3(document) => &document.warnings,
            Self::V2(document) => &document.warnings,
        }
    }

    /// Returns the warnings for the author, with positions in `raw`, the text of the document.
    #[must_use]
    pub fn warnings_in(&self, raw: &[u8]) -> Report {
        let mut report = self.warnings().clone();
        position::set_positions(&mut report, raw);
        report
    }

    /// Rejects files whose mode has more than the permission bits.
    pub(crate) fn check_modes(&self) -> Result<(), ModeError> {
        match self {
            Self::V3(document) => check_modes(&document.config),
            Self::V2(document) => {
                let files = &document.config.storage.files;
                check_each_mode(files.iter().map(|file| (&file.path, file.mode)))
            }
        }
    }

    /// Rejects contents that the newest version does not allow, and special mode bits.
    ///
    /// After this check and [`Document::upgrade`] the config is valid.
    pub fn check(&self) -> Result<(), CheckError> {
        match self {
            Self::V3(document) => {
                if document.has_weaker_rules() {
                    check(&document.config)
                } else {
                    Ok(self.check_modes()?)
                }
            }
            Self::V2(document) => match document.config.clone().upgrade() {
                Ok(config) => check(&config),
                // The upgrade returns this error itself; until then only the modes can be checked.
                Err(_) => Ok(self.check_modes()?),
            },
        }
    }

    /// Converts the config to the newest version.
    #[must_use = "the config is in the result"]
    pub fn upgrade(self) -> Result<Config, UpgradeError> {
        match self {
            Self::V3(document) => Ok(document.config),
            Self::V2(document) => document.config.upgrade(),
        }
    }
}

impl V3 {
    /// Returns true if the document has members for which the declared version has weaker rules
    /// than the newest: up to 3.2 links without a target and custom Clevis pins without a name, in
    /// 3.0 references without a source.
    fn has_weaker_rules(&self) -> bool {
        let Config { ignition, storage, .. } = &self.config;
        let references = !ignition.config.is_empty() || !ignition.security.is_empty();
        let devices = !storage.links.is_empty() || !storage.luks.is_empty();
        (self.declared <= Spec::V3_2 && devices) || (self.declared == Spec::V3_0 && references)
    }
}

/// Rejects a config that the newest version does not allow, or that has special mode bits.
///
/// Compat: a config without any members, even a version, passes.
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

/// Compat: the reference checks the low 32 bits only.
fn has_special_bits(mode: i64) -> bool {
    mode & 0xffff_ffff > 0o777
}

impl Version {
    /// Returns the 3.x specification version with this number.
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
