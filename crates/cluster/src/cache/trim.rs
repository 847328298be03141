//! What nobody reads and a cache therefore does not keep.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Resource;

/// Takes off the record of who wrote which member, often the largest part of an object.
pub fn metadata<K: Resource>(object: &mut K) {
    object.meta_mut().managed_fields = None;
}

/// Takes off a node the lists that its kubelet writes for the scheduler.
pub fn node(node: &mut Node) {
    metadata(node);
    if let Some(status) = &mut node.status {
        status.images = None;
        status.volumes_attached = None;
        status.volumes_in_use = None;
        status.capacity = None;
        status.allocatable = None;
        status.addresses = None;
        status.features = None;
        status.runtime_handlers = None;
    }
}

/// Takes off a pod what runs in it: whoever moves pods about does not look inside.
pub fn pod(pod: &mut Pod) {
    metadata(pod);
    if let Some(spec) = &mut pod.spec {
        spec.containers.clear();
        spec.init_containers = None;
        spec.ephemeral_containers = None;
        spec.affinity = None;
        spec.tolerations = None;
    }
    if let Some(status) = &mut pod.status {
        status.container_statuses = None;
        status.init_container_statuses = None;
        status.ephemeral_container_statuses = None;
    }
}
