//! Safety check for changes of the image registries file.
//!
//! A change is safe if every image that could be pulled before is pulled from the same places
//! after. New mirrors that serve digests only are safe: the bytes are the same from every mirror.
//! Every other change drains the node first.

use std::collections::BTreeMap;

use crate::{
    image_config::registries::{DIGEST_ONLY, Endpoint, RegistriesConf, Registry},
    machine::{self, Machine},
};

/// Path of the registries file.
pub const PATH: &str = "/etc/containers/registries.conf";

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
    let conf = RegistriesConf::parse(text).map_err(|error| unparsable(&error))?;
    let by_scope = conf.registries.unwrap_or_default().into_iter();
    Ok(Registries {
        search: conf.search.unwrap_or_default(),
        by_scope: by_scope.map(|registry| (registry.scope().to_owned(), registry)).collect(),
    })
}

fn unparsable(error: &dyn std::error::Error) -> Unparsable {
    Unparsable { fault: error.to_string() }
}
