//! Admission policies that exist only while a condition of the cluster holds.

use serde_json::{Value, json};

use super::{Evaluation, Policy, rule};
use crate::manifests::{Condition, rules::OURS};

const CONFIGURATIONS: &str = "operator.openshift.io";

/// Returns the policies and bindings with their conditions.
pub(in crate::manifests) fn objects() -> Vec<(Condition, Value)> {
    let all = [
        (Condition::NoBootImages, boot_images()),
        (Condition::NoControlPlaneBootImages, control_plane_boot_images()),
        (Condition::OsStreams, kept_streams()),
        (Condition::InternalRelease, used_release()),
    ];
    let each = |(condition, policy): (Condition, Policy<'_>)| {
        policy.objects().into_iter().map(move |object| (condition, object))
    };
    all.into_iter().flat_map(each).collect()
}

/// Denies managed boot images.
///
/// The policy has no parameter: one whose kind is gone would deny every write. It exists on platforms
/// without support only.
fn boot_images() -> Policy<'static> {
    Policy {
        name: "managed-bootimages-platform-check",
        rule: rule(CONFIGURATIONS, &["machineconfigurations"], &["CREATE", "UPDATE"]),
        conditions: Vec::new(),
        validations: vec![json!({
            "expression": "!has(object.spec.managedBootImages)",
            "message": "spec.managedBootImages: boot image updates are only supported on these \
                        platforms: AWS, Azure, GCP, VSphere",
        })],
        parameter: None,
        evaluation: Evaluation::DenyFailures,
    }
}

/// Denies managed boot images of the control plane.
fn control_plane_boot_images() -> Policy<'static> {
    let managers = "object.spec.managedBootImages.machineManagers";
    Policy {
        name: "managed-bootimages-cpms-platform-check",
        rule: rule(CONFIGURATIONS, &["machineconfigurations"], &["CREATE", "UPDATE"]),
        conditions: Vec::new(),
        validations: vec![json!({
            "expression": format!(
                "!has(object.spec.managedBootImages) || !has({managers}) || \
                 !{managers}.exists(it, it.resource == \"controlplanemachinesets\")"
            ),
            "message": "spec.managedBootImages.machineManagers: control plane machineset boot image \
                        updates are only supported on these platforms: AWS, Azure, GCP",
        })],
        parameter: None,
        evaluation: Evaluation::DenyFailures,
    }
}

/// Keeps the OSImageStream from being deleted.
fn kept_streams() -> Policy<'static> {
    Policy {
        name: "osimagestream-prevent-deletion",
        rule: rule(OURS, &["osimagestreams"], &["DELETE"]),
        conditions: Vec::new(),
        validations: vec![json!({
            "expression": "false",
            "message": "Deletion of OSImageStream is not allowed: pools take their OS images from it",
        })],
        parameter: None,
        evaluation: Evaluation::DenyFailures,
    }
}

/// Keeps the InternalReleaseImage from being deleted while the cluster runs a release in it.
fn used_release() -> Policy<'static> {
    let digest = |image: &str| format!("{image}.substring({image}.lastIndexOf(\"@\") + 1)");
    let (found, desired) = (digest("it.image"), digest("params.status.desired.image"));
    let releases = "oldObject.status.releases";
    Policy {
        name: "internalreleaseimage-deletion-guard",
        rule: rule(OURS, &["internalreleaseimages"], &["DELETE"]),
        conditions: vec![("has-releases", format!("has(oldObject.status) && has({releases})"))],
        validations: vec![json!({
            "expression": format!(
                "!has(params.status) || !has(params.status.desired) || \
                 !has(params.status.desired.image) || \
                 !{releases}.exists(it, has(it.image) && {found} == {desired})"
            ),
            "message": "Cannot delete InternalReleaseImage: the cluster runs a release in it",
        })],
        parameter: Some((
            json!({"apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion"}),
            "version",
        )),
        evaluation: Evaluation::DenyFailures,
    }
}
