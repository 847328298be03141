//! Reports a join that failed to the config server.

use std::path::Path;

use anyhow::Context as _;
use mco_apply::{
    disk,
    join::{JoinError, JoinRecord, JoinStage},
};
use mco_cluster::{
    config_server::{ConfigServer, JoiningMachine},
    report::chain,
};
use mco_core::{
    join::report::FirstBootReport,
    served_config::{self, ServedConfigError},
};
use mco_host::{Root, SystemdSystem, input};
use tokio::runtime::Runtime;

use super::{identity, settings};
use crate::error::FaultsError;

/// Units whose journal explains a failure.
const UNITS: [&str; 5] = [
    mco_apply::join::UNIT,
    "kubelet.service",
    "containerd.service",
    "crio.service",
    "machine-config-daemon-firstboot.service",
];
/// Lines of the journal in a report.
const LINES: u32 = 60;
const MAX_FILE: u64 = 1 << 20;

/// Returns true if a failure is one to report: the machine was changed, or cannot take the config. A
/// server that refuses the machine, or a user who does, need no report.
pub(super) fn is_due(error: &anyhow::Error, has_changed: bool) -> bool {
    has_changed
        || error.chain().any(|cause| {
            cause.is::<ServedConfigError>() || cause.is::<FaultsError>() || cause.is::<JoinError>()
        })
}

/// A report that is sent to the config server.
pub(crate) struct FailureReport {
    server: ConfigServer,
    machine: JoiningMachine,
    pool: String,
    journal: Vec<String>,
    secrets: Vec<String>,
}

impl FailureReport {
    /// Prepares the report of a join.
    pub(super) fn of_join(
        root: &Root,
        system: &SystemdSystem,
        record: &JoinRecord,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            server: settings::connect(record)?,
            machine: identity::machine(root, system, record),
            pool: record.pool.clone(),
            journal: system.journal(&UNITS, LINES).unwrap_or_default(),
            secrets: record.token.iter().cloned().chain(bootstrap_token(root)).collect(),
        })
    }

    /// Prepares the report of a first boot by Ignition.
    pub(crate) fn of_first_boot(
        path: &Path,
        server: &str,
        pool: Option<&str>,
        ca: Option<&Path>,
        token: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let root = Root::open(path)?;
        let text = |file: Option<&Path>| -> anyhow::Result<Option<String>> {
            let Some(file) = file else { return Ok(None) };
            let bytes = input::file(file, MAX_FILE)?;
            Ok(Some(String::from_utf8(bytes).context("the file is no text")?.trim().to_owned()))
        };
        let record = JoinRecord {
            server: server.to_owned(),
            pool: pool.map_or_else(|| pool_of_config(&root), str::to_owned),
            ca: text(ca)?,
            ca_sha256: None,
            token: text(token)?,
            node: identity::host_name(&root)?,
            is_renamed: false,
            join_id: String::new(),
            stage: JoinStage::Rebooting,
            rebooted_from: String::new(),
            reboots: 0,
        };
        Self::of_join(&root, &SystemdSystem::open(path)?, &record)
    }

    /// Sends the report.
    pub(crate) fn send(&self, step: &str, error: &str, runtime: &Runtime) -> anyhow::Result<()> {
        let report = FirstBootReport {
            pool: self.pool.clone(),
            node: self.machine.node.clone(),
            machine_id: self.machine.machine_id.clone(),
            step: step.to_owned(),
            error: error.to_owned(),
            journal: self.journal.clone(),
        };
        let secrets: Vec<&str> = self.secrets.iter().map(String::as_str).collect();
        let sent = self.server.report(&self.machine, report.to_json(&secrets));
        Ok(runtime.block_on(sent)?)
    }
}

/// Returns the text of an error with its causes.
pub(super) fn text(error: &anyhow::Error) -> String {
    match error.chain().find_map(|cause| cause.downcast_ref::<FaultsError>()) {
        Some(FaultsError(faults)) => {
            let faults = faults.iter().map(|fault| fault.message.clone());
            format!("the config has errors: {}", faults.collect::<Vec<_>>().join("; "))
        }
        None => chain(error.as_ref()),
    }
}

/// Returns the pool of the config that the first boot completes, from its name.
fn pool_of_config(root: &Root) -> String {
    let bytes = root.read(disk::ENCAPSULATED).ok().flatten().unwrap_or_default();
    let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let name = value.pointer("/metadata/name").and_then(serde_json::Value::as_str);
    let pool = name.and_then(|name| name.strip_prefix("rendered-")?.rsplit_once('-'));
    pool.map_or_else(String::new, |(pool, _)| pool.to_owned())
}

/// Returns the token in the kubelet's credentials.
fn bootstrap_token(root: &Root) -> Option<String> {
    let bytes = root.read(served_config::KUBECONFIG).ok()??;
    let text = String::from_utf8_lossy(&bytes);
    let value = text.lines().find_map(|line| line.trim().strip_prefix("token:"))?;
    Some(value.trim().trim_matches(['"', '\'']).to_owned())
}
