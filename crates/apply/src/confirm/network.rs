//! Checks the machine's own network: an interface with carrier that has a default route.
//!
//! Only the machine itself is looked at: a gateway that does not answer, like a cluster that does
//! not, may be down for other reasons than a config.

use mco_host::{CheckResult, Root};

const ROUTES: &str = "/proc/net/route";
const ROUTES_6: &str = "/proc/net/ipv6_route";

/// Checks the network of the machine; skipped if the kernel shows no routes at all.
pub(super) fn check(root: &Root) -> CheckResult {
    let text = |path: &str| match root.read(path) {
        Ok(bytes) => bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        Err(_) => None,
    };
    let (four, six) = (text(ROUTES), text(ROUTES_6));
    if four.is_none() && six.is_none() {
        return CheckResult::Skipped;
    }
    let mut interfaces = default_interfaces(four.as_deref().unwrap_or_default());
    interfaces.extend(default_interfaces_6(six.as_deref().unwrap_or_default()));
    if interfaces.is_empty() {
        return CheckResult::Failed("the machine has no default route".to_owned());
    }
    let has_carrier = |name: &&str| {
        let carrier = text(&format!("/sys/class/net/{name}/carrier"));
        // A kernel that does not tell counts as carrier.
        carrier.is_none_or(|carrier| carrier.trim() != "0")
    };
    if interfaces.iter().any(has_carrier) {
        return CheckResult::Passed;
    }
    CheckResult::Failed(format!("no carrier on {}", interfaces.join(", ")))
}

/// Returns the interfaces with a default route: destination and mask are zero.
fn default_interfaces(text: &str) -> Vec<&str> {
    let fields = text.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let defaults = fields.filter_map(|fields| match fields.as_slice() {
        [name, "00000000", _, _, _, _, _, "00000000", ..] => Some(*name),
        _ => None,
    });
    defaults.collect()
}

/// Returns the interfaces with an IPv6 default route; that of `lo` only rejects packets.
fn default_interfaces_6(text: &str) -> Vec<&str> {
    let fields = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let defaults = fields.filter_map(|fields| match fields.as_slice() {
        [target, "00", _, _, _, _, _, _, _, name] if target.bytes().all(|byte| byte == b'0') => {
            Some(*name).filter(|name| *name != "lo")
        }
        _ => None,
    });
    defaults.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n";
    const LOCAL: &str = "eth0 0000A8C0 00000000 0001 0 0 0 00FFFFFF 0 0 0\n";
    const DEFAULT: &str = "eth0 00000000 0100A8C0 0003 0 0 0 00000000 0 0 0\n";

    #[test]
    fn a_network_needs_a_default_route_and_a_carrier() {
        let zero = "0".repeat(32);
        let six = |name: &str| {
            format!("{zero} 00 {zero} 00 {zero} 00000400 00000001 00000000 00000003 {name}\n")
        };
        let broken = |why: &str| CheckResult::Failed(why.to_owned());
        let cases = [
            (None, None, "1", CheckResult::Skipped),
            (Some(format!("{HEAD}{LOCAL}{DEFAULT}")), None, "1", CheckResult::Passed),
            (Some(format!("{HEAD}{DEFAULT}")), None, "0", broken("no carrier on eth0")),
            (Some(format!("{HEAD}{LOCAL}")), None, "1", broken("the machine has no default route")),
            (Some(HEAD.to_owned()), Some(six("eth0")), "1", CheckResult::Passed),
            (
                Some(HEAD.to_owned()),
                Some(six("lo")),
                "1",
                broken("the machine has no default route"),
            ),
        ];
        for (four, six, carrier, want) in cases {
            let folder = tempfile::tempdir().unwrap();
            let root = Root::open(folder.path()).unwrap();
            for (path, text) in [(ROUTES, &four), (ROUTES_6, &six)] {
                if let Some(text) = text {
                    root.write(path, text.as_bytes(), 0o444).unwrap();
                }
            }
            root.write("/sys/class/net/eth0/carrier", carrier.as_bytes(), 0o444).unwrap();
            assert_eq!(check(&root), want, "{four:?} {six:?} {carrier}");
        }
    }
}
