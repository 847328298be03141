//! Registries and mirrors for containerd: a `hosts.toml` for each registry.
//!
//! containerd reads these files for every pull, so a change needs no restart. It selects mirrors by
//! the host of an image only: it has no rules for parts of a registry or for whole domains, and
//! none for signatures. Settings without an equivalent are reported, not approximated in a way
//! that would trust or use more than was asked for.

use std::collections::BTreeMap;

use mco_api::openshift::mirror_set::MirrorSourcePolicy;

use super::{
    ImageConfig, ImageConfigError, RegistriesError,
    mirrors::{self, MergedMirrors},
    scope::{is_wildcard, is_within},
    validate,
};
use crate::{
    generated::GeneratedFile,
    toml::write::{Child, Table, Value},
};

/// Directory of the files.
pub const CERTS_D: &str = "/etc/containerd/certs.d";

/// A setting that has no effect on nodes with containerd.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NoEffect {
    /// The setting.
    pub setting: String,
    /// The reason.
    pub reason: &'static str,
}

impl std::fmt::Display for NoEffect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.setting, self.reason)
    }
}

/// The files for containerd, and the settings that they do not contain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerdFiles {
    /// Files, ordered by path.
    pub files: Vec<GeneratedFile>,
    /// Settings without an equivalent, in order.
    pub without_effect: Vec<NoEffect>,
}

const WHOLE_HOSTS: &str = "containerd has rules for whole registries (host[:port]) only";
const NO_DOMAINS: &str = "containerd has no rules for domains; name each registry";
const OTHER_PATH: &str =
    "containerd keeps the path of an image, so the mirror's path must end with that of the source";
const TAGS_OF_PART: &str = "containerd would resolve the tags of the whole registry at this mirror";
const STILL_CONTACTED: &str =
    "containerd never contacts whole registries only, so the source is contacted after its mirrors";
const NO_POLICY: &str =
    "containerd does not verify signatures and has no list of allowed registries";
const NO_SEARCH: &str = "containerd searches names without a registry in docker.io only";

/// A registry in the words of containerd.
#[derive(Default)]
struct Host {
    /// Places that are tried before the registry.
    mirrors: Vec<Mirror>,
    /// Whether the registry itself is never contacted.
    blocked: bool,
}

struct Mirror {
    /// Host and port.
    host: String,
    /// Path before that of the image; empty for none.
    path: String,
    tags: bool,
}

impl ImageConfig {
    /// Writes the files for containerd.
    pub fn containerd_files(&self) -> Result<ContainerdFiles, ImageConfigError> {
        let check = || {
            let insecure = self.sources.insecure_registries.as_deref().unwrap_or_default();
            validate::scopes("insecure", insecure)?;
            validate::scopes("blocked", self.lists.blocked.as_deref().unwrap_or_default())?;
            validate::mirrors(self.digest_rules.iter().chain(&self.tag_rules))
        };
        check().map_err(|error| ImageConfigError::Registries(RegistriesError::Entry(error)))?;
        let mut hosts: BTreeMap<String, Host> = BTreeMap::new();
        let mut without_effect = Vec::new();
        for set in mirrors::merge(&self.digest_rules) {
            add_mirrors(&mut hosts, &set, Pulls::Digests, &mut without_effect);
        }
        for set in mirrors::merge(&self.tag_rules) {
            add_mirrors(&mut hosts, &set, Pulls::Tags, &mut without_effect);
        }
        let insecure = self.sources.insecure_registries.as_deref().unwrap_or_default();
        let of = |list: &str, scope: &str| format!("{list} {scope}");
        for scope in insecure {
            match host(scope) {
                Ok(name) => drop(hosts.entry(name.to_owned()).or_default()),
                Err(reason) => {
                    let setting = of("insecureRegistries", scope);
                    without_effect.push(NoEffect { setting, reason });
                }
            }
        }
        for scope in self.lists.blocked.iter().flatten() {
            match host(scope) {
                Ok(name) => hosts.entry(name.to_owned()).or_default().blocked = true,
                Err(reason) => {
                    let setting = of("blockedRegistries", scope);
                    without_effect.push(NoEffect { setting, reason });
                }
            }
        }
        self.report_policies(&mut without_effect);
        let files = hosts.iter().map(|(name, host)| {
            let path = format!("{CERTS_D}/{name}/hosts.toml");
            GeneratedFile::new(path, hosts_toml(name, host, insecure))
        });
        Ok(ContainerdFiles { files: files.collect(), without_effect })
    }

    fn report_policies(&self, without_effect: &mut Vec<NoEffect>) {
        let mut report =
            |setting: String, reason| without_effect.push(NoEffect { setting, reason });
        // Allowed because the payload's repository is blocked.
        let payload = self.payload.as_ref().map(super::Reference::name);
        for scope in self.lists.allowed.iter().flatten() {
            if payload != Some(scope) {
                report(format!("allowedRegistries {scope}"), NO_POLICY);
            }
        }
        for scope in self.policies.cluster.keys() {
            report(format!("ClusterImagePolicy scope {scope}"), NO_POLICY);
        }
        for scope in self.policies.namespace_scopes() {
            report(format!("ImagePolicy scope {scope}"), NO_POLICY);
        }
        if let Some(search) = self.search().filter(|search| !search.is_empty()) {
            let setting = format!("containerRuntimeSearchRegistries {}", search.join(", "));
            report(setting, NO_SEARCH);
        }
    }
}

/// Returns the host that a scope consists of.
fn host(scope: &str) -> Result<&str, &'static str> {
    match scope {
        _ if is_wildcard(scope) => Err(NO_DOMAINS),
        _ if scope.contains('/') => Err(WHOLE_HOSTS),
        scope => Ok(scope),
    }
}

/// The pulls that mirrors are for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pulls {
    Digests,
    Tags,
}

fn add_mirrors(
    hosts: &mut BTreeMap<String, Host>,
    set: &MergedMirrors,
    pulls: Pulls,
    without_effect: &mut Vec<NoEffect>,
) {
    let mut report = |setting, reason| without_effect.push(NoEffect { setting, reason });
    let source = &set.source;
    if is_wildcard(source) {
        report(format!("mirrors of {source}"), NO_DOMAINS);
        return;
    }
    let (name, path) = split(source);
    let entry = hosts.entry(name.to_owned()).or_default();
    for mirror in set.mirrors.iter().filter(|mirror| *mirror != source) {
        let (host, mirror_path) = split(mirror);
        let setting = format!("mirror {mirror} of {source}");
        let Some(before) = mirror_path.strip_suffix(path) else {
            report(setting, OTHER_PATH);
            continue;
        };
        if pulls == Pulls::Tags && !path.is_empty() {
            report(setting, TAGS_OF_PART);
            continue;
        }
        let known = entry.mirrors.iter_mut().find(|one| one.host == host && one.path == before);
        let tags = pulls == Pulls::Tags;
        if let Some(known) = known {
            known.tags |= tags;
        } else {
            let (host, path) = (host.to_owned(), before.to_owned());
            entry.mirrors.push(Mirror { host, path, tags });
        }
    }
    if set.policy == MirrorSourcePolicy::NeverContactSource {
        if path.is_empty() {
            entry.blocked = true;
        } else {
            report(format!("NeverContactSource of {source}"), STILL_CONTACTED);
        }
    }
}

/// Splits a scope into its host and its path, which is empty or begins with `/`.
fn split(scope: &str) -> (&str, &str) {
    scope.split_at(scope.find('/').unwrap_or(scope.len()))
}

/// Writes the file of a registry.
fn hosts_toml(name: &str, host: &Host, insecure: &[String]) -> String {
    let mut root = Table::default();
    let server = if name == "docker.io" { "registry-1.docker.io" } else { name };
    root.text("server", &format!("https://{server}"));
    if host.blocked {
        // A registry that can neither resolve nor pull is not asked for images.
        root.value("capabilities", Value::Texts(vec!["push".to_owned()]));
    }
    let mut places: Vec<(String, Table)> = Vec::new();
    for mirror in &host.mirrors {
        let location = format!("{}{}", mirror.host, mirror.path);
        let skip = insecure.iter().any(|scope| is_within(&location, scope));
        let capabilities: &[&str] = if mirror.tags { &["pull", "resolve"] } else { &["pull"] };
        for (scheme, verified) in schemes(skip) {
            let mut url = format!("{scheme}://{}", mirror.host);
            let mut place = place(capabilities, verified);
            if !mirror.path.is_empty() {
                url.push_str("/v2");
                url.push_str(&mirror.path);
                place.value("override_path", Value::Flag(true));
            }
            places.push((url, place));
        }
    }
    let is_insecure = insecure.iter().any(|scope| is_within(name, scope));
    if is_insecure && !host.blocked {
        for (scheme, verified) in schemes(true) {
            places.push((format!("{scheme}://{server}"), place(&["pull", "resolve"], verified)));
        }
    }
    if !places.is_empty() {
        let mut table = Table::default();
        for (url, place) in places {
            table.child(&url, Child::One(place));
        }
        root.child("host", Child::One(table));
    }
    root.to_toml()
}

/// Returns the schemes that are tried, and whether certificates are verified.
///
/// An insecure registry may have a certificate that cannot be verified, or none.
fn schemes(insecure: bool) -> Vec<(&'static str, bool)> {
    if insecure { vec![("https", false), ("http", true)] } else { vec![("https", true)] }
}

fn place(capabilities: &[&str], verified: bool) -> Table {
    let mut table = Table::default();
    let capabilities = capabilities.iter().map(|word| (*word).to_owned()).collect();
    table.value("capabilities", Value::Texts(capabilities));
    table.some_flag("skip_verify", !verified);
    table
}
