//! Filter for network addresses of remote contents.
//!
//! A MachineConfig must not be a way to read what only the controller, or its machine, can reach:
//! the metadata service of a cloud, a service on the loopback address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The addresses that remote contents may be fetched from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressPolicy {
    /// Public addresses only.
    #[default]
    RemoteOnly,
    /// Also private networks, which include those of the cluster's nodes, pods and Services.
    AllowPrivate,
    /// Also this machine.
    AllowLocal,
}

/// Addresses of clouds' metadata services that are not link-local.
const METADATA: [IpAddr; 5] = [
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];

/// Prefixes of IPv6 addresses that are followed by an IPv4 address.
const NAT64: [u8; 12] = [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0];
const SIX_TO_FOUR: [u8; 2] = [0x20, 0x02];

/// Returns true if contents may be fetched from `address`.
///
/// Link-local addresses and metadata services are never allowed: they serve the credentials of the
/// controller's machine.
#[must_use]
pub fn is_allowed(address: IpAddr, reach: AddressPolicy) -> bool {
    let address = unmapped(address);
    if is_no_host(address) || is_link_local(address) || METADATA.contains(&address) {
        return false;
    }
    match reach {
        AddressPolicy::RemoteOnly => !is_this_machine(address) && !is_private(address),
        AddressPolicy::AllowPrivate => !is_this_machine(address),
        AddressPolicy::AllowLocal => true,
    }
}

fn is_this_machine(address: IpAddr) -> bool {
    match address {
        // The whole network 0.0.0.0/8 is this machine.
        IpAddr::V4(address) => address.is_loopback() || address.octets().starts_with(&[0]),
        IpAddr::V6(address) => address.is_loopback(),
    }
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let [first, second, ..] = address.octets();
            // 100.64.0.0/10 is for carriers, and for pods on some clouds.
            address.is_private() || (first == 100 && second & 0xc0 == 64)
        }
        IpAddr::V6(address) => address.is_unique_local(),
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// Returns true for addresses that no single machine has.
fn is_no_host(address: IpAddr) -> bool {
    address.is_multicast() || address.is_unspecified() || address == Ipv4Addr::BROADCAST
}

/// Returns the IPv4 address that an IPv6 address stands for: mapped, by NAT64 or by 6to4.
fn unmapped(address: IpAddr) -> IpAddr {
    let IpAddr::V6(written) = address else { return address };
    let bytes = written.octets();
    let embedded = |at: usize| {
        let found = bytes.get(at..)?.first_chunk::<4>()?;
        Some(IpAddr::V4(Ipv4Addr::from(*found)))
    };
    let found = if bytes.starts_with(&NAT64) {
        embedded(NAT64.len())
    } else if bytes.starts_with(&SIX_TO_FOUR) {
        embedded(SIX_TO_FOUR.len())
    } else {
        written.to_ipv4_mapped().map(IpAddr::V4)
    };
    found.unwrap_or(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_only_the_controller_can_reach_are_refused() {
        use AddressPolicy::{AllowLocal, AllowPrivate, RemoteOnly};
        // The least policy that allows the address.
        let cases = [
            ("192.0.2.1", Some(RemoteOnly)),
            ("2001:db8::1", Some(RemoteOnly)),
            ("100.128.0.1", Some(RemoteOnly)),
            ("10.0.0.1", Some(AllowPrivate)),
            ("172.31.0.1", Some(AllowPrivate)),
            ("192.168.1.1", Some(AllowPrivate)),
            ("100.64.0.1", Some(AllowPrivate)),
            ("fd00::1", Some(AllowPrivate)),
            ("::ffff:10.0.0.1", Some(AllowPrivate)),
            ("64:ff9b::10.0.0.1", Some(AllowPrivate)),
            ("127.0.0.1", Some(AllowLocal)),
            ("127.9.9.9", Some(AllowLocal)),
            ("::1", Some(AllowLocal)),
            ("::ffff:127.0.0.1", Some(AllowLocal)),
            ("0.0.0.1", Some(AllowLocal)),
            ("169.254.169.254", None),
            ("::ffff:169.254.169.254", None),
            ("64:ff9b::a9fe:a9fe", None),
            ("2002:a9fe:a9fe::1", None),
            ("fe80::1", None),
            ("fd00:ec2::254", None),
            ("fd20:ce::254", None),
            ("168.63.129.16", None),
            ("::ffff:168.63.129.16", None),
            ("100.100.100.200", None),
            ("0.0.0.0", None),
            ("::", None),
            ("224.0.0.1", None),
            ("ff02::1", None),
            ("255.255.255.255", None),
        ];
        for (text, least) in cases {
            let address: IpAddr = text.parse().unwrap();
            let policies = [RemoteOnly, AllowPrivate, AllowLocal];
            let allowed = policies.into_iter().filter(|policy| is_allowed(address, *policy));
            let expected = policies.into_iter().skip_while(|policy| Some(*policy) != least);
            assert_eq!(allowed.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{text}");
        }
    }
}
