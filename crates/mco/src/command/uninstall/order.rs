//! The objects of an installation, in the order in which they are deleted.

use mco_api::{join_token, label};
use mco_operator::manifests::{self, ObjectName, Parameters};

use super::{CONTROLLER, OPERATOR};

/// Returns the names of all objects to delete, in their order: the operator first, because it would
/// create the others again, and policies before the objects that they protect.
pub(super) fn names(namespace: &str, forget: bool) -> Vec<ObjectName> {
    let parameters =
        Parameters { namespace: namespace.to_owned(), ..Parameters::new(manifests::IMAGE) };
    let operator = manifests::operator(&parameters);
    let operands = manifests::all_operands(&parameters);
    let conditional: Vec<_> =
        manifests::conditional(namespace).into_iter().map(|(_, it)| it).collect();
    let objects = operator.iter().chain(&operands).chain(&conditional);
    let mut names: Vec<ObjectName> =
        objects.map(ObjectName::of).chain(credentials(namespace)).collect();
    names.push(cluster_operator());
    if forget {
        names.extend(manifests::definitions().iter().map(ObjectName::of));
        names.extend(manifests::namespaces(&parameters).iter().map(ObjectName::of));
    }
    names.sort_by_key(rank);
    names
}

/// Returns the objects with which new machines join. Their token does not expire.
fn credentials(namespace: &str) -> [ObjectName; 3] {
    let name = |api_version: &str, kind: &str, namespace: Option<&str>, name: &str| ObjectName {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
    };
    let own = Some(namespace);
    [
        name("v1", "Secret", own, join_token::BOOTSTRAPPER_SECRET),
        name("v1", "ServiceAccount", own, join_token::BOOTSTRAPPER),
        name(
            "rbac.authorization.k8s.io/v1",
            "ClusterRoleBinding",
            None,
            "system-bootstrap-node-bootstrapper",
        ),
    ]
}

/// Returns the ClusterOperator. Its status is current only while the operator runs.
fn cluster_operator() -> ObjectName {
    ObjectName {
        api_version: "config.openshift.io/v1".to_owned(),
        kind: "ClusterOperator".to_owned(),
        namespace: None,
        name: label::CLUSTER_OPERATOR.to_owned(),
    }
}

/// Position of an object in the order of deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    Operator,
    PolicyBinding,
    Policy,
    Controller,
    DaemonSet,
    Other,
    /// Protected by a policy, which stays in effect for a moment.
    NetworkPolicy,
    Definition,
    /// Shows that the removal is not complete until the nodes are clean.
    Mark,
    Namespace,
}

pub(super) fn rank(name: &ObjectName) -> Rank {
    match name.kind.as_str() {
        "Deployment" if name.name == OPERATOR => Rank::Operator,
        "ValidatingAdmissionPolicyBinding" => Rank::PolicyBinding,
        "ValidatingAdmissionPolicy" => Rank::Policy,
        "Deployment" => Rank::Controller,
        "DaemonSet" => Rank::DaemonSet,
        "NetworkPolicy" => Rank::NetworkPolicy,
        "CustomResourceDefinition" => Rank::Definition,
        "ServiceAccount" if name.name == CONTROLLER => Rank::Mark,
        "Namespace" => Rank::Namespace,
        _ => Rank::Other,
    }
}

/// Returns true for a Deployment or a DaemonSet.
pub(super) fn is_workload(name: &ObjectName) -> bool {
    matches!(name.kind.as_str(), "Deployment" | "DaemonSet")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operator_is_deleted_first_and_kinds_last_or_never() {
        let some = names(label::NAMESPACE, false);
        assert_eq!(some[0].to_string(), format!("Deployment {}/{OPERATOR}", label::NAMESPACE));
        let is_kept = |kind: &str| some.iter().all(|name| name.kind != kind);
        assert!(is_kept("CustomResourceDefinition") && is_kept("Namespace"));
        assert!(!is_kept("ClusterOperator"), "its status would be out of date");
        let policy = some.iter().position(|it| it.kind.starts_with("ValidatingAdmission"));
        let protected = some.iter().position(|it| it.kind == "NetworkPolicy");
        assert!(policy < protected, "a policy keeps the other from being deleted");
        let all = names(label::NAMESPACE, true);
        assert_eq!(all.last().map(|name| name.kind.as_str()), Some("Namespace"));
        let mark = all.iter().position(|name| rank(name) == Rank::Mark);
        assert_eq!(mark, Some(all.len() - 3), "it stays until the nodes are clean");
        assert_eq!(all.len(), some.len() + mco_api::crds().len() + 2);
    }
}
