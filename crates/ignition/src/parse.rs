//! From bytes to a config: find the declared version, read by its rules, check.

mod position;
mod version;

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

/// Why a document was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// There is nothing to read.
    #[error("parsing Ignition config spec v3 failed with error: not a config (empty)\nReport: ")]
    Empty,
    /// The version is missing, or is no version.
    #[error(
        "parsing Ignition config failed: invalid version. Supported spec versions: {SUPPORTED}"
    )]
    InvalidVersion,
    /// The version is none of those supported.
    #[error(
        "parsing Ignition config failed: unknown version. Supported spec versions: {SUPPORTED}"
    )]
    UnknownVersion,
    /// The document breaks the rules of the 3.x specification.
    #[error("parsing Ignition config spec v3 failed with error: config is not valid\nReport: {0}")]
    V3(Report),
    /// The document breaks the rules of the 2.x specification.
    #[error("parsing Ignition spec v2 failed with error: {reason}\nReport: {report}")]
    V2 {
        /// What is wrong in general.
        reason: &'static str,
        /// What is wrong in detail.
        report: Report,
    },
}

/// The versions that error texts promise.
const SUPPORTED: &str = "2.2,3.0,3.1,3.2,3.3,3.4,3.5";

/// A file whose permissions go beyond read, write and execute.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid mode {} for {path}, cannot exceed 0777", octal(*mode))]
pub struct ModeError {
    /// The file.
    pub path: String,
    /// Its mode.
    pub mode: i64,
}

/// Why a config that could be read must not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// It breaks the rules of the newest version.
    #[error("invalid ignition V3 config found: {0}")]
    Invalid(Report),
    /// The mode of a file has special bits.
    #[error(transparent)]
    Mode(#[from] ModeError),
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
    match config {
        Some(config) => Ok(Document::V2(V2 { config, declared, warnings: report })),
        None => {
            position::place(&mut report, raw);
            Err(ReadError::V2 { reason: "config is not valid", report })
        }
    }
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
                if document.declared <= Spec::V3_2 && has_stricter_rules(&document.config) {
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
    pub fn upgrade(self) -> Result<Config, UpgradeError> {
        match self {
            Self::V3(document) => Ok(document.config),
            Self::V2(document) => document.config.upgrade(),
        }
    }
}

/// Whether `config` has anything for which 3.2 and before had looser rules: links without a
/// target, and settings of custom pins without a pin.
fn has_stricter_rules(config: &Config) -> bool {
    !config.storage.links.is_empty() || !config.storage.luks.is_empty()
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

/// A number as Go's `%#o` has it.
fn octal(number: i64) -> String {
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}0{:o}", number.unsigned_abs())
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

impl ReadError {
    /// The faults found, if it came to that.
    #[must_use]
    pub fn report(&self) -> Option<&Report> {
        match self {
            Self::Empty | Self::InvalidVersion | Self::UnknownVersion => None,
            Self::V3(report) | Self::V2 { report, .. } => Some(report),
        }
    }
}
