//! The kinds of an API server, and the resolution of the names that users give them.

use futures::{StreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    APIGroup, APIResourceList, GroupVersionForDiscovery,
};
use kube::{Client, api::ApiResource};
use mco_core::lint::suggest;
use serde_json::Value;

use super::call_error;
use crate::{error::error_with_hint, print};

/// Number of groups that are asked for at the same time.
const PARALLEL: usize = 8;

/// A kind from the discovery of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// API group; empty for the core group.
    pub(crate) group: String,
    pub(crate) version: String,
    /// Name as in the `kind` of manifests.
    pub(crate) name: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) short: Vec<String>,
    pub(crate) namespaced: bool,
}

impl Kind {
    /// Returns the path of one object, or of all objects of a namespace or of the cluster.
    pub(crate) fn path(&self, namespace: Option<&str>, name: Option<&str>) -> String {
        let mut path = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        if let (true, Some(namespace)) = (self.namespaced, namespace) {
            path.extend(["/namespaces/", namespace]);
        }
        path.extend(["/", &self.plural]);
        if let Some(name) = name {
            path.extend(["/", name]);
        }
        path
    }

    /// Returns the description that a client needs.
    pub(crate) fn resource(&self) -> ApiResource {
        ApiResource {
            group: self.group.clone(),
            version: self.version.clone(),
            api_version: self.api_version(),
            kind: self.name.clone(),
            plural: self.plural.clone(),
        }
    }

    /// Adds the kind to an item of a list, which has none.
    pub(crate) fn mark(&self, item: &mut Value) {
        if let Some(members) = item.as_object_mut() {
            members.entry("apiVersion").or_insert_with(|| Value::String(self.api_version()));
            members.entry("kind").or_insert_with(|| Value::String(self.name.clone()));
        }
    }

    /// Returns `group/version`, or the version in the core group.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Returns `singular.group/name`.
    pub(crate) fn label(&self, name: &str) -> String {
        format!("{}/{name}", self.qualified_singular())
    }

    /// Returns `singular.group`, or `singular` in the core group.
    pub(crate) fn qualified_singular(&self) -> String {
        self.qualified(&self.name.to_lowercase())
    }

    fn qualified(&self, name: &str) -> String {
        if self.group.is_empty() { name.to_owned() } else { format!("{name}.{}", self.group) }
    }

    /// Returns true if `word` is a name of this kind.
    fn has_name(&self, word: &str) -> bool {
        let names = [&self.plural, &self.singular].into_iter().chain(&self.short);
        let kind = self.name.to_lowercase();
        names.map(String::as_str).chain([kind.as_str()]).any(|name| match word.strip_prefix(name) {
            Some("") => true,
            Some(rest) => rest.strip_prefix('.').is_some_and(|group| {
                group == self.group || group == format!("{}.{}", self.version, self.group)
            }),
            None => false,
        })
    }
}

/// Short names of kinds whose definitions have none, as those of the reference.
const SHORT_NAMES: [(&str, &str); 4] = [
    ("mcn", "machineconfignodes"),
    ("pis", "pinnedimagesets"),
    ("mosc", "machineosconfigs"),
    ("mosb", "machineosbuilds"),
];

/// All kinds of an API server.
#[derive(Debug, Default)]
pub(crate) struct Kinds(Vec<Kind>);

impl Kinds {
    /// Fetches the kinds of all versions; core kinds come first, then the groups in the server's order,
    /// each with its preferred version first.
    ///
    /// A group whose own server does not answer, such as that of metrics, is left out with a note.
    pub(crate) async fn fetch(client: &Client) -> anyhow::Result<Self> {
        let mut kinds = Self::default();
        kinds.add("", "v1", client.list_core_api_resources("v1").await.map_err(call_error)?);
        let groups = client.list_api_groups().await.map_err(call_error)?.groups;
        let versions = stream::iter(groups.into_iter().flat_map(versions));
        let fetched = versions.map(async |(group, version)| {
            let found = client.list_api_group_resources(&version.group_version).await;
            (group, version, found)
        });
        let mut fetched = std::pin::pin!(fetched.buffered(PARALLEL));
        while let Some((group, version, found)) = fetched.next().await {
            match found {
                Ok(list) => kinds.add(&group, &version.version, list),
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 500..) => {
                    print::note(&format!(
                        "the API server does not list the kinds of {}: {}",
                        version.group_version, status.message
                    ));
                }
                Err(error) => return Err(call_error(error)),
            }
        }
        Ok(kinds)
    }

    fn add(&mut self, group: &str, version: &str, list: APIResourceList) {
        // Names with a slash are subresources, such as `pods/eviction`.
        let whole = list.resources.into_iter().filter(|found| !found.name.contains('/'));
        self.0.extend(whole.map(|found| Kind {
            group: group.to_owned(),
            version: version.to_owned(),
            name: found.kind,
            plural: found.name,
            singular: found.singular_name,
            short: found.short_names.unwrap_or_default(),
            namespaced: found.namespaced,
        }));
    }

    /// Returns the kind with the name `word`: plural, singular, short name or kind.
    pub(crate) fn resolve(&self, word: &str) -> anyhow::Result<&Kind> {
        let lower = word.to_lowercase();
        let find = |name: &str| self.0.iter().find(|kind| kind.has_name(name));
        let short = || SHORT_NAMES.iter().find(|(short, _)| *short == lower).map(|it| it.1);
        if let Some(kind) = find(&lower).or_else(|| find(short()?)) {
            return Ok(kind);
        }
        let names = self.0.iter().flat_map(|kind| {
            let short = kind.short.iter().map(String::as_str);
            [kind.plural.as_str(), kind.singular.as_str()].into_iter().chain(short)
        });
        let message = format!("unknown kind {word:?}");
        Err(match suggest::closest(&lower, names) {
            Some(meant) => error_with_hint(message, format!("did you mean {meant}?")),
            None if is_ours(&lower) => error_with_hint(
                format!("the cluster does not have the kind {word:?}"),
                "`mco doctor` says what is missing; name another cluster with --context or --kubeconfig",
            ),
            None => error_with_hint(message, "run `mco get crds` to list the custom kinds"),
        })
    }

    /// Returns the kind of a manifest.
    pub(crate) fn of(&self, api_version: &str, kind: &str) -> anyhow::Result<&Kind> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let found = self
            .0
            .iter()
            .find(|one| one.group == group && one.version == version && one.name == kind);
        found.ok_or_else(|| {
            let message = format!("unknown kind {kind} in {api_version}");
            let same = self.0.iter().find(|one| one.name == kind);
            let hint = match same {
                Some(same) if same.group.is_empty() => {
                    format!("the server has {kind} in {}", same.version)
                }
                Some(same) => format!("the server has {kind} in {}/{}", same.group, same.version),
                None => "apply its CustomResourceDefinition first".to_owned(),
            };
            error_with_hint(message, hint)
        })
    }
}

/// Returns the versions of a group, the preferred one first.
fn versions(group: APIGroup) -> Vec<(String, GroupVersionForDiscovery)> {
    let APIGroup { name, preferred_version, versions, .. } = group;
    let preferred = preferred_version.as_ref().map(|it| it.version.clone());
    let others = versions.into_iter().filter(|it| Some(&it.version) != preferred.as_ref());
    preferred_version.into_iter().chain(others).map(|version| (name.clone(), version)).collect()
}

/// Returns true if a word names a kind of mco, in lower case.
fn is_ours(word: &str) -> bool {
    mco_api::crds().iter().any(|crd| {
        let names = &crd.spec.names;
        let short = names.short_names.iter().flatten().map(String::as_str);
        let long = [names.plural.as_str(), names.singular.as_deref().unwrap_or_default()];
        short.chain(long).any(|name| name == word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds() -> Kinds {
        let kind = |group: &str, kind: &str, plural: &str, short: &str, namespaced| Kind {
            group: group.to_owned(),
            version: "v1".to_owned(),
            name: kind.to_owned(),
            plural: plural.to_owned(),
            singular: kind.to_lowercase(),
            short: Some(short.to_owned()).filter(|it| !it.is_empty()).into_iter().collect(),
            namespaced,
        };
        Kinds(vec![
            kind("", "Node", "nodes", "no", false),
            kind("", "Event", "events", "ev", true),
            kind("events.k8s.io", "Event", "events", "ev", true),
            kind(mco_api::GROUP, "MachineConfigPool", "machineconfigpools", "mcp", false),
            kind(mco_api::GROUP, "MachineConfigNode", "machineconfignodes", "", false),
        ])
    }

    #[test]
    fn a_kind_is_found_by_each_of_its_names() {
        let rows = [
            ("mcp", "machineconfigpool.machineconfiguration.openshift.io"),
            ("machineconfigpool", "machineconfigpool.machineconfiguration.openshift.io"),
            ("MachineConfigPool", "machineconfigpool.machineconfiguration.openshift.io"),
            ("mcn", "machineconfignode.machineconfiguration.openshift.io"),
            ("no", "node"),
            ("Nodes", "node"),
            ("events", "event"),
            ("events.events.k8s.io", "event.events.k8s.io"),
            ("events.v1.events.k8s.io", "event.events.k8s.io"),
        ];
        let kinds = kinds();
        for (word, want) in rows {
            assert_eq!(kinds.resolve(word).unwrap().qualified_singular(), want, "{word}");
        }
        assert_eq!(
            kinds.resolve("machineconfigpols").unwrap_err().to_string(),
            "unknown kind \"machineconfigpols\""
        );
    }

    #[test]
    fn the_preferred_version_of_a_group_comes_first_and_the_others_are_known() {
        let version = |version: &str| GroupVersionForDiscovery {
            group_version: format!("a/{version}"),
            version: version.to_owned(),
        };
        let group = APIGroup {
            name: "a".to_owned(),
            preferred_version: Some(version("v1")),
            versions: ["v1alpha1", "v1", "v1beta1"].map(version).to_vec(),
            ..APIGroup::default()
        };
        let found: Vec<String> = versions(group).into_iter().map(|(_, it)| it.version).collect();
        assert_eq!(found, ["v1", "v1alpha1", "v1beta1"]);
    }

    #[test]
    fn only_namespaced_kinds_have_a_namespace_in_their_path() {
        let kinds = kinds();
        let node = kinds.resolve("node").unwrap();
        assert_eq!(node.path(Some("x"), Some("worker-0")), "/api/v1/nodes/worker-0");
        let event = kinds.of("events.k8s.io/v1", "Event").unwrap();
        assert_eq!(event.path(Some("x"), None), "/apis/events.k8s.io/v1/namespaces/x/events");
        assert_eq!(event.path(None, None), "/apis/events.k8s.io/v1/events");
        assert!(kinds.of("apps/v1", "Event").is_err());
    }
}
