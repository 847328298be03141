//! Deployments: a ReplicaSet for each revision, and the number of replicas of each.

mod rolling;
mod status;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec, ReplicaSet, ReplicaSetSpec},
        core::v1::PodTemplateSpec,
    },
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, util::intstr::IntOrString},
};
use kube::ResourceExt as _;
use serde_json::Value;

use self::rolling::{Counts, Limits};
use super::pods;

/// Label with the hash of the template, on ReplicaSets and their pods.
const HASH: &str = "pod-template-hash";
/// Annotation with the number of the revision.
const REVISION: &str = "deployment.kubernetes.io/revision";
/// Annotations that ReplicaSets do not inherit.
const OWN_ANNOTATIONS: [&str; 2] = ["kubectl.kubernetes.io/last-applied-configuration", REVISION];

/// The changes of a Deployment and its ReplicaSets.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DeploymentPlan {
    /// ReplicaSet of a new revision.
    pub(crate) create: Option<Box<ReplicaSet>>,
    /// Numbers of replicas, by the name of the ReplicaSet.
    pub(crate) scale: Vec<(String, i32)>,
    /// Annotations of the current ReplicaSet that differ.
    pub(crate) annotate: Option<(String, BTreeMap<String, String>)>,
    /// Names of ReplicaSets that the history does not keep.
    pub(crate) delete: Vec<String>,
    /// Revision that the Deployment does not have yet.
    pub(crate) revision: Option<String>,
    pub(crate) status: Value,
}

/// Plans the next changes of a Deployment. `sets` are the ReplicaSets that it controls.
pub(crate) fn plan(
    deployment: &Deployment,
    sets: &[&ReplicaSet],
    now: Timestamp,
) -> DeploymentPlan {
    let spec = deployment.spec.clone().unwrap_or_default();
    let current = current(&spec, sets);
    let paused = spec.paused.unwrap_or(false);
    let mut plan = DeploymentPlan {
        create: None,
        scale: scaling(&spec, current, sets),
        annotate: None,
        delete: Vec::new(),
        revision: None,
        status: status::status(deployment, current, sets, now),
    };
    let last = sets.iter().map(|set| revision(&set.metadata)).max().unwrap_or(0);
    match current {
        None if !paused => {
            let replicas = first_size(&spec, sets);
            let number = (last + 1).to_string();
            plan.create = Some(Box::new(new_set(deployment, &spec, sets, replicas, &number)));
        }
        Some(set) if !paused => {
            // A template of an earlier revision becomes the newest revision again.
            let number = match revision(&set.metadata) {
                own if own == last && own > 0 => own,
                _ => last + 1,
            };
            let wanted = annotations(deployment, &number.to_string());
            let has = |(key, value): (&String, &String)| set.annotations().get(key) == Some(value);
            if !wanted.iter().all(has) {
                plan.annotate = Some((set.name_any(), wanted));
            }
            let is_shown = revision(&deployment.metadata) == number;
            plan.revision = (!is_shown).then(|| number.to_string());
            plan.delete = surplus(&spec, set, sets);
        }
        _ => {}
    }
    plan
}

/// Returns the ReplicaSet with the template of the Deployment.
fn current<'s>(spec: &DeploymentSpec, sets: &[&'s ReplicaSet]) -> Option<&'s ReplicaSet> {
    let is_current = |set: &&&ReplicaSet| {
        let template = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
        template.is_some_and(|it| without_hash(it) == without_hash(&spec.template))
    };
    let found = sets.iter().filter(is_current).max_by_key(|set| revision(&set.metadata));
    found.copied()
}

/// Returns the template without the label that the ReplicaSet has besides.
fn without_hash(template: &PodTemplateSpec) -> PodTemplateSpec {
    let mut template = template.clone();
    let metadata = template.metadata.get_or_insert_default();
    if let Some(labels) = &mut metadata.labels {
        labels.remove(HASH);
    }
    metadata.creation_timestamp = None;
    template
}

fn revision(metadata: &ObjectMeta) -> i64 {
    let text = metadata.annotations.as_ref().and_then(|all| all.get(REVISION));
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Returns the annotations of the current ReplicaSet.
fn annotations(deployment: &Deployment, revision: &str) -> BTreeMap<String, String> {
    let inherited =
        deployment.annotations().iter().filter(|(key, _)| !OWN_ANNOTATIONS.contains(&key.as_str()));
    let mut all: BTreeMap<String, String> =
        inherited.map(|(key, value)| (key.clone(), value.clone())).collect();
    all.insert(REVISION.to_owned(), revision.to_owned());
    all
}

fn is_recreated(spec: &DeploymentSpec) -> bool {
    spec.strategy.as_ref().and_then(|it| it.type_.as_deref()) == Some("Recreate")
}

fn desired(spec: &DeploymentSpec) -> i32 {
    spec.replicas.unwrap_or(1).max(0)
}

/// Returns the limits of a rolling update.
fn limits(spec: &DeploymentSpec) -> Limits {
    let rolling = spec.strategy.as_ref().and_then(|it| it.rolling_update.as_ref());
    let desired = desired(spec);
    let number = |value: Option<&IntOrString>, rounding| match value {
        Some(value) => share(value, desired, rounding),
        None => share(&IntOrString::String("25%".to_owned()), desired, rounding),
    };
    let surge = number(rolling.and_then(|it| it.max_surge.as_ref()), Rounding::Up);
    let unavailable = number(rolling.and_then(|it| it.max_unavailable.as_ref()), Rounding::Down);
    // Without room above and below, nothing could ever change.
    let unavailable = if surge == 0 { unavailable.max(1) } else { unavailable };
    if is_recreated(spec) {
        return Limits { desired, surge: 0, unavailable: desired };
    }
    Limits { desired, surge, unavailable }
}

/// The direction in which a share of a number is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    Up,
    Down,
}

/// Returns a number that is given as such or in percent of `whole`.
pub(crate) fn share(value: &IntOrString, whole: i32, rounding: Rounding) -> i32 {
    match value {
        IntOrString::Int(number) => *number,
        IntOrString::String(text) => {
            let percent = text.trim_end_matches('%').parse::<i64>().unwrap_or(0);
            let product = percent.saturating_mul(i64::from(whole));
            let rounded = match rounding {
                Rounding::Up => product.saturating_add(99) / 100,
                Rounding::Down => product / 100,
            };
            i32::try_from(rounded).unwrap_or(i32::MAX)
        }
    }
    .max(0)
}

/// Returns the replicas that ReplicaSets get next.
fn scaling(
    spec: &DeploymentSpec,
    current: Option<&ReplicaSet>,
    sets: &[&ReplicaSet],
) -> Vec<(String, i32)> {
    let mut old: Vec<&ReplicaSet> = sets.to_vec();
    old.retain(|set| current.is_none_or(|it| it.metadata.uid != set.metadata.uid));
    old.sort_by_key(|set| revision(&set.metadata));
    let old: Vec<Counts> = old.into_iter().map(counts).collect();
    let new = current.map(counts);
    if is_recreated(spec) {
        return rolling::recreate(desired(spec), new.as_ref(), &old);
    }
    match &new {
        Some(new) if spec.paused != Some(true) => rolling::next(limits(spec), new, &old),
        // Without a current one the newest has the replicas.
        _ => rolling::resize(desired(spec), new.as_ref().or(old.last())),
    }
}

fn counts(set: &ReplicaSet) -> Counts {
    let status = set.status.as_ref();
    Counts {
        name: set.name_any(),
        wanted: set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1),
        present: status.map_or(0, |status| status.replicas),
        available: status.and_then(|status| status.available_replicas).unwrap_or(0),
    }
}

/// Returns the number of replicas with which the ReplicaSet of a new revision starts.
fn first_size(spec: &DeploymentSpec, sets: &[&ReplicaSet]) -> i32 {
    let old: Vec<Counts> = sets.iter().copied().map(counts).collect();
    if is_recreated(spec) {
        let is_empty = old.iter().all(|set| set.wanted == 0 && set.present == 0);
        return if is_empty { desired(spec) } else { 0 };
    }
    let limits = limits(spec);
    let wanted: i32 = old.iter().map(|set| set.wanted).sum();
    limits.desired.min(limits.desired.saturating_add(limits.surge).saturating_sub(wanted)).max(0)
}

/// Returns the ReplicaSet of a new revision.
fn new_set(
    deployment: &Deployment,
    spec: &DeploymentSpec,
    sets: &[&ReplicaSet],
    replicas: i32,
    revision: &str,
) -> ReplicaSet {
    let taken = |name: &str| sets.iter().any(|set| set.name_any() == name);
    let named = |salt: u32| {
        let hash = template_hash(&spec.template, salt);
        (format!("{}-{hash}", deployment.name_any()), hash)
    };
    let (name, hash) = (0..=u32::MAX).map(named).find(|(name, _)| !taken(name)).unwrap_or_default();
    let mut template = spec.template.clone();
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    labels.insert(HASH.to_owned(), hash.clone());
    let labels = labels.clone();
    let mut selector = spec.selector.clone();
    selector.match_labels.get_or_insert_default().insert(HASH.to_owned(), hash);
    ReplicaSet {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: deployment.namespace(),
            labels: Some(labels),
            annotations: Some(annotations(deployment, revision)),
            owner_references: Some(vec![pods::reference(
                "apps/v1",
                "Deployment",
                &deployment.metadata,
            )]),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            min_ready_seconds: spec.min_ready_seconds,
            replicas: Some(replicas),
            selector,
            template: Some(template),
        }),
        status: None,
    }
}

/// Returns the hash of a template as a word that is valid in names and labels. `salt` selects another
/// one if the first is taken.
pub(crate) fn template_hash(template: &PodTemplateSpec, salt: u32) -> String {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let text = serde_json::to_string(template).unwrap_or_default();
    let salt = if salt > 0 { salt.to_string() } else { String::new() };
    let bytes = text.bytes().chain(salt.bytes());
    let hash = bytes
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let letter = |digit: char| {
        let index = digit.to_digit(10).and_then(|it| LETTERS.get(usize::try_from(it).ok()?));
        char::from(*index.unwrap_or(&b'b'))
    };
    hash.to_string().chars().map(letter).collect()
}

/// Returns the old ReplicaSets without pods that the history does not keep.
fn surplus(spec: &DeploymentSpec, current: &ReplicaSet, sets: &[&ReplicaSet]) -> Vec<String> {
    let kept = usize::try_from(spec.revision_history_limit.unwrap_or(10)).unwrap_or(0);
    let mut empty: Vec<&ReplicaSet> = sets.to_vec();
    empty.retain(|set| {
        let counts = counts(set);
        set.metadata.uid != current.metadata.uid && counts.wanted == 0 && counts.present == 0
    });
    empty.sort_by_key(|set| revision(&set.metadata));
    let count = empty.len().saturating_sub(kept);
    empty.into_iter().take(count).map(ReplicaSet::name_any).collect()
}

#[cfg(test)]
mod tests;
