//! Names under which new machines reach the config server.

use std::collections::BTreeSet;

use mco_api::{
    ControllerConfig, annotation,
    controller_config::{infrastructure::InfrastructureStatus, platform_status::PlatformStatus},
};

/// Returns the names of the config server: the host of the internal API URL, the virtual IP
/// addresses of the platform, and the names in the annotation `server-names` of the
/// ControllerConfig.
#[must_use]
pub fn server_names(config: &ControllerConfig) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let infrastructure = config.spec.infra.as_ref().and_then(|infra| infra.status.as_ref());
    if let Some(status) = infrastructure {
        names.extend(internal_host(status).map(str::to_owned));
        names.extend(status.platform_status.as_ref().map(virtual_addresses).unwrap_or_default());
    }
    let added = config.metadata.annotations.as_ref();
    let added = added.and_then(|added| added.get(annotation::SERVER_NAMES.name()));
    let added = added.into_iter().flat_map(|text| text.split(','));
    names.extend(added.map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned));
    names
}

fn internal_host(status: &InfrastructureStatus) -> Option<&str> {
    let (_, rest) = status.api_server_internal_uri.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = match authority.strip_prefix('[') {
        Some(address) => address.split(']').next()?,
        None => authority.split(':').next()?,
    };
    (!host.is_empty()).then_some(host)
}

fn virtual_addresses(platform: &PlatformStatus) -> Vec<String> {
    let none: &[String] = &[];
    let all = [
        platform.baremetal.as_ref().map_or(none, |found| &found.api_server_internal_ips),
        platform.ovirt.as_ref().map_or(none, |found| &found.api_server_internal_ips),
        platform.openstack.as_ref().map_or(none, |found| &found.api_server_internal_ips),
        platform.vsphere.as_ref().map_or(none, |found| &found.api_server_internal_ips),
        platform.nutanix.as_ref().map_or(none, |found| &found.api_server_internal_ips),
    ];
    all.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: CERT-2
    #[test]
    fn names_follow_the_infrastructure() {
        let cases = [
            (serde_json::json!({}), "", ""),
            (
                serde_json::json!({"apiServerInternalURI": "https://api-int.c.test:6443"}),
                "",
                "api-int.c.test",
            ),
            (serde_json::json!({"apiServerInternalURI": "https://[fd00::1]:6443/"}), "", "fd00::1"),
            (
                serde_json::json!({
                    "apiServerInternalURI": "https://api-int.c.test:6443",
                    "platformStatus": {"type": "BareMetal", "baremetal": {"apiServerInternalIPs": ["192.0.2.5", "fd00::5"]}},
                }),
                "",
                "192.0.2.5 api-int.c.test fd00::5",
            ),
            (serde_json::json!({}), " boot.c.test, 192.0.2.9,", "192.0.2.9 boot.c.test"),
        ];
        for (status, added, expected) in cases {
            let config: ControllerConfig = serde_json::from_value(serde_json::json!({
                "metadata": {"annotations": {annotation::SERVER_NAMES.name(): added}},
                "spec": {"infra": {"status": status}},
            }))
            .unwrap();
            let names: Vec<String> = server_names(&config).into_iter().collect();
            assert_eq!(names.join(" "), expected);
        }
    }
}
