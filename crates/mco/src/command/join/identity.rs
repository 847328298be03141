//! Facts that identify this machine: machine id, MAC addresses, TPM, host name.

use anyhow::Context as _;
use mco_apply::join::JoinRecord;
use mco_cluster::{
    config_server::{JoinToken, JoiningMachine},
    report::chain,
};
use mco_host::{Root, SystemdSystem};

use crate::print;

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
pub(super) fn machine(root: &Root, system: &SystemdSystem, record: &JoinRecord) -> JoiningMachine {
    // Only tokens that are bound to a TPM need it, and the server says so if one is.
    let tpm_ek = system.endorsement_key().unwrap_or_else(|error| {
        print::note(&format!("the TPM's endorsement key is not sent: {}", chain(&error)));
        None
    });
    JoiningMachine {
        token: record.token.as_deref().map(JoinToken::new),
        join_id: record.join_id.clone(),
        machine_id: text(root, MACHINE_ID).unwrap_or_default(),
        macs: macs(root),
        tpm_ek: tpm_ek.unwrap_or_default(),
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
