//! User data of machines that the Machine API creates.

use mco_api::controller_config::{ControllerConfigSpec, PlatformType};

use crate::join::pointer::{self, Pointer, SERVER_PORT};

/// Returns the host by which machines reach the config server: the first virtual IP address of a
/// platform with one, else the host of the internal URL of the API server.
#[must_use]
pub fn machine_host(spec: &ControllerConfigSpec) -> Option<String> {
    let status = spec.infra.as_ref()?.status.as_ref()?;
    let first = status.platform_status.as_ref().and_then(|platform| {
        let ips = [
            (
                PlatformType::BareMetal,
                platform.baremetal.as_ref().map(|it| &it.api_server_internal_ips),
            ),
            (
                PlatformType::OpenStack,
                platform.openstack.as_ref().map(|it| &it.api_server_internal_ips),
            ),
            (PlatformType::OVirt, platform.ovirt.as_ref().map(|it| &it.api_server_internal_ips)),
            (
                PlatformType::VSphere,
                platform.vsphere.as_ref().map(|it| &it.api_server_internal_ips),
            ),
        ];
        let (_, addresses) = ips.into_iter().find(|(kind, _)| *kind == platform.kind)?;
        addresses?.first().cloned()
    });
    match first {
        Some(address) if address.contains(':') => Some(format!("[{address}]")),
        Some(address) => Some(address),
        None => pointer::host(&status.api_server_internal_uri).map(str::to_owned),
    }
}

/// Returns the user data of machines of a pool: an Ignition config that points to the config server.
#[must_use]
pub fn user_data(host: &str, pool: &str, ca: &str) -> Vec<u8> {
    let pointer = Pointer {
        server: format!("https://{host}:{SERVER_PORT}"),
        pool: pool.to_owned(),
        ca: ca.to_owned(),
        token: None,
        node: String::new(),
    };
    pointer.ignition().to_string().into_bytes()
}
