//! Registries, mirrors and signatures of images: the files that the settings of a cluster give its
//! container engines.

pub mod containerd;
mod mirrors;
mod payload;
mod plan;
mod policy;
mod reference;
pub mod registries;
pub mod scope;
mod sigstore;
mod validate;

#[cfg(test)]
mod tests;

use kube_core::ResourceExt as _;
use mco_api::openshift::{
    image::{ImageSpec, RegistrySources},
    mirror_set::{MirrorSourcePolicy, SourceMirrors},
};

pub use self::{
    payload::{PayloadError, RegistryLists},
    plan::{EmptyConfig, ImageConfigPlan, config_name},
    policy::{PolicyError, PolicyItemError},
    reference::ReferenceError,
    registries::{EditError, PullError},
    sigstore::SigstoreError,
    validate::EntryError,
};
use self::{
    policy::{Policies, PolicyLists, Requirement},
    reference::Reference,
    registries::{RegistriesConf, RegistryRules},
};
use crate::{
    cluster_settings::ClusterSettings, generated::GeneratedFile, plan::registries::PATH,
    status::quote::quoted, toml::TomlFault,
};

/// Path of the registries file.
pub const REGISTRIES_CONF: &str = PATH;
/// Path of the registries that extend a registries file which `mco` does not write.
pub const REGISTRIES_DROP_IN: &str = "/etc/containers/registries.conf.d/90-mco-registries.conf";
/// Path of the registries that are searched for names without a registry.
pub const SEARCH_DROP_IN: &str = "/etc/containers/registries.conf.d/01-image-searchRegistries.conf";
/// Path of the policy file.
pub const POLICY_JSON: &str = "/etc/containers/policy.json";
/// Path of the registries whose images have signatures attached.
pub const SIGSTORE_REGISTRIES: &str = "/etc/containers/registries.d/sigstore-registries.yaml";
/// Directory of the policies of namespaces.
pub const NAMESPACE_POLICIES: &str = "/etc/crio/policies";

/// Policy of a node whose base configs have none: every image is accepted.
const DEFAULT_POLICY: &str = r#"{"default":[{"type":"insecureAcceptAnything"}],"transports":{"docker-daemon":{"":[{"type":"insecureAcceptAnything"}]}}}"#;

/// The reason why settings cannot be applied.
///
/// Compat: the texts are the reference's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageConfigError {
    /// The release image is no image name.
    #[error("error parsing reference of release image")]
    ReleaseImage,
    /// The payload would have no valid name at a mirror.
    #[error("blockedRegistries covers the release image, whose mirrors cannot be used")]
    Payload(#[source] PayloadError),
    /// An image policy is invalid.
    #[error("{kind} {name}")]
    Policy {
        /// Kind of the policy.
        kind: &'static str,
        /// Name of the policy, with its namespace.
        name: String,
        /// The fault.
        #[source]
        fault: PolicyItemError,
    },
    /// The registries file cannot be written.
    #[error("could not update registries config with new changes")]
    Registries(#[source] RegistriesError),
    /// The policy file cannot be written.
    #[error("could not update policy json with new changes")]
    PolicyFile(#[source] PolicyFileError),
    /// The policy files of the namespaces cannot be written.
    #[error("could not update namespace policy JSON from imagepolicy")]
    NamespacePolicies(#[source] PolicyError),
    /// The mirrors of a policy's images cannot be determined.
    #[error(transparent)]
    Sigstore(#[from] SigstoreError),
    /// The container engine would refuse the registries file.
    #[error(
        "{member} has the entry {}: leave out the scheme, a registry is host[:port][/path]",
        quoted(entry)
    )]
    Scheme {
        /// Member of the object.
        member: &'static str,
        /// The entry.
        entry: String,
    },
}

/// The reason why the registries file cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistriesError {
    /// The base file is not TOML.
    #[error("error unmarshalling registries config")]
    Base(#[source] TomlFault),
    /// An entry is invalid.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// The rules contradict each other.
    #[error(transparent)]
    Edit(#[from] EditError),
}

/// The reason why the policy file cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyFileError {
    /// An entry is invalid.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// The policy is invalid.
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

/// Files of the base config that settings are merged into; `None` if the base config has no such file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BaseFiles<'b> {
    /// Contents of the registries file.
    pub registries: Option<&'b str>,
    /// Contents of the policy file.
    pub policy: Option<&'b str>,
}

/// An ImagePolicy with scopes that a ClusterImagePolicy has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeConflict {
    /// Namespace of the ImagePolicy.
    pub namespace: String,
    /// Name of the ImagePolicy.
    pub name: String,
    /// Scopes that have no effect.
    pub scopes: Vec<String>,
}

impl ScopeConflict {
    /// Reason of the condition that reports the conflict.
    pub const REASON: &'static str = "ConflictScopes";

    /// Returns the message of the condition.
    ///
    /// Compat: the text is the reference's.
    #[must_use]
    pub fn message(&self) -> String {
        let scopes: Vec<String> = self.scopes.iter().map(|scope| quoted(scope)).collect();
        format!(
            "has conflicting scope(s) [{}] that equal to or nest inside existing \
             clusterimagepolicy, only policy from clusterimagepolicy scope(s) will be applied",
            scopes.join(" ")
        )
    }
}

/// Settings for images, read from the objects of a cluster.
#[derive(Clone, Debug, Default)]
pub struct ImageConfig {
    sources: RegistrySources,
    digest_rules: Vec<SourceMirrors>,
    tag_rules: Vec<SourceMirrors>,
    /// Number of objects with mirrors: one without rules has the registries file written, too.
    mirror_sets: usize,
    payload: Option<Reference>,
    lists: RegistryLists,
    policies: Policies,
    conflicts: Vec<ScopeConflict>,
}

impl ImageConfig {
    /// Reads the settings. `release_image` is the image that the cluster itself is pulled from, if it
    /// is known.
    pub fn read(
        settings: &ClusterSettings,
        release_image: Option<&str>,
    ) -> Result<Self, ImageConfigError> {
        let image = settings.image.as_ref().map(|image| image.spec.clone()).unwrap_or_default();
        let payload = match release_image {
            Some(image) => {
                Some(Reference::canonical(image).map_err(|_| ImageConfigError::ReleaseImage)?)
            }
            None => None,
        };
        let (digest_rules, tag_rules) = (digest_rules(settings), tag_rules(settings));
        let merged = mirrors::merge(&digest_rules);
        let lists =
            payload::lists(&image, payload.as_ref(), &merged).map_err(ImageConfigError::Payload)?;
        let (policies, conflicts) = policies(settings)?;
        let ImageSpec { registry_sources: sources, .. } = image;
        let mirror_sets = settings.digest_mirror_sets.len()
            + settings.tag_mirror_sets.len()
            + settings.content_source_policies.len();
        Ok(Self {
            sources,
            digest_rules,
            tag_rules,
            mirror_sets,
            payload,
            lists,
            policies,
            conflicts,
        })
    }

    /// Returns blocked and allowed registries.
    #[must_use]
    pub fn lists(&self) -> &RegistryLists {
        &self.lists
    }

    /// Returns the ImagePolicies that have no effect in part.
    #[must_use]
    pub fn conflicts(&self) -> &[ScopeConflict] {
        &self.conflicts
    }

    /// Returns true if no setting is set, so that no file is written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.has_registries() && !self.has_policy() && self.search().is_none()
    }

    fn search(&self) -> Option<&Vec<String>> {
        self.sources.container_runtime_search_registries.as_ref()
    }

    fn has_registries(&self) -> bool {
        self.sources.insecure_registries.is_some()
            || self.lists.blocked.is_some()
            || self.mirror_sets > 0
    }

    fn has_policy(&self) -> bool {
        self.lists.policy_blocked.is_some()
            || self.lists.allowed.is_some()
            || !self.policies.is_empty()
    }

    /// Checks that the container engine can read what the settings give. The reference writes the
    /// files without this check, after which no image can be pulled.
    pub fn check(&self) -> Result<(), ImageConfigError> {
        let lists = [
            ("insecureRegistries", &self.sources.insecure_registries),
            ("blockedRegistries", &self.sources.blocked_registries),
        ];
        for (member, entries) in lists {
            let mut entries = entries.iter().flatten();
            if let Some(entry) = entries.find(|entry| entry.contains("://")) {
                return Err(ImageConfigError::Scheme { member, entry: entry.clone() });
            }
        }
        Ok(())
    }

    /// Writes the files for CRI-O.
    ///
    /// Where the base config has no registries file, another program owns that of the node, and the
    /// settings are written as a file that extends it.
    pub fn crio_files(&self, base: BaseFiles<'_>) -> Result<Vec<GeneratedFile>, ImageConfigError> {
        let mut files = Vec::new();
        let mut conf = None;
        if self.has_registries() {
            let found = self.registries(base).map_err(ImageConfigError::Registries)?;
            let path = base.registries.map_or(REGISTRIES_DROP_IN, |_| REGISTRIES_CONF);
            files.push(GeneratedFile::new(path, found.to_toml()));
            conf = Some(found);
        }
        if self.has_policy() {
            files.extend(self.policy_files(base, conf.as_ref())?);
        }
        if let Some(search) = self.search() {
            let search = RegistriesConf::searching(search);
            files.push(GeneratedFile::new(SEARCH_DROP_IN, search.to_toml()));
        }
        Ok(files)
    }

    fn registries(&self, base: BaseFiles<'_>) -> Result<RegistriesConf, RegistriesError> {
        let mut conf = match base.registries {
            Some(text) => RegistriesConf::parse(text).map_err(RegistriesError::Base)?,
            None => RegistriesConf::default(),
        };
        let insecure = self.sources.insecure_registries.as_deref().unwrap_or_default();
        let blocked = self.lists.blocked.as_deref().unwrap_or_default();
        validate::scopes("insecure", insecure)?;
        validate::scopes("blocked", blocked)?;
        validate::mirrors(self.digest_rules.iter().chain(&self.tag_rules))?;
        conf.edit(RegistryRules {
            insecure,
            blocked,
            digest_mirrors: &mirrors::merge(&self.digest_rules),
            tag_mirrors: &mirrors::merge(&self.tag_rules),
        })?;
        Ok(conf)
    }

    fn policy_files(
        &self,
        base: BaseFiles<'_>,
        registries: Option<&RegistriesConf>,
    ) -> Result<Vec<GeneratedFile>, ImageConfigError> {
        let lists = PolicyLists {
            blocked: self.lists.policy_blocked.as_deref().unwrap_or_default(),
            allowed: self.lists.allowed.as_deref().unwrap_or_default(),
        };
        let cluster = self.cluster_policy(base, lists).map_err(ImageConfigError::PolicyFile)?;
        let namespaces = policy::namespace_policies(&cluster, lists, &self.policies)
            .map_err(ImageConfigError::NamespacePolicies)?;
        let mut files = vec![GeneratedFile::new(POLICY_JSON, cluster)];
        if !self.policies.is_empty() {
            let mut scopes = self.policies.namespace_scopes();
            scopes.extend(self.policies.cluster.keys().map(String::as_str));
            let text = sigstore::file(&scopes, registries)?;
            files.push(GeneratedFile::new(SIGSTORE_REGISTRIES, text));
        }
        files.extend(namespaces.into_iter().map(|(namespace, text)| {
            GeneratedFile::new(format!("{NAMESPACE_POLICIES}/{namespace}.json"), text)
        }));
        Ok(files)
    }

    fn cluster_policy(
        &self,
        base: BaseFiles<'_>,
        lists: PolicyLists<'_>,
    ) -> Result<String, PolicyFileError> {
        if !lists.allowed.is_empty() && !lists.blocked.is_empty() {
            let payload = self.payload.as_ref().map(Reference::name);
            if payload.is_none_or(|payload| lists.allowed != [payload.to_owned()]) {
                return Err(PolicyError::AllowedAndBlocked.into());
            }
        }
        let base = base.policy.unwrap_or(DEFAULT_POLICY);
        let text = policy::cluster_policy(base, lists, &self.policies.cluster)?;
        validate::scopes("blocked", lists.blocked)?;
        validate::scopes("allowed", lists.allowed)?;
        Ok(text)
    }
}

/// Returns the rules for digests. Those of the older kind have no policy.
fn digest_rules(settings: &ClusterSettings) -> Vec<SourceMirrors> {
    let sets = settings.digest_mirror_sets.iter();
    let sets = sets.flat_map(|set| set.spec.image_digest_mirrors.iter().cloned());
    let older = settings.content_source_policies.iter();
    let older = older.flat_map(|set| set.spec.repository_digest_mirrors.iter());
    let older = older.map(|rule| SourceMirrors {
        mirror_source_policy: MirrorSourcePolicy::AllowContactingSource,
        ..rule.clone()
    });
    sets.chain(older).collect()
}

fn tag_rules(settings: &ClusterSettings) -> Vec<SourceMirrors> {
    let sets = settings.tag_mirror_sets.iter();
    sets.flat_map(|set| set.spec.image_tag_mirrors.iter().cloned()).collect()
}

/// Reads the image policies. A scope of an ImagePolicy that a ClusterImagePolicy has is left out.
fn policies(
    settings: &ClusterSettings,
) -> Result<(Policies, Vec<ScopeConflict>), ImageConfigError> {
    let (mut policies, mut conflicts) = (Policies::default(), Vec::new());
    for policy in &settings.cluster_image_policies {
        let requirement = Requirement::of(&policy.spec.policy).map_err(|fault| {
            ImageConfigError::Policy { kind: "ClusterImagePolicy", name: policy.name_any(), fault }
        })?;
        for scope in &policy.spec.scopes {
            policies.cluster.entry(scope.clone()).or_default().push(requirement.clone());
        }
    }
    for policy in &settings.image_policies {
        let (namespace, name) = (policy.namespace().unwrap_or_default(), policy.name_any());
        let requirement = Requirement::of(&policy.spec.policy).map_err(|fault| {
            let name = format!("{namespace}/{name}");
            ImageConfigError::Policy { kind: "ImagePolicy", name, fault }
        })?;
        let is_taken = |scope: &&String| {
            policies.cluster.keys().any(|cluster| scope::is_within(scope, cluster))
        };
        let (taken, free): (Vec<_>, Vec<_>) = policy.spec.scopes.iter().partition(is_taken);
        for scope in free {
            let of_namespace = policies.namespaces.entry(namespace.clone()).or_default();
            of_namespace.entry(scope.clone()).or_default().push(requirement.clone());
        }
        if !taken.is_empty() {
            let scopes = taken.into_iter().cloned().collect();
            conflicts.push(ScopeConflict { namespace, name, scopes });
        }
    }
    Ok((policies, conflicts))
}
