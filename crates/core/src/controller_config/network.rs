//! Facts about the network of the cluster.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use mco_api::{controller_config::NetworkInfo, openshift::Network};

use super::FactsError;

/// Offset of the DNS server's address in the network of Services.
const DNS_OFFSET: u8 = 10;

/// Network members of a ControllerConfig.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NetworkFacts {
    pub(super) dns_ip: String,
    pub(super) ip_families: String,
    pub(super) network_type: String,
    pub(super) network: Option<NetworkInfo>,
}

/// Addresses of Services, from which the network of a plain Kubernetes is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Services {
    /// Addresses of the Service `kube-system/kube-dns`.
    pub dns: Vec<String>,
    /// Addresses of the Service `default/kubernetes`.
    pub kubernetes: Vec<String>,
}

/// Reads the Network object.
pub(super) fn of_network(found: &Network) -> Result<NetworkFacts, FactsError> {
    let networks = &found.spec.service_network;
    let fault = |reason: String| FactsError::Field {
        object: "Network cluster".to_owned(),
        field: "spec.serviceNetwork",
        reason,
    };
    // Compat: the reference's text (pkg/operator).
    let first = networks.first().ok_or_else(|| fault("service cidr is empty in Network".into()))?;
    let parse =
        |text: &String| Cidr::parse(text).ok_or_else(|| fault(format!("{text:?} is no CIDR")));
    let families = networks.iter().map(|text| parse(text).map(|cidr| cidr.address));
    let families: Vec<IpAddr> = families.collect::<Result<_, _>>()?;
    let dns_ip = parse(first)?.host(DNS_OFFSET);
    let dns_ip = dns_ip.ok_or_else(|| fault(format!("{first} has no tenth address")))?;
    let status = &found.status;
    let migration = status.migration.as_ref();
    let migrated = migration.map(|it| it.network_type.as_str()).filter(|to| !to.is_empty());
    let network_type = if status.network_type.is_empty() {
        &found.spec.network_type
    } else {
        migrated.unwrap_or(&status.network_type)
    };
    let mtu_migration = migration.and_then(|it| it.mtu.clone());
    Ok(NetworkFacts {
        dns_ip: dns_ip.to_string(),
        ip_families: ip_families(&families).to_owned(),
        network_type: network_type.to_owned(),
        network: Some(NetworkInfo { mtu_migration }),
    })
}

/// Reads the addresses of Services. Members without one are empty.
pub(super) fn of_services(services: &Services) -> NetworkFacts {
    let parse = |addresses: &[String]| -> Vec<IpAddr> {
        addresses.iter().filter_map(|address| address.parse().ok()).collect()
    };
    // The Service of the API server has one address even with two families; that of the DNS server
    // may have two.
    let (api, dns) = (parse(&services.kubernetes), parse(&services.dns));
    let families: Vec<IpAddr> = api.into_iter().chain(dns.iter().copied()).collect();
    let ip_families = if families.is_empty() { "" } else { ip_families(&families) };
    NetworkFacts {
        dns_ip: dns.first().map(ToString::to_string).unwrap_or_default(),
        ip_families: ip_families.to_owned(),
        ..NetworkFacts::default()
    }
}

/// Returns the word for the IP families of addresses; the first one is of the primary family.
fn ip_families(addresses: &[IpAddr]) -> &'static str {
    let is_dual = addresses.iter().any(IpAddr::is_ipv4) && addresses.iter().any(IpAddr::is_ipv6);
    match (addresses.first(), is_dual) {
        (None | Some(IpAddr::V4(_)), false) => "IPv4",
        (Some(IpAddr::V6(_)), false) => "IPv6",
        (None | Some(IpAddr::V4(_)), true) => "DualStack",
        (Some(IpAddr::V6(_)), true) => "DualStackIPv6Primary",
    }
}

/// A network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cidr {
    address: IpAddr,
    prefix: u32,
}

impl Cidr {
    fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.trim().split_once('/')?;
        let (address, prefix): (IpAddr, u32) = (address.parse().ok()?, prefix.parse().ok()?);
        let bits = if address.is_ipv4() { 32 } else { 128 };
        (prefix <= bits).then_some(Self { address, prefix })
    }

    /// Returns the address at an offset in the network; `None` if the network is too small.
    fn host(self, offset: u8) -> Option<IpAddr> {
        match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - self.prefix).unwrap_or(0);
                (u32::from(offset) <= !mask).then(|| {
                    Ipv4Addr::from_bits((address.to_bits() & mask) + u32::from(offset)).into()
                })
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - self.prefix).unwrap_or(0);
                (u128::from(offset) <= !mask).then(|| {
                    Ipv6Addr::from_bits((address.to_bits() & mask) + u128::from(offset)).into()
                })
            }
        }
    }
}
