//! Whether a change to the list of image registries can hit running pods.
//!
//! A change is safe when every image that could be pulled before is pulled from the same places
//! after. New mirrors that serve digests only are safe: the bytes are the same wherever they come
//! from. Everything else moves the pods away first.

use std::collections::BTreeMap;

use toml_edit::{DocumentMut, Item, Table};

use crate::machine::{self, Machine};

/// The list of registries.
pub(super) const PATH: &str = "/etc/containers/registries.conf";

const DIGEST_ONLY: &str = "digest-only";

/// Why the list of registries cannot be compared.
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

#[derive(Debug, Default)]
struct Registry {
    prefix: String,
    location: String,
    blocked: bool,
    insecure: bool,
    digest_only: bool,
    mirrors: Vec<Mirror>,
}

#[derive(Debug, Default)]
struct Mirror {
    location: String,
    pull: String,
}

/// What is dangerous about the change, if anything.
pub(super) fn danger(from: &Machine, to: &Machine) -> Result<Option<String>, Unparsable> {
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
    let values = [
        ("prefix", old.prefix != new.prefix),
        ("location", old.location != new.location),
        ("blocked", old.blocked != new.blocked),
        ("insecure", old.insecure != new.insecure),
    ];
    if let Some((name, _)) = values.into_iter().find(|(_, differs)| *differs) {
        return Some(format!("{name} value for registry {scope} has changed"));
    }
    let find = |mirrors: &[Mirror], location: &str| -> Option<String> {
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
    // Compat: the registry's own switch counts only where it has no mirrors (pkg/daemon/drain.go).
    let safe = if registry.mirrors.is_empty() {
        registry.digest_only
    } else {
        registry.mirrors.iter().all(|mirror| mirror.pull == DIGEST_ONLY)
    };
    (!safe).then(|| format!("registry {scope} has been added and may serve tags"))
}

fn read(machine: &Machine) -> Result<Registries, Unparsable> {
    // A gzipped list is read as well, on which the reference stumbles.
    let Some(file) = machine.file(PATH) else { return Ok(Registries::default()) };
    let bytes = machine::contents(file).map_err(|error| unparsable(&error))?;
    let text = std::str::from_utf8(&bytes).map_err(|error| unparsable(&error))?;
    let document: DocumentMut = text
        .parse()
        .map_err(|error: toml_edit::TomlError| Unparsable { fault: error.message().to_owned() })?;
    let mut registries = Registries {
        search: words(document.get("unqualified-search-registries")),
        ..Default::default()
    };
    for table in tables(document.get("registry")) {
        let registry = Registry {
            prefix: text_of(table, "prefix"),
            location: text_of(table, "location"),
            blocked: flag(table, "blocked"),
            insecure: flag(table, "insecure"),
            digest_only: flag(table, "mirror-by-digest-only"),
            mirrors: tables(table.get("mirror")).map(mirror).collect(),
        };
        let scope =
            if registry.prefix.is_empty() { &registry.location } else { &registry.prefix }.clone();
        registries.by_scope.insert(scope, registry);
    }
    Ok(registries)
}

fn mirror(table: &Table) -> Mirror {
    Mirror { location: text_of(table, "location"), pull: text_of(table, "pull-from-mirror") }
}

fn tables(item: Option<&Item>) -> impl Iterator<Item = &Table> {
    item.and_then(Item::as_array_of_tables).into_iter().flatten()
}

fn words(item: Option<&Item>) -> Vec<String> {
    let array = item.and_then(Item::as_array).into_iter().flatten();
    array.filter_map(|value| value.as_str().map(str::to_owned)).collect()
}

fn text_of(table: &Table, key: &str) -> String {
    table.get(key).and_then(Item::as_str).unwrap_or_default().to_owned()
}

fn flag(table: &Table, key: &str) -> bool {
    table.get(key).and_then(Item::as_bool).unwrap_or_default()
}

fn unparsable(error: &dyn std::error::Error) -> Unparsable {
    Unparsable { fault: error.to_string() }
}
