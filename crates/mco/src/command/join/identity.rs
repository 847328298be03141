//! Facts that identify this machine: machine id, MAC addresses, host name.

use anyhow::Context as _;
use mco_apply::join::JoinRecord;
use mco_cluster::config_server::{JoinToken, JoiningMachine};
use mco_host::Root;

const HOST_NAME: &str = "/proc/sys/kernel/hostname";
const MACHINE_ID: &str = "/etc/machine-id";
const RANDOM_ID: &str = "/proc/sys/kernel/random/uuid";
const NETWORK: &str = "/sys/class/net";
/// Address of interfaces without hardware.
const NO_MAC: &str = "00:00:00:00:00:00";
/// More network cards than any machine has.
const MAX_MACS: usize = 32;

/// Returns the host name, as the kubelet registers it.
pub(super) fn host_name(root: &Root) -> anyhow::Result<String> {
    let name = text(root, HOST_NAME)?.to_lowercase();
    anyhow::ensure!(
        !name.is_empty() && name != "localhost",
        "the machine has no host name; set one with hostnamectl, or use --node-name"
    );
    Ok(name)
}

/// Returns a new random id.
pub(super) fn random_id(root: &Root) -> anyhow::Result<String> {
    let id = text(root, RANDOM_ID)?;
    anyhow::ensure!(!id.is_empty(), "{RANDOM_ID} is empty");
    Ok(id)
}

/// Returns the machine as it presents itself to the config server.
pub(super) fn machine(root: &Root, record: &JoinRecord) -> JoiningMachine {
    JoiningMachine {
        token: record.token.as_deref().map(JoinToken::new),
        join_id: record.join_id.clone(),
        machine_id: text(root, MACHINE_ID).unwrap_or_default(),
        macs: macs(root),
        node: record.node.clone(),
    }
}

/// Returns the addresses of the network cards.
fn macs(root: &Root) -> Vec<String> {
    let names = root.list(NETWORK).unwrap_or_default();
    let addresses = names.iter().filter_map(|name| {
        let address = text(root, &format!("{NETWORK}/{name}/address")).ok()?.to_lowercase();
        let is_mac = address.len() == NO_MAC.len() && address != NO_MAC;
        is_mac.then_some(address)
    });
    addresses.take(MAX_MACS).collect()
}

fn text(root: &Root, path: &str) -> anyhow::Result<String> {
    let bytes = root.read(path)?.with_context(|| format!("{path} does not exist"))?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}
