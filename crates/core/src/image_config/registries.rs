//! The contents of `registries.conf`: reading, editing and writing it.

mod edit;
mod find;

use toml_edit::TableLike;

pub(super) use self::edit::RegistryRules;
pub use self::{edit::EditError, find::PullError};
use crate::toml::{
    TomlFault, read,
    write::{Child, Table, Value},
};

/// Mirrors that are used for digests only.
pub const DIGEST_ONLY: &str = "digest-only";
/// Mirrors that are used for tags only.
pub const TAG_ONLY: &str = "tag-only";

/// The contents of a registries file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistriesConf {
    /// Registries and their mirrors; `None` if the file has no list.
    pub registries: Option<Vec<Registry>>,
    /// Registries that are searched for names without a registry.
    pub search: Option<Vec<String>>,
    credential_helpers: Option<Vec<String>>,
    short_name_mode: String,
    auth_helper: String,
    aliases: Option<Vec<(String, String)>>,
}

/// A registry, or a part of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registry {
    /// Prefix of the image names; empty if it is the location.
    pub prefix: String,
    /// Place that images are pulled from.
    pub at: Endpoint,
    /// Mirrors, in the order in which they are tried.
    pub mirrors: Vec<Endpoint>,
    /// Whether no image is pulled from the place.
    pub blocked: bool,
    /// Whether the mirrors are used for digests only.
    pub digest_only: bool,
}

/// A place that images are pulled from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// Host, port and path.
    pub location: String,
    /// Whether certificates are not verified.
    pub insecure: bool,
    /// Pulls that a mirror is used for; empty for all.
    pub pull: String,
}

impl Registry {
    /// Returns the scope of the registry.
    #[must_use]
    pub fn scope(&self) -> &str {
        if self.prefix.is_empty() { &self.at.location } else { &self.prefix }
    }

    fn of(table: &dyn TableLike) -> Result<Self, TomlFault> {
        let mirrors = read::tables(table, "mirror")?.unwrap_or_default();
        Ok(Self {
            prefix: read::text(table, "prefix")?,
            at: Endpoint::of(table)?,
            mirrors: mirrors.into_iter().map(Endpoint::of).collect::<Result<_, _>>()?,
            blocked: read::flag(table, "blocked")?,
            digest_only: read::flag(table, "mirror-by-digest-only")?,
        })
    }

    fn table(&self) -> Table {
        let mut table = Table::default();
        table.text("prefix", &self.prefix);
        self.at.write(&mut table);
        table.some_flag("blocked", self.blocked);
        table.some_flag("mirror-by-digest-only", self.digest_only);
        if !self.mirrors.is_empty() {
            let mirror = |mirror: &Endpoint| {
                let mut table = Table::default();
                mirror.write(&mut table);
                table
            };
            table.child("mirror", Child::Many(self.mirrors.iter().map(mirror).collect()));
        }
        table
    }
}

impl Endpoint {
    fn of(table: &dyn TableLike) -> Result<Self, TomlFault> {
        Ok(Self {
            location: read::text(table, "location")?,
            insecure: read::flag(table, "insecure")?,
            pull: read::text(table, "pull-from-mirror")?,
        })
    }

    fn write(&self, table: &mut Table) {
        table.some_text("location", &self.location);
        table.some_flag("insecure", self.insecure);
        table.some_text("pull-from-mirror", &self.pull);
    }
}

impl RegistriesConf {
    /// Returns a file with a list of registries that are searched, and nothing else.
    pub(super) fn searching(registries: &[String]) -> Self {
        Self { search: Some(registries.to_vec()), ..Self::default() }
    }

    /// Reads a registries file.
    pub fn parse(text: &str) -> Result<Self, TomlFault> {
        let document = read::document(text)?;
        let table: &dyn TableLike = document.as_table();
        let registries = match read::tables(table, "registry")? {
            Some(found) => Some(found.into_iter().map(Registry::of).collect::<Result<_, _>>()?),
            None => None,
        };
        Ok(Self {
            registries,
            search: read::texts(table, "unqualified-search-registries")?,
            credential_helpers: read::texts(table, "credential-helpers")?,
            short_name_mode: read::text(table, "short-name-mode")?,
            auth_helper: read::text(table, "additional-layer-store-auth-helper")?,
            aliases: read::text_table(table, "aliases")?,
        })
    }

    /// Returns the registries of the file.
    #[must_use]
    pub fn registries(&self) -> &[Registry] {
        self.registries.as_deref().unwrap_or_default()
    }

    /// Writes the file.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut root = Table::default();
        let registries = self.registries.as_ref();
        if registries.is_some_and(Vec::is_empty) {
            root.value("registry", Value::Texts(Vec::new()));
        }
        if let Some(search) = &self.search {
            root.value("unqualified-search-registries", Value::Texts(search.clone()));
        }
        if let Some(helpers) = &self.credential_helpers {
            root.value("credential-helpers", Value::Texts(helpers.clone()));
        }
        root.text("short-name-mode", &self.short_name_mode);
        root.text("additional-layer-store-auth-helper", &self.auth_helper);
        if let Some(registries) = registries.filter(|registries| !registries.is_empty()) {
            let tables = registries.iter().map(Registry::table).collect();
            root.child("registry", Child::Many(tables));
        }
        if let Some(aliases) = &self.aliases {
            let mut sorted: Vec<_> = aliases.iter().collect();
            sorted.sort();
            let mut table = Table::default();
            for (name, target) in sorted {
                table.text(name, target);
            }
            root.child("aliases", Child::One(table));
        }
        root.to_toml()
    }
}
