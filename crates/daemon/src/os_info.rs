//! Reports the operating system of the machine once when the daemon starts, in the log and in
//! metrics.

use std::sync::Arc;

use mco_api::NodeName;
use mco_cluster::report::chain;
use mco_host::{
    Host, System, SystemError,
    os::{self, OsRelease},
};
use serde::Deserialize;
use serde_json::Value;
use tracing::{info, warn};

use crate::{metrics::Metrics, pinned::RunCommand, shared::SharedHost};

const OSTREE: &str = "/usr/bin/rpm-ostree";

/// Facts about the operating system of a machine.
struct OsInfo {
    os: OsRelease,
    image: Option<String>,
    has_rpm_ostree: bool,
}

/// Logs the operating system and sets its metrics.
pub(crate) async fn report<S: System + 'static>(
    host: &SharedHost<S>,
    node: &NodeName,
    metrics: &Metrics,
    commands: Option<&RunCommand>,
) {
    let found = match host.work(read_os_info).await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => return warn!("checking operating system: {}", chain(&error)),
        Err(error) => return warn!("checking operating system: {}", chain(&error)),
    };
    let (label, version) = (found.os.label(), found.os.version());
    metrics.runs(if label.is_empty() { "unsupported" } else { &label }, version);
    if let Some(image) = &found.image {
        info!("Booted osImageURL: {image} ({version})");
    }
    let packages = match commands.filter(|_| found.has_rpm_ostree).map(Arc::clone) {
        None => Ok(0),
        Some(run) => {
            let asked = move || run(&[OSTREE, "status", "--json", "--booted"]);
            let asked = tokio::task::spawn_blocking(asked).await;
            asked
                .unwrap_or_else(|error| Err(join_error(&error)))
                .map(|text| count_unsupported_packages(&text))
        }
    };
    match packages {
        Ok(count) => metrics.unsupported_packages(node.as_str(), count),
        Err(error) => warn!(error = chain(&error), "Failed to count locally added packages"),
    }
}

fn join_error(error: &tokio::task::JoinError) -> SystemError {
    SystemError::Command { command: OSTREE.to_owned(), fault: error.to_string() }
}

fn read_os_info<S: System>(host: &mut Host<S>) -> Result<OsInfo, SystemError> {
    Ok(OsInfo {
        os: OsRelease::read(&host.root)?.unwrap_or_default(),
        image: host.system.facts()?.booted_image.filter(|image| !image.is_empty()),
        has_rpm_ostree: host.root.exists("/run/ostree-booted")? && host.root.exists(OSTREE)?,
    })
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    deployments: Vec<serde_json::Map<String, Value>>,
}

/// Returns the number of packages of the booted deployment that were added, replaced or removed by
/// hand.
///
/// Compat: which lists count is the reference's (`pkg/daemon/metrics.go`); packages of extensions
/// do not count.
fn count_unsupported_packages(status: &str) -> usize {
    const LISTS: [&str; 5] = [
        "requested-packages",
        "requested-local-packages",
        "requested-local-fileoverride-packages",
        "base-removals",
        "base-local-replacements",
    ];
    let status: Status = serde_json::from_str(status).unwrap_or(Status { deployments: Vec::new() });
    let is_booted = |it: &&serde_json::Map<String, Value>| {
        it.get("booted").and_then(Value::as_bool).unwrap_or_default()
    };
    let Some(booted) = status.deployments.iter().find(is_booted) else { return 0 };
    let lists = LISTS.iter().filter_map(|list| booted.get(*list)?.as_array());
    let is_foreign = |package: &&Value| !package.as_str().is_some_and(os::is_extension);
    lists.flatten().filter(is_foreign).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: C126
    #[test]
    fn packages_added_by_hand_count_and_packages_of_extensions_do_not() {
        let status = r#"{"deployments": [
            {"booted": false, "requested-packages": ["vim"]},
            {"booted": true, "requested-packages": ["usbguard", "strace"],
             "requested-local-packages": ["mine-1-1.x86_64"],
             "requested-local-fileoverride-packages": ["over-1-1.x86_64"],
             "base-removals": [["vim-minimal-9-1.x86_64", "vim-minimal", 0, "9", "1", "x86_64"]],
             "base-local-replacements": [[{"name": "kernel"}, "x"]]}]}"#;
        assert_eq!(count_unsupported_packages(status), 5);
        for nothing in ["", "{}", r#"{"deployments": [{"booted": true}]}"#] {
            assert_eq!(count_unsupported_packages(nothing), 0, "{nothing}");
        }
    }
}
