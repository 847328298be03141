//! Base configs, the MachineConfigs that every machine of a role gets, from templates.
//!
//! A tree of templates and the facts of the cluster become `00-<role>`,
//! `01-<role>-container-runtime` and `01-<role>-kubelet`. The same facts always give the same bytes:
//! a release that changes no template changes no rendered config, and reboots no machine.

mod built_in;
mod data;
mod front_matter;
mod language;
mod object;
mod platform;
mod pull_secret;
mod ssh;
mod tree;

use std::collections::BTreeMap;

use mco_api::{
    ControllerConfig, MachineConfig, MachineConfigSpec, RawConfig, annotation::Topology,
    condition::ControllerConfigConditionType,
};
use mco_ignition::{
    Config,
    config::{Dropin, File, Unit},
    data_url,
};

pub(crate) use self::object::is_kept;
use self::{
    data::Data,
    front_matter::{FileHeader, UnitHeader},
    language::Language,
    tree::{Part, Templates},
};
pub use self::{
    object::{Ownership, ownership, without_images},
    platform::{layers, unknown_platform},
    pull_secret::{PullSecretError, RegistryLogin, compact, with_login},
    ssh::{SshKeyError, ssh_config_name, ssh_configs},
    tree::{Layout, TemplateTree},
};
use crate::{kubelet::TlsSettings, render::Build};

pub use mco_api::annotation::Profile;

/// Roles that have a base config without templates.
const ADOPTED_ROLES: [&str; 3] = ["arbiter", "master", "worker"];

/// Inputs of the templates. They are not printable, because the pull secret is one of them.
#[derive(Clone, Copy)]
pub struct Facts<'f> {
    /// The cluster.
    pub controller_config: &'f ControllerConfig,
    /// The pull secret as compact JSON; `None` if the cluster has none.
    pub pull_secret: Option<&'f str>,
    /// TLS settings of servers on the nodes.
    pub tls: &'f TlsSettings,
    /// Build that generates the configs.
    pub build: &'f Build,
}

/// A failure to generate base configs.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// The profile is unknown.
    #[error(
        "unknown profile {0:?}; set annotation machineconfiguration.openshift.io/profile of the \
         ControllerConfig to adopt or full"
    )]
    Profile(String),
    /// The cluster has a platform without a type. Compat: the reference's text.
    #[error("cannot generate MachineConfigs when no platformStatus.type is set")]
    NoPlatform,
    /// The type of the platform is the name of a folder with another meaning.
    #[error("platform {0} is unsupported; set another platformStatus.type in the ControllerConfig")]
    ReservedPlatform(String),
    /// A path in the tree of templates has no meaning.
    #[error("template {path} is in no known folder; {expected}")]
    Layout {
        /// Path in the tree.
        path: String,
        /// Form of a path.
        expected: &'static str,
    },
    /// The lines between `---` are malformed.
    #[error("template {path} has an invalid front matter: {fault}")]
    FrontMatter {
        /// Path in the tree.
        path: String,
        /// Description of the fault.
        fault: String,
    },
    /// A template cannot be rendered.
    #[error("failed to render template {path}, line {line}")]
    Render {
        /// Path in the tree.
        path: String,
        /// Line of the contents, after the front matter.
        line: usize,
        /// Cause of the failure.
        source: Box<minijinja::Error>,
    },
    /// Bytes of the ControllerConfig are no text.
    #[error("field {0} of the ControllerConfig is not UTF-8 text")]
    Text(&'static str),
}

/// Generates the base configs of all roles, by name.
pub fn base_configs(
    tree: &TemplateTree,
    profile: &Profile,
    facts: &Facts<'_>,
) -> Result<Vec<MachineConfig>, TemplateError> {
    let spec = &facts.controller_config.spec;
    let topology = platform::topology(spec);
    let has_role =
        |role: &&str| *role != "arbiter" || topology == Some(&Topology::HighlyAvailableArbiter);
    match profile {
        Profile::Adopt => {
            let roles = ADOPTED_ROLES.into_iter().filter(has_role);
            let bare = |role| object::base_config(&format!("00-{role}"), role, empty(), facts);
            return Ok(roles.map(bare).collect());
        }
        Profile::Full => {}
        Profile::Other(word) => return Err(TemplateError::Profile(word.clone())),
    }
    let layers = platform::layers(spec)?;
    let mut configs = Vec::new();
    for role in tree.roles().into_iter().filter(has_role) {
        let language = Language::new(&Data::new(role, facts)?);
        for (name, templates) in tree.configs(role, &layers) {
            let spec = generate(&templates, &language)?;
            configs.push(object::base_config(&name, role, spec, facts));
        }
    }
    configs.sort_by(|left, right| left.metadata.name.cmp(&right.metadata.name));
    Ok(configs)
}

fn empty() -> MachineConfigSpec {
    MachineConfigSpec { config: Some(raw(&Config::empty())), ..MachineConfigSpec::default() }
}

fn raw(config: &Config) -> RawConfig {
    let text = String::from_utf8(config.to_json()).expect("JSON is UTF-8");
    RawConfig::from_json(text).expect("a serialized config is JSON")
}

/// Renders the templates of one config, by the name of the template.
fn generate(
    templates: &Templates<'_>,
    language: &Language,
) -> Result<MachineConfigSpec, TemplateError> {
    let mut config = Config::empty();
    let mut extensions = Vec::new();
    let mut units: BTreeMap<String, Unit> = BTreeMap::new();
    for ((part, name), layers) in templates {
        // A template that renders to white space does not replace that of an earlier layer.
        for (path, text) in layers.iter().rev() {
            let is_used = match part {
                Part::Files => {
                    let file = file(path, text, language)?;
                    config.storage.files.extend(file.clone());
                    file.is_some()
                }
                Part::Units => add_unit(&mut units, path, name, text, language)?,
                Part::Extensions => {
                    let contents = body(path, text, language)?;
                    extensions.extend(contents.as_ref().map(|_| name.clone()));
                    contents.is_some()
                }
            };
            if is_used {
                break;
            }
        }
    }
    config.systemd.units = units.into_values().collect();
    let config = Some(raw(&config));
    Ok(MachineConfigSpec { config, extensions, ..MachineConfigSpec::default() })
}

/// Adds a unit or a drop-in. Returns false if the template renders to white space.
fn add_unit(
    units: &mut BTreeMap<String, Unit>,
    path: &str,
    name: &str,
    text: &str,
    language: &Language,
) -> Result<bool, TemplateError> {
    if let Some((unit, dropin)) = name.split_once(".d/") {
        let Some(contents) = body(path, text, language)? else { return Ok(false) };
        let dropin = Dropin { name: dropin.to_owned(), contents: Some(contents) };
        named(units, unit).dropins.push(dropin);
        return Ok(true);
    }
    let Some((header, contents)) = unit(path, name, text, language)? else { return Ok(false) };
    let unit = named(units, &header.name);
    (unit.enabled, unit.mask) = (header.enabled, header.mask);
    unit.contents = contents;
    Ok(true)
}

fn named<'u>(units: &'u mut BTreeMap<String, Unit>, name: &str) -> &'u mut Unit {
    let new = || Unit { name: name.to_owned(), ..Unit::default() };
    units.entry(name.to_owned()).or_insert_with(new)
}

/// Renders the contents of a template without front matter; `None` if they are only white space.
fn body(path: &str, text: &str, language: &Language) -> Result<Option<String>, TemplateError> {
    let rendered = language.render(path, text)?;
    Ok((!rendered.trim().is_empty()).then_some(rendered))
}

fn file(path: &str, text: &str, language: &Language) -> Result<Option<File>, TemplateError> {
    let (header, contents) = front_matter::split(path, text)?;
    let Some(contents) = body(path, contents, language)? else { return Ok(None) };
    let header = FileHeader::parse(path, &language.render(path, header)?)?;
    let mut file = File { path: header.path, mode: Some(header.mode), ..File::default() };
    file.overwrite = Some(true);
    file.contents.source = Some(data_url::encode(contents.as_bytes()));
    Ok(Some(file))
}

/// Renders a unit. A template without contents enables, disables or masks a unit that the machine
/// has already; one whose contents render to white space is skipped.
fn unit(
    path: &str,
    name: &str,
    text: &str,
    language: &Language,
) -> Result<Option<(UnitHeader, Option<String>)>, TemplateError> {
    let (header, contents) = front_matter::split(path, text)?;
    let rendered = body(path, contents, language)?;
    if rendered.is_none() && !contents.trim().is_empty() {
        return Ok(None);
    }
    let header = UnitHeader::parse(path, name, &language.render(path, header)?)?;
    Ok(Some((header, rendered)))
}

/// Returns the message of a condition. Compat: the reference's texts (`pkg/controller/template`).
#[must_use]
pub fn condition_message(
    kind: &ControllerConfigConditionType,
    generation: i64,
    build: &Build,
    failure: &str,
) -> String {
    use ControllerConfigConditionType as Phase;
    let version = &build.version;
    let towards = format!("towards ({generation}) generation using controller version {version}");
    match kind {
        Phase::TemplateControllerRunning => format!("syncing {towards}"),
        Phase::TemplateControllerCompleted => format!("sync completed {towards}"),
        Phase::TemplateControllerFailing => format!("failed to syncing {towards}: {failure}"),
        Phase::Other(_) => String::new(),
    }
}

#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;
