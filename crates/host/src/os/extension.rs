//! Which packages an extension is.

/// Compat: names and packages are the reference's (`pkg/controller/common/helpers.go`).
const EXTENSIONS: [(&str, &[&str]); 7] = [
    ("two-node-ha", &["pacemaker", "pcs", "fence-agents-all"]),
    ("ipsec", &["NetworkManager-libreswan", "libreswan", "openvswitch3.5-ipsec"]),
    ("usbguard", &["usbguard"]),
    ("kerberos", &["krb5-workstation", "libkadm5"]),
    ("kernel-devel", &["kernel-devel", "kernel-headers"]),
    ("sandboxed-containers", &["kata-containers"]),
    ("sysstat", &["sysstat"]),
];

/// The packages of an extension; none if there is no such extension.
#[must_use]
pub fn packages(extension: &str) -> Option<&'static [&'static str]> {
    EXTENSIONS.iter().find(|(name, _)| *name == extension).map(|(_, packages)| *packages)
}

/// Whether a package belongs to any extension.
#[must_use]
pub fn is_extension(package: &str) -> bool {
    EXTENSIONS.iter().any(|(_, packages)| packages.contains(&package))
}
