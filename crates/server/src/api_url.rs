//! URL of the API server in the kubeconfig of new machines.

use std::{
    convert::Infallible,
    net::{IpAddr, Ipv6Addr},
    str::FromStr,
    sync::Arc,
};

use k8s_openapi::api::{core::v1::ConfigMap, discovery::v1::EndpointSlice};
use mco_api::ControllerConfig;
use mco_core::yaml;

/// Value of `--apiserver-url` that has the server look the URL up in the cluster.
const AUTO: &str = "auto";

/// URL of the API server as machines see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiUrl {
    /// A URL from the command line.
    Fixed(String),
    /// The URL that the cluster names.
    Auto,
}

impl FromStr for ApiUrl {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(if text == AUTO { Self::Auto } else { Self::Fixed(text.to_owned()) })
    }
}

/// The cluster names no URL that a machine could connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the cluster does not name a URL of the API server for machines; start the server with \
     --apiserver-url URL, or set apiServerInternalURI in spec.infra.status of the ControllerConfig"
)]
pub struct UnknownApiUrl;

/// Resolves the URL: that of the ControllerConfig, else that of the ConfigMap `cluster-info`, with
/// which kubeadm joins machines, else an address of the Service `kubernetes`.
pub fn resolve(
    controller: Option<&ControllerConfig>,
    cluster_info: Option<&ConfigMap>,
    slices: &[Arc<EndpointSlice>],
) -> Result<String, UnknownApiUrl> {
    let from_controller = || controller.and_then(internal_url).map(str::to_owned);
    let from_cluster_info = || cluster_info.and_then(kubeconfig_server);
    let found = from_controller().or_else(from_cluster_info).or_else(|| endpoint(slices));
    found.ok_or(UnknownApiUrl)
}

fn internal_url(controller: &ControllerConfig) -> Option<&str> {
    let infra = controller.spec.infra.as_ref()?;
    let url = infra.status.as_ref()?.api_server_internal_uri.as_str();
    (!url.is_empty()).then_some(url)
}

/// Returns the server of the kubeconfig in `cluster-info`, unless it is one that only pods or the
/// machine of the API server can connect to.
fn kubeconfig_server(cluster_info: &ConfigMap) -> Option<String> {
    let text = cluster_info.data.as_ref()?.get("kubeconfig")?;
    let documents = yaml::documents(text).ok()?;
    let server = documents.first()?.pointer("/clusters/0/cluster/server")?.as_str()?;
    is_reachable(server).then(|| server.to_owned())
}

fn is_reachable(url: &str) -> bool {
    let Ok(url) = url.parse::<http::Uri>() else { return false };
    let Some(host) = url.host() else { return false };
    // `NAME.NAMESPACE.svc`, with or without the domain of the cluster.
    let is_service = host.split('.').nth(2) == Some("svc");
    let is_local = match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(address) => address.is_loopback() || address.is_unspecified(),
        Err(_) => host == "localhost",
    };
    !is_service && !is_local
}

/// Returns the URL of the first ready address, in the order of addresses, IPv4 first: the result
/// must not change with the order in which the API servers renew their addresses.
fn endpoint(slices: &[Arc<EndpointSlice>]) -> Option<String> {
    let mut found: Vec<(IpAddr, i32)> = Vec::new();
    for slice in slices {
        let Some(port) = https_port(slice) else { continue };
        for endpoint in slice.endpoints.iter().flatten() {
            let ready = endpoint.conditions.as_ref().and_then(|conditions| conditions.ready);
            // An unknown state counts as ready, as Kubernetes defines it.
            if ready.unwrap_or(true) {
                let addresses = endpoint.addresses.iter().filter_map(|text| text.parse().ok());
                found.extend(addresses.map(|address| (address, port)));
            }
        }
    }
    found.sort_unstable();
    found.first().map(|(address, port)| match address {
        IpAddr::V4(address) => format!("https://{address}:{port}"),
        IpAddr::V6(address) => format!("https://[{}]:{port}", Ipv6Addr::from(address.octets())),
    })
}

fn https_port(slice: &EndpointSlice) -> Option<i32> {
    let ports = slice.ports.as_deref()?;
    let named = ports.iter().find(|port| port.name.as_deref() == Some("https"));
    named.or(ports.first())?.port
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn controller(url: &str) -> ControllerConfig {
        let infra = json!({"status": {"apiServerInternalURI": url}});
        let object = json!({"metadata": {"name": "a"}, "spec": {"infra": infra}});
        serde_json::from_value(object).unwrap()
    }

    fn cluster_info(server: &str) -> ConfigMap {
        let text = format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- cluster:\n    server: {server}\n  name: ''\n"
        );
        serde_json::from_value(json!({"metadata": {}, "data": {"kubeconfig": text}})).unwrap()
    }

    fn slice(kind: &str, endpoints: &Value) -> Arc<EndpointSlice> {
        let ports = json!([{"name": "https", "port": 6443}]);
        let object =
            json!({"metadata": {}, "addressType": kind, "endpoints": endpoints, "ports": ports});
        Arc::new(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn the_controller_config_wins_over_cluster_info_and_endpoints() {
        let infra = controller("https://api-int.example.com:6443");
        let info = cluster_info("https://10.0.0.1:6443");
        let slices = [slice("IPv4", &json!([{"addresses": ["10.0.0.9", "10.0.0.10"]}]))];
        let rows = [
            (Some(&infra), Some(&info), &slices[..], Ok("https://api-int.example.com:6443")),
            (None, Some(&info), &slices, Ok("https://10.0.0.1:6443")),
            (Some(&controller("")), None, &slices, Ok("https://10.0.0.9:6443")),
            (None, None, &slices, Ok("https://10.0.0.9:6443")),
            (None, None, &[], Err(UnknownApiUrl)),
        ];
        for (controller, info, slices, expected) in rows {
            assert_eq!(resolve(controller, info, slices), expected.map(str::to_owned));
        }
    }

    #[test]
    fn a_server_that_machines_cannot_connect_to_is_skipped() {
        let slices = [slice("IPv4", &json!([{"addresses": ["10.0.0.9"]}]))];
        let rows = [
            ("https://127.0.0.1:6443", "https://10.0.0.9:6443"),
            ("https://localhost:6443", "https://10.0.0.9:6443"),
            ("https://[::1]:6443", "https://10.0.0.9:6443"),
            ("https://kubernetes.default.svc", "https://10.0.0.9:6443"),
            ("https://kubernetes.default.svc.cluster.local:443", "https://10.0.0.9:6443"),
            ("not a url", "https://10.0.0.9:6443"),
            ("https://kind-control-plane:6443", "https://kind-control-plane:6443"),
        ];
        for (server, expected) in rows {
            let found = resolve(None, Some(&cluster_info(server)), &slices);
            assert_eq!(found.as_deref(), Ok(expected), "{server}");
        }
    }

    #[test]
    fn the_lowest_ready_address_is_selected() {
        let not_ready = json!({"ready": false});
        let rows = [
            (
                vec![slice("IPv6", &json!([{"addresses": ["fd00::1"]}]))],
                Ok("https://[fd00::1]:6443"),
            ),
            (
                vec![
                    slice("IPv6", &json!([{"addresses": ["fd00::1"]}])),
                    slice(
                        "IPv4",
                        &json!([{"addresses": ["10.0.0.11"]}, {"addresses": ["10.0.0.9"]}]),
                    ),
                ],
                Ok("https://10.0.0.9:6443"),
            ),
            (
                vec![slice(
                    "IPv4",
                    &json!([
                        {"addresses": ["10.0.0.1"], "conditions": not_ready},
                        {"addresses": ["10.0.0.2"], "conditions": {}}
                    ]),
                )],
                Ok("https://10.0.0.2:6443"),
            ),
            (vec![slice("IPv4", &json!([]))], Err(UnknownApiUrl)),
        ];
        for (slices, expected) in rows {
            assert_eq!(resolve(None, None, &slices), expected.map(str::to_owned), "{slices:?}");
        }
    }

    #[test]
    fn only_the_word_auto_is_special() {
        assert_eq!("auto".parse(), Ok(ApiUrl::Auto));
        assert_eq!("https://a".parse(), Ok(ApiUrl::Fixed("https://a".to_owned())));
    }
}
