//! Pods as the controllers see them.

use std::cmp::Reverse;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Pod, PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::ResourceExt as _;

/// Phase of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

/// A pod, as far as controllers depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodView {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// UID of the object that controls the pod.
    pub(crate) owner: Option<String>,
    pub(crate) node: Option<String>,
    pub(crate) phase: Phase,
    pub(crate) is_ready: bool,
    pub(crate) is_terminating: bool,
    pub(crate) created: Timestamp,
}

impl PodView {
    /// Returns the view of a pod.
    pub(crate) fn of(pod: &Pod) -> Self {
        let status = pod.status.as_ref();
        let phase = match status.and_then(|status| status.phase.as_deref()) {
            Some("Running") => Phase::Running,
            Some("Succeeded") => Phase::Succeeded,
            Some("Failed") => Phase::Failed,
            _ => Phase::Pending,
        };
        let conditions = status.and_then(|status| status.conditions.as_ref());
        let mut conditions = conditions.into_iter().flatten();
        let created = pod.metadata.creation_timestamp.as_ref();
        Self {
            namespace: pod.namespace().unwrap_or_default(),
            name: pod.name_any(),
            owner: controller(&pod.metadata).map(|owner| owner.uid.clone()),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
            phase,
            is_ready: conditions.any(|it| it.type_ == "Ready" && it.status == "True"),
            is_terminating: pod.metadata.deletion_timestamp.is_some(),
            created: created.map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        }
    }

    /// Returns true if the pod runs or will run.
    pub(crate) fn is_active(&self) -> bool {
        matches!(self.phase, Phase::Pending | Phase::Running) && !self.is_terminating
    }
}

/// Returns the reference to the object that controls another.
pub(crate) fn controller(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    let references = metadata.owner_references.iter().flatten();
    references.into_iter().find(|owner| owner.controller == Some(true))
}

/// Returns the reference of a dependent to an object that controls it.
pub(crate) fn reference(api_version: &str, kind: &str, owner: &ObjectMeta) -> OwnerReference {
    OwnerReference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: owner.name.clone().unwrap_or_default(),
        uid: owner.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Returns a new pod from a template.
pub(crate) fn from_template(template: &PodTemplateSpec, owner: OwnerReference) -> Pod {
    let metadata = template.metadata.clone().unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", owner.name)),
            labels: metadata.labels,
            annotations: metadata.annotations,
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// The changes that bring a set of equal pods to its size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SizePlan {
    /// Number of pods to create.
    pub(crate) create: usize,
    /// Names of the pods to delete.
    pub(crate) delete: Vec<String>,
}

/// Plans the changes to `wanted` active pods. Pods that serve least are deleted first: those without
/// a node, those that are not ready, those that share a node with others of the set, the newest.
pub(crate) fn resize(wanted: usize, pods: &[&PodView]) -> SizePlan {
    let mut active: Vec<&PodView> = pods.iter().copied().filter(|pod| pod.is_active()).collect();
    let create = wanted.saturating_sub(active.len());
    let surplus = active.len().saturating_sub(wanted);
    let neighbours = |pod: &PodView| {
        let same = |other: &&PodView| other.node == pod.node && other.is_active();
        pods.iter().copied().filter(same).count()
    };
    active.sort_by_key(|pod| {
        let rank = (pod.node.is_some(), pod.phase == Phase::Running, pod.is_ready);
        (rank, Reverse((neighbours(pod), pod.created)), pod.name.clone())
    });
    let delete = active.iter().take(surplus).map(|pod| pod.name.clone()).collect();
    SizePlan { create, delete }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns pods from words such as `a` (ready on node a), `b!` (not ready) and `-` (pending).
    pub(crate) fn pods(text: &str) -> Vec<PodView> {
        let pod = |(index, word): (usize, &str)| {
            let node = word.trim_end_matches(['!', '~', '*']);
            PodView {
                namespace: "n".to_owned(),
                name: format!("p{index}"),
                owner: Some("u".to_owned()),
                node: (node != "-").then(|| node.to_owned()),
                phase: match word {
                    "-" => Phase::Pending,
                    _ if word.ends_with('*') => Phase::Succeeded,
                    _ => Phase::Running,
                },
                is_ready: word != "-" && !word.ends_with(['!', '*']),
                is_terminating: word.ends_with('~'),
                created: Timestamp::from_second(i64::try_from(index).unwrap()).unwrap(),
            }
        };
        text.split_whitespace().enumerate().map(pod).collect()
    }

    #[test]
    fn a_set_of_pods_gets_its_size() {
        for (case, wanted, before, create, delete) in [
            ("pods are created", 3, "a", 2, ""),
            ("nothing to do", 2, "a b", 0, ""),
            ("pods that end are replaced", 2, "a b~", 1, ""),
            ("finished pods do not count", 2, "a b*", 1, ""),
            ("a pending pod is deleted first", 1, "a -", 0, "p1"),
            ("then one that is not ready", 1, "a! b", 0, "p0"),
            ("then one that shares its node", 2, "a b a", 0, "p2"),
            ("then the newest", 1, "a b", 0, "p1"),
        ] {
            let pods = pods(before);
            let plan = resize(wanted, &pods.iter().collect::<Vec<_>>());
            assert_eq!((plan.create, plan.delete.join(" ").as_str()), (create, delete), "{case}");
        }
    }
}
