//! The Endpoints and the EndpointSlice of a Service.

use k8s_openapi::{
    api::core::v1::{Pod, Service, ServicePort},
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::pods::{PodView, reference};

/// Label of a slice with the name of its Service.
pub(crate) const SERVICE: &str = "kubernetes.io/service-name";
/// Label of the Endpoints that a controller manages.
pub(crate) const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
/// The controllers, as Kubernetes names them.
pub(crate) const ENDPOINT_CONTROLLER: &str = "endpoint-controller";
const SLICE_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const SLICE_CONTROLLER: &str = "endpointslice-controller.k8s.io";

/// Returns the name of the slice of a Service.
pub(crate) fn slice_name(service: &Service) -> String {
    let uid = service.uid().unwrap_or_default();
    let suffix: String = uid.chars().filter(char::is_ascii_alphanumeric).take(5).collect();
    format!("{}-{suffix}", service.name_any())
}

/// Returns true if the Service selects the pod, and the pod has an address.
pub(crate) fn selects(service: &Service, pod: &Pod) -> bool {
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let Some(selector) = selector.filter(|selector| !selector.is_empty()) else { return false };
    let labels = pod.labels();
    let is_same = service.namespace() == pod.namespace();
    is_same
        && selector.iter().all(|(key, value)| labels.get(key) == Some(value))
        && PodView::of(pod).is_active()
        && address(pod).is_some()
}

/// Returns true if a controller keeps the endpoints of the Service.
pub(crate) fn is_managed(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.and_then(|spec| spec.selector.as_ref()).is_some_and(|selector| !selector.is_empty())
}

fn address(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.pod_ip.as_deref()
}

/// Returns the number of a port on a pod.
fn target(port: &ServicePort, pod: &Pod) -> Option<i32> {
    match &port.target_port {
        Some(IntOrString::Int(number)) => Some(*number),
        Some(IntOrString::String(name)) => {
            let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
            let mut ports = containers.flat_map(|it| it.ports.iter().flatten());
            ports.find(|it| it.name.as_ref() == Some(name)).map(|it| it.container_port)
        }
        None => Some(port.port),
    }
}

/// Returns the ports of a Service, on the first pod that has them.
fn ports(service: &Service, pods: &[&Pod]) -> Vec<Value> {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let of = |port: &ServicePort| {
        let numbers = pods.iter().filter_map(|pod| target(port, pod));
        let number = numbers.into_iter().next()?;
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        let name = port.name.as_deref().unwrap_or_default();
        Some(json!({"name": name, "port": number, "protocol": protocol}))
    };
    ports.filter_map(of).collect()
}

fn target_ref(pod: &Pod) -> Value {
    json!({"kind": "Pod", "name": pod.name_any(), "namespace": pod.namespace(),
        "uid": pod.metadata.uid})
}

/// Returns the Endpoints of a Service.
pub(crate) fn endpoints(service: &Service, pods: &[&Pod]) -> Value {
    let ports: Vec<Value> = ports(service, pods).into_iter().map(unnamed).collect();
    let entry = |pod: &&Pod| {
        json!({"ip": address(pod), "nodeName": pod.spec.as_ref().and_then(|it| it.node_name.clone()),
            "targetRef": target_ref(pod)})
    };
    let (ready, others): (Vec<&Pod>, Vec<&Pod>) =
        pods.iter().partition(|pod| PodView::of(pod).is_ready);
    let mut subset = serde_json::Map::new();
    for (member, pods) in [("addresses", ready), ("notReadyAddresses", others)] {
        if !pods.is_empty() {
            subset.insert(member.to_owned(), pods.iter().map(entry).collect());
        }
    }
    let is_empty = subset.is_empty();
    if !ports.is_empty() {
        subset.insert("ports".to_owned(), ports.into());
    }
    let subsets = if is_empty { json!([]) } else { json!([subset]) };
    let labels = json!({(MANAGED_BY): ENDPOINT_CONTROLLER});
    json!({"metadata": {"name": service.name_any(), "labels": labels}, "subsets": subsets})
}

/// Returns a port without its name if that is empty.
fn unnamed(mut port: Value) -> Value {
    if let Some(members) = port.as_object_mut() {
        members.retain(|_, value| value != "");
    }
    port
}

/// Returns the EndpointSlice of a Service.
pub(crate) fn slice(service: &Service, pods: &[&Pod]) -> Value {
    let entry = |pod: &&Pod| {
        let view = PodView::of(pod);
        json!({"addresses": [address(pod)], "nodeName": view.node, "targetRef": target_ref(pod),
            "conditions": {"ready": view.is_ready, "serving": view.is_ready, "terminating": false}})
    };
    let labels = json!({(SERVICE): service.name_any(), (SLICE_MANAGED_BY): SLICE_CONTROLLER});
    json!({
        "metadata": {
            "name": slice_name(service),
            "labels": labels,
            "ownerReferences": [reference("v1", "Service", &service.metadata)],
        },
        "addressType": "IPv4",
        "endpoints": pods.iter().map(entry).collect::<Vec<_>>(),
        "ports": ports(service, pods),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(target: &Value) -> Service {
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "n", "uid": "12345678-9"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": target}]},
        }))
        .unwrap()
    }

    fn pod(name: &str, app: &str, ready: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "n", "labels": {"app": app}},
            "spec": {"nodeName": "w0", "containers": [
                {"name": "c", "ports": [{"name": "http", "containerPort": 8080}]}]},
            "status": {"phase": "Running", "podIP": "10.1.2.3",
                "conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    #[test]
    fn a_service_has_the_addresses_of_its_pods() {
        let service = service(&json!("http"));
        let all = [pod("a", "web", "True"), pod("b", "web", "False"), pod("c", "db", "True")];
        let pods: Vec<&Pod> = all.iter().filter(|pod| selects(&service, pod)).collect();
        let found = endpoints(&service, &pods);
        let subset = &found["subsets"][0];
        assert_eq!(subset["addresses"][0]["targetRef"]["name"], "a");
        assert_eq!(subset["notReadyAddresses"][0]["targetRef"]["name"], "b");
        assert_eq!(subset["ports"], json!([{"port": 8080, "protocol": "TCP"}]));
        let slice = slice(&service, &pods);
        assert_eq!(slice["metadata"]["name"], "web-12345");
        assert_eq!(slice["endpoints"][1]["conditions"]["ready"], false);
        assert_eq!(slice["ports"][0]["port"], 8080);
    }

    #[test]
    fn a_service_without_pods_has_no_addresses() {
        let service = service(&json!(80));
        assert_eq!(endpoints(&service, &[])["subsets"], json!([]));
        assert_eq!(slice(&service, &[])["endpoints"], json!([]));
    }
}
