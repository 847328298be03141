//! The `[Install]` section of a unit file, and the links it asks for.

use std::fmt;

use super::name::{self, Kind};

/// What a unit file says about starting at boot.
#[derive(Debug, Default)]
pub(super) struct Install {
    wanted_by: Vec<String>,
    required_by: Vec<String>,
    upheld_by: Vec<String>,
    alias: Vec<String>,
    pub(super) also: Vec<String>,
    default_instance: Option<String>,
}

/// The links that a unit asks for, relative to the folder of units.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// From other units' folders.
    pub(super) wanted: Vec<String>,
    /// Other names of the unit.
    pub(super) aliases: Vec<String>,
    /// What cannot be had.
    pub(super) refused: Vec<Refused>,
}

/// Why a unit file asks for a link that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The unit cannot go by that name.
    Alias {
        /// The unit.
        unit: String,
        /// The other name.
        alias: String,
    },
    /// The name is only another name of a unit.
    Linked(String),
    /// The other name is a path that is none of a unit.
    Reference(String),
    /// A template without a default instance, wanted by one single unit.
    NoInstance {
        /// The template.
        unit: String,
        /// Who wants it.
        by: String,
    },
    /// Wanted by something that cannot be a unit.
    NoUnit(String),
    /// Something else is there.
    Exists {
        /// Where.
        path: String,
        /// What a link there leads to.
        target: Option<String>,
    },
}

impl fmt::Display for Refused {
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
    pub(super) fn parse(text: &str) -> Self {
        let mut install = Self::default();
        let mut inside = false;
        for line in logical_lines(text) {
            let line = line.trim();
            if line.starts_with('[') {
                inside = line == "[Install]";
                continue;
            }
            let Some((key, value)) = line.split_once('=') else { continue };
            if !inside || line.starts_with(['#', ';']) {
                continue;
            }
            let list = match key.trim() {
                "WantedBy" => &mut install.wanted_by,
                "RequiredBy" => &mut install.required_by,
                "UpheldBy" => &mut install.upheld_by,
                "Alias" => &mut install.alias,
                "Also" => &mut install.also,
                "DefaultInstance" => {
                    install.default_instance = Some(value.trim().to_owned());
                    continue;
                }
                _ => continue,
            };
            // An empty value forgets what was said before.
            if value.trim().is_empty() {
                list.clear();
            }
            list.extend(value.split_whitespace().map(str::to_owned));
        }
        install
    }

    /// Whether the file asks for any links at all.
    pub(super) fn has_rules(&self) -> bool {
        [&self.wanted_by, &self.required_by, &self.upheld_by, &self.alias]
            .iter()
            .any(|list| !list.is_empty())
    }

    /// The links for `unit`.
    pub(super) fn links(&self, unit: &str) -> Links {
        let mut links = Links::default();
        for alias in &self.alias {
            self.link_alias(unit, &expand(alias, unit), &mut links);
        }
        let lists = [
            (&self.wanted_by, "wants"),
            (&self.required_by, "requires"),
            (&self.upheld_by, "upholds"),
        ];
        for (list, suffix) in lists {
            self.link_wanted(unit, list, suffix, &mut links);
        }
        links
    }

    /// Whether a link of this name is one that `unit` asks for.
    pub(super) fn knows(&self, unit: &str, link: &str) -> bool {
        let instance = self.default_instance.as_ref();
        link == unit
            || self.alias.iter().any(|alias| expand(alias, unit) == link)
            || (name::kind(unit) == Some(Kind::Template)
                && instance.is_some_and(|it| name::with_instance(unit, it) == link))
    }

    /// The instance that is meant when a template is named, as a unit.
    pub(super) fn default_unit(&self, unit: &str) -> Option<String> {
        let instance = self.default_instance.as_ref()?;
        let is_template = name::kind(unit) == Some(Kind::Template);
        is_template.then(|| name::with_instance(unit, instance))
    }

    fn link_wanted(&self, unit: &str, list: &[String], suffix: &str, links: &mut Links) {
        let is_template = name::kind(unit) == Some(Kind::Template);
        let default = self.default_unit(unit);
        // A template without an instance gets it from whoever wants it, who must have one too.
        let must_have_instance = is_template && default.is_none();
        let linked = default.unwrap_or_else(|| unit.to_owned());
        for by in list {
            let by = expand(by, &linked);
            match name::kind(&by) {
                None => return links.refused.push(Refused::NoUnit(by)),
                Some(Kind::Plain) if must_have_instance => {
                    return links.refused.push(Refused::NoInstance { unit: linked, by });
                }
                Some(Kind::Plain | Kind::Template | Kind::Instance) => {
                    links.wanted.push(format!("{by}.{suffix}/{linked}"));
                }
            }
        }
    }

    fn link_alias(&self, unit: &str, alias: &str, links: &mut Links) {
        let refuse = || Refused::Alias { unit: unit.to_owned(), alias: alias.to_owned() };
        if let Some((folder, last)) = alias.rsplit_once('/') {
            // An old way to be wanted.
            let by = folder.strip_suffix(".wants").or_else(|| folder.strip_suffix(".requires"));
            match by.and_then(name::kind) {
                None => links.refused.push(Refused::Reference(alias.to_owned())),
                Some(_) if last == unit || self.default_unit(unit).as_deref() == Some(last) => {
                    links.wanted.push(alias.to_owned());
                }
                Some(_) => links.refused.push(refuse()),
            }
            return;
        }
        // Another name of a template is another template, and of an instance one of that.
        let alias = match (name::kind(alias), name::instance(unit)) {
            (Some(Kind::Template), Some(instance)) => name::with_instance(alias, instance),
            _ => alias.to_owned(),
        };
        if alias == unit {
            return;
        }
        if may_be(&alias, unit) {
            links.aliases.push(alias);
        } else {
            links.refused.push(refuse());
        }
    }
}

/// Whether a unit may go by another name.
fn may_be(alias: &str, unit: &str) -> bool {
    // systemd has no second names for the other types.
    let types = ["service", "socket", "target", "device", "timer", "path"];
    let suffix = name::suffix(alias);
    let fits = match (name::kind(alias), name::kind(unit)) {
        (Some(Kind::Plain), Some(Kind::Plain))
        | (Some(Kind::Template | Kind::Instance), Some(Kind::Template)) => true,
        (Some(Kind::Instance), Some(Kind::Instance)) => {
            name::instance(alias) == name::instance(unit)
        }
        (None | Some(_), None | Some(_)) => false,
    };
    fits && suffix == name::suffix(unit) && types.contains(&suffix)
}

/// The names that the file of a unit may have: its own, and for an instance its template's.
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

/// The lines of a unit file, with those that end in a backslash joined to the next.
fn logical_lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut continues = false;
    for line in text.lines() {
        let (part, next) = match line.strip_suffix('\\') {
            Some(part) => (part, true),
            None => (line, false),
        };
        match lines.last_mut() {
            Some(last) if continues => {
                last.push(' ');
                last.push_str(part);
            }
            _ => lines.push(part.to_owned()),
        }
        continues = next;
    }
    lines
}
