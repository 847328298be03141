//! The `[Install]` section of a unit file, and the links that it asks for.

use std::fmt;

use super::{
    lines,
    name::{self, Kind},
};

/// Types of units that may have aliases; systemd ignores those of the others.
const ALIAS_TYPES: [&str; 6] = ["service", "socket", "target", "device", "timer", "path"];

/// The `[Install]` sections of a unit file and its drop-ins.
#[derive(Debug, Default)]
pub(super) struct Install {
    wanted_by: Vec<String>,
    required_by: Vec<String>,
    upheld_by: Vec<String>,
    alias: Vec<String>,
    pub(super) also: Vec<String>,
    default_instance: Option<String>,
    /// The first value with which systemd does not load the file.
    pub(super) invalid: Option<LinkError>,
}

/// The links that one setting asks for, relative to the directory of units.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// Links in `.wants`, `.requires` and `.upholds` directories.
    pub(super) wanted: Vec<String>,
    /// Aliases of the unit.
    pub(super) aliases: Vec<String>,
    /// Invalid links.
    pub(super) invalid: Vec<LinkError>,
}

/// An invalid link that a unit file asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkError {
    /// The alias is not valid for the unit.
    Alias {
        /// Name of the unit.
        unit: String,
        /// The alias.
        alias: String,
    },
    /// The given name is an alias.
    Linked(String),
    /// The alias is a path outside of a unit's directory.
    Reference(String),
    /// A template without a default instance, wanted by a unit that is no template.
    NoInstance {
        /// The template.
        unit: String,
        /// Unit that wants the template.
        by: String,
    },
    /// Wanted by an invalid unit name.
    NoUnit(String),
    /// Another file exists at the path.
    Exists {
        /// Path of the file.
        path: String,
        /// Target, if the file is a link.
        target: Option<String>,
    },
}

impl fmt::Display for LinkError {
    /// In the words of `systemctl enable`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alias { unit, alias } => {
                write!(f, "Failed to enable unit, cannot alias {unit} as {alias}.")
            }
            Self::Linked(unit) => {
                write!(f, "Failed to enable unit, refusing to operate on linked unit file {unit}.")
            }
            Self::Reference(path) => {
                write!(f, "Failed to enable unit, invalid unit reference {path:?}.")
            }
            Self::NoInstance { unit, by } => {
                write!(f, "Failed to enable {unit}, destination unit {by} is a non-template unit.")
            }
            Self::NoUnit(by) => {
                write!(f, "Failed to enable unit, {by:?} is not a valid unit name.")
            }
            Self::Exists { path, target: None } => {
                write!(f, "Failed to enable unit, file {path:?} already exists.")
            }
            Self::Exists { path, target: Some(target) } => write!(
                f,
                "Failed to enable unit, file {path:?} already exists and is a symlink to {target:?}."
            ),
        }
    }
}

impl Install {
    /// Parses the text of a unit file, or of a drop-in.
    pub(super) fn parse(unit: &str, text: &str) -> Self {
        let mut install = Self::default();
        install.add(unit, text);
        install
    }

    /// Adds the text of the unit file or of a drop-in of `unit`, as systemd parses it.
    pub(super) fn add(&mut self, unit: &str, text: &str) {
        let mut inside = false;
        for line in lines::logical(text) {
            let line = line.trim();
            if line.starts_with('[') {
                inside = line == "[Install]";
                continue;
            }
            let Some((key, value)) = line.split_once('=').filter(|_| inside) else { continue };
            let value = value.trim();
            let list = match key.trim() {
                "WantedBy" => &mut self.wanted_by,
                "RequiredBy" => &mut self.required_by,
                "UpheldBy" => &mut self.upheld_by,
                "Alias" if ALIAS_TYPES.contains(&name::suffix(unit)) => &mut self.alias,
                // Not quoted and never cleared, as in systemd.
                "Also" => {
                    self.add_also(unit, value);
                    continue;
                }
                "DefaultInstance" => {
                    self.set_default_instance(unit, value);
                    continue;
                }
                _ => continue,
            };
            // An empty value clears the list.
            if value.is_empty() {
                list.clear();
            }
            list.extend(lines::words(value));
        }
    }

    fn add_also(&mut self, unit: &str, value: &str) {
        for word in value.split_whitespace() {
            let other = expand(word, unit);
            if name::kind(&other).is_none() {
                self.invalid.get_or_insert(LinkError::NoUnit(other));
                return;
            }
            self.also.push(other);
        }
    }

    fn set_default_instance(&mut self, unit: &str, value: &str) {
        // Means nothing for other units, and systemd ignores it.
        if name::kind(unit) != Some(Kind::Template) {
            return;
        }
        let instance = expand(value, unit);
        if name::is_instance(&instance) {
            self.default_instance = Some(instance).filter(|instance| !instance.is_empty());
        } else {
            self.invalid.get_or_insert(LinkError::NoUnit(name::with_instance(unit, &instance)));
        }
    }

    /// Returns true if the section asks for any links.
    pub(super) fn has_rules(&self) -> bool {
        [&self.wanted_by, &self.required_by, &self.upheld_by, &self.alias]
            .iter()
            .any(|list| !list.is_empty())
    }

    /// Returns the links for `unit`, by setting, in systemd's order.
    pub(super) fn links(&self, unit: &str) -> Vec<Links> {
        let mut aliases = Links::default();
        for alias in &self.alias {
            self.link_alias(unit, &expand(alias, unit), &mut aliases);
        }
        let lists = [
            (&self.wanted_by, "wants"),
            (&self.required_by, "requires"),
            (&self.upheld_by, "upholds"),
        ];
        let others = lists.map(|(list, suffix)| self.link_wanted(unit, list, suffix));
        std::iter::once(aliases).chain(others).collect()
    }

    /// Returns true if `unit` asks for a link of this name.
    pub(super) fn asks_for(&self, unit: &str, link: &str) -> bool {
        let instance = self.default_instance.as_ref();
        link == unit
            || self.alias.iter().any(|alias| expand(alias, unit) == link)
            || (name::kind(unit) == Some(Kind::Template)
                && instance.is_some_and(|it| name::with_instance(unit, it) == link))
    }

    /// Returns the default instance of a template.
    pub(super) fn default_unit(&self, unit: &str) -> Option<String> {
        let instance = self.default_instance.as_ref()?;
        let is_template = name::kind(unit) == Some(Kind::Template);
        is_template.then(|| name::with_instance(unit, instance))
    }

    fn link_wanted(&self, unit: &str, list: &[String], suffix: &str) -> Links {
        let mut links = Links::default();
        let is_template = name::kind(unit) == Some(Kind::Template);
        let default = self.default_unit(unit);
        // A template without a default instance takes the instance of the unit that wants it, which
        // must be a template too.
        let must_have_instance = is_template && default.is_none();
        let linked = default.unwrap_or_else(|| unit.to_owned());
        for by in list {
            let by = expand(by, &linked);
            match name::kind(&by) {
                None => links.invalid.push(LinkError::NoUnit(by)),
                Some(Kind::Plain) if must_have_instance => {
                    links.invalid.push(LinkError::NoInstance { unit: linked.clone(), by });
                }
                Some(Kind::Plain | Kind::Template | Kind::Instance) => {
                    links.wanted.push(format!("{by}.{suffix}/{linked}"));
                }
            }
        }
        links
    }

    fn link_alias(&self, unit: &str, alias: &str, links: &mut Links) {
        let refuse = || LinkError::Alias { unit: unit.to_owned(), alias: alias.to_owned() };
        if let Some((folder, last)) = alias.rsplit_once('/') {
            // Old syntax of WantedBy.
            let by = folder.strip_suffix(".wants").or_else(|| folder.strip_suffix(".requires"));
            match by.and_then(name::kind) {
                None => links.invalid.push(LinkError::Reference(alias.to_owned())),
                Some(_) if last == unit || self.default_unit(unit).as_deref() == Some(last) => {
                    links.wanted.push(alias.to_owned());
                }
                Some(_) => links.invalid.push(refuse()),
            }
            return;
        }
        // An alias of a template is a template; an alias of an instance is an instance of that
        // template.
        let alias = match (name::kind(alias), name::instance(unit)) {
            (Some(Kind::Template), Some(instance)) => name::with_instance(alias, instance),
            _ => alias.to_owned(),
        };
        if alias == unit {
            return;
        }
        if is_valid_alias(&alias, unit) {
            links.aliases.push(alias);
        } else {
            links.invalid.push(refuse());
        }
    }
}

/// Returns true if a unit may have this alias.
fn is_valid_alias(alias: &str, unit: &str) -> bool {
    let suffix = name::suffix(alias);
    let fits = match (name::kind(alias), name::kind(unit)) {
        (Some(Kind::Plain), Some(Kind::Plain))
        | (Some(Kind::Template | Kind::Instance), Some(Kind::Template)) => true,
        (Some(Kind::Instance), Some(Kind::Instance)) => {
            name::instance(alias) == name::instance(unit)
        }
        (None | Some(_), None | Some(_)) => false,
    };
    fits && suffix == name::suffix(unit)
}

/// Returns the file names of a unit: its own, and for an instance its template's.
pub(super) fn file_names(unit: &str) -> Vec<String> {
    let mut names = vec![unit.to_owned()];
    names.extend(name::template(unit).filter(|template| template != unit));
    names
}

fn expand(text: &str, unit: &str) -> String {
    let stem = unit.rsplit_once('.').map_or(unit, |(stem, _)| stem);
    let (prefix, instance) = stem.split_once('@').unwrap_or((stem, ""));
    let mut letters = text.chars();
    let mut expanded = String::new();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            expanded.push(letter);
            continue;
        }
        match letters.next() {
            Some('i' | 'I') => expanded.push_str(instance),
            Some('p' | 'P') => expanded.push_str(prefix),
            Some('j' | 'J') => expanded.push_str(prefix.rsplit('-').next().unwrap_or(prefix)),
            Some('n') => expanded.push_str(unit),
            Some('N') => expanded.push_str(stem),
            Some('%') | None => expanded.push('%'),
            Some(other) => expanded.extend(['%', other]),
        }
    }
    expanded
}
