//! Removal of parts that no reader needs, before an object is cached.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Resource;

/// Removes the managed fields, often the largest part of an object.
pub fn metadata<K: Resource>(object: &mut K) {
    object.meta_mut().managed_fields = None;
}

/// Removes the lists that the kubelet writes for the scheduler.
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

/// Removes the containers of a pod: the drain controller does not read them.
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
