//! Filter for network addresses of remote contents.
//!
//! A MachineConfig must not be a way to read what only the controller, or its machine, can reach:
//! the metadata service of a cloud, a service on the loopback address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The addresses that remote contents may be fetched from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressPolicy {
    /// Other machines only.
    #[default]
    RemoteOnly,
    /// Other machines, this machine and its link.
    AllowLocal,
}

/// IPv6 address of a cloud's metadata service that is not link-local.
const METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// Returns true if contents may be fetched from `address`.
#[must_use]
pub fn is_allowed(address: IpAddr, reach: AddressPolicy) -> bool {
    match reach {
        AddressPolicy::AllowLocal => !is_no_host(address),
        AddressPolicy::RemoteOnly => match unmapped(address) {
            IpAddr::V4(address) => !(is_no_host(address.into()) || is_local(address)),
            IpAddr::V6(address) => {
                let local = address.is_loopback() || address.is_unicast_link_local();
                !(is_no_host(address.into()) || local || address == METADATA)
            }
        },
    }
}

fn is_local(address: Ipv4Addr) -> bool {
    // The whole network 0.0.0.0/8 is this machine.
    address.is_loopback() || address.is_link_local() || address.octets().starts_with(&[0])
}

/// Returns true for addresses that no single machine has.
fn is_no_host(address: IpAddr) -> bool {
    address.is_multicast() || address.is_unspecified() || address == Ipv4Addr::BROADCAST
}

/// Converts an IPv4-mapped IPv6 address to IPv4.
fn unmapped(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(written) => written.to_ipv4_mapped().map_or(address, IpAddr::V4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_only_this_machine_can_reach_are_refused() {
        let cases = [
            ("192.0.2.1", true, true),
            ("10.0.0.1", true, true),
            ("2001:db8::1", true, true),
            ("fd00::1", true, true),
            ("169.254.169.254", false, true),
            ("::ffff:169.254.169.254", false, true),
            ("fe80::1", false, true),
            ("fd00:ec2::254", false, true),
            ("127.0.0.1", false, true),
            ("127.9.9.9", false, true),
            ("::1", false, true),
            ("::ffff:127.0.0.1", false, true),
            ("0.0.0.1", false, true),
            ("0.0.0.0", false, false),
            ("::", false, false),
            ("224.0.0.1", false, false),
            ("ff02::1", false, false),
            ("255.255.255.255", false, false),
        ];
        for (address, others, local) in cases {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(is_allowed(address, AddressPolicy::RemoteOnly), others, "{address}");
            assert_eq!(is_allowed(address, AddressPolicy::AllowLocal), local, "{address}");
        }
    }
}
