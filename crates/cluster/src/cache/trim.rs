//! What nobody reads and a cache therefore does not keep.

use k8s_openapi::api::core::v1::Node;
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
