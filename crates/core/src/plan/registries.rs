//! Safety check for changes of the image registries file.
//!
//! A change is safe if every image that could be pulled before is pulled from the same places
//! after. New mirrors that serve digests only are safe: the bytes are the same from every mirror.
//! Every other change drains the node first.

use std::collections::BTreeMap;

use toml_edit::{DocumentMut, Item, TableLike};

use crate::machine::{self, Machine};

/// Path of the registries file.
pub const PATH: &str = "/etc/containers/registries.conf";

const DIGEST_ONLY: &str = "digest-only";

/// The reason why the registries file cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed decoding TOML content from file {PATH}: {fault}")]
pub struct Unparsable {
    fault: String,
}

#[derive(Debug, Default)]
struct Registries {
    search: Vec<String>,
    by_scope: BTreeMap<String, Registry>,
}

#[derive(Debug, Default, PartialEq)]
struct Registry {
    prefix: String,
    at: Endpoint,
    blocked: bool,
    digest_only: bool,
    mirrors: Vec<Endpoint>,
}

#[derive(Debug, Default, PartialEq)]
struct Endpoint {
    location: String,
    insecure: bool,
    pull: String,
}

/// Returns the first change of the registries file that could affect running pods, if any.
pub fn unsafe_change(from: &Machine, to: &Machine) -> Result<Option<String>, Unparsable> {
    let (old, new) = (read(from)?, read(to)?);
    if !new.search.starts_with(&old.search) {
        return Ok(Some("the order of search registries changed".to_owned()));
    }
    if let Some(gone) = old.by_scope.keys().find(|scope| !new.by_scope.contains_key(*scope)) {
        return Ok(Some(format!("registry {gone} has been removed")));
    }
    Ok(new.by_scope.iter().find_map(|(scope, registry)| match old.by_scope.get(scope) {
        Some(before) => changed(scope, before, registry),
        None => added(scope, registry),
    }))
}

fn changed(scope: &str, old: &Registry, new: &Registry) -> Option<String> {
    if old == new {
        return None;
    }
    let values = [
        ("prefix", old.prefix != new.prefix),
        ("location", old.at.location != new.at.location),
        ("blocked", old.blocked != new.blocked),
        ("insecure", old.at.insecure != new.at.insecure),
    ];
    if let Some((name, _)) = values.into_iter().find(|(_, differs)| *differs) {
        return Some(format!("{name} value for registry {scope} has changed"));
    }
    let find = |mirrors: &[Endpoint], location: &str| -> Option<String> {
        mirrors.iter().find(|found| found.location == location).map(|found| found.pull.clone())
    };
    for mirror in &old.mirrors {
        if find(&new.mirrors, &mirror.location).is_none() {
            return Some(format!(
                "mirror {} has been removed in registry {scope}",
                mirror.location
            ));
        }
    }
    new.mirrors.iter().find_map(|mirror| {
        let unsafe_now = match find(&old.mirrors, &mirror.location) {
            Some(before) => mirror.pull != before && mirror.pull != DIGEST_ONLY,
            None => mirror.pull != DIGEST_ONLY && !new.digest_only,
        };
        unsafe_now.then(|| format!("mirror {} in registry {scope} may serve tags", mirror.location))
    })
}

fn added(scope: &str, registry: &Registry) -> Option<String> {
    // Compat: the registry's own flag counts only if the registry has no mirrors
    // (pkg/daemon/drain.go).
    let safe = if registry.mirrors.is_empty() {
        registry.digest_only
    } else {
        registry.mirrors.iter().all(|mirror| mirror.pull == DIGEST_ONLY)
    };
    (!safe).then(|| format!("registry {scope} has been added and may serve tags"))
}

fn read(machine: &Machine) -> Result<Registries, Unparsable> {
    // A gzipped file is read as well; the reference fails on one.
    let Some(file) = machine.file(PATH) else { return Ok(Registries::default()) };
    let bytes = machine::contents(file).map_err(|error| unparsable(&error))?;
    let text = std::str::from_utf8(&bytes).map_err(|error| unparsable(&error))?;
    parse(text)
}

/// Parses the registries file. Members of the wrong type are refused, also those that are not
/// compared: the container engine would refuse them too.
fn parse(text: &str) -> Result<Registries, Unparsable> {
    let document: DocumentMut = text
        .parse()
        .map_err(|error: toml_edit::TomlError| Unparsable { fault: error.message().to_owned() })?;
    let table: &dyn TableLike = document.as_table();
    for list in ["unqualified-search-registries", "credential-helpers"] {
        words(table, list)?;
    }
    for name in ["short-name-mode", "additional-layer-store-auth-helper"] {
        text_of(table, name)?;
    }
    if let Some(aliases) = member(table, "aliases").and_then(Item::as_table_like) {
        for (name, _) in aliases.iter() {
            text_of(aliases, name)?;
        }
    }
    let mut registries = Registries {
        search: words(table, "unqualified-search-registries")?,
        ..Registries::default()
    };
    for table in tables(table, "registry")? {
        let registry = Registry {
            prefix: text_of(table, "prefix")?,
            at: endpoint(table)?,
            blocked: flag(table, "blocked")?,
            digest_only: flag(table, "mirror-by-digest-only")?,
            mirrors: tables(table, "mirror")?
                .into_iter()
                .map(endpoint)
                .collect::<Result<_, _>>()?,
        };
        let scope =
            if registry.prefix.is_empty() { &registry.at.location } else { &registry.prefix };
        registries.by_scope.insert(scope.clone(), registry);
    }
    Ok(registries)
}

fn endpoint(table: &dyn TableLike) -> Result<Endpoint, Unparsable> {
    Ok(Endpoint {
        location: text_of(table, "location")?,
        insecure: flag(table, "insecure")?,
        pull: text_of(table, "pull-from-mirror")?,
    })
}

/// Returns the member of that name, ignoring case if there is no exact match.
fn member<'t>(table: &'t dyn TableLike, name: &str) -> Option<&'t Item> {
    table.get(name).or_else(|| {
        let found = table.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, item)| item)
    })
}

fn tables<'t>(table: &'t dyn TableLike, name: &str) -> Result<Vec<&'t dyn TableLike>, Unparsable> {
    match member(table, name) {
        None => Ok(Vec::new()),
        Some(Item::ArrayOfTables(tables)) => {
            Ok(tables.iter().map(|table| table as &dyn TableLike).collect())
        }
        Some(item) => {
            let array = item.as_array().ok_or_else(|| wrong_type(name, "a list of tables"))?;
            let inline = |value: &'t toml_edit::Value| {
                let table = value.as_inline_table().map(|table| table as &dyn TableLike);
                table.ok_or_else(|| wrong_type(name, "a list of tables"))
            };
            array.iter().map(inline).collect()
        }
    }
}

fn words(table: &dyn TableLike, name: &str) -> Result<Vec<String>, Unparsable> {
    let Some(item) = member(table, name) else { return Ok(Vec::new()) };
    let wrong = || wrong_type(name, "a list of strings");
    let array = item.as_array().ok_or_else(wrong)?;
    array.iter().map(|value| value.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
}

fn text_of(table: &dyn TableLike, name: &str) -> Result<String, Unparsable> {
    let Some(item) = member(table, name) else { return Ok(String::new()) };
    item.as_str().map(str::to_owned).ok_or_else(|| wrong_type(name, "a string"))
}

fn flag(table: &dyn TableLike, name: &str) -> Result<bool, Unparsable> {
    let Some(item) = member(table, name) else { return Ok(false) };
    item.as_bool().ok_or_else(|| wrong_type(name, "true or false"))
}

fn wrong_type(name: &str, wanted: &str) -> Unparsable {
    Unparsable { fault: format!("{name} must be {wanted}") }
}

fn unparsable(error: &dyn std::error::Error) -> Unparsable {
    Unparsable { fault: error.to_string() }
}
