//! The settings in containerd's own `config.toml`: log level and default runtime.
//!
//! A drop-in cannot set them: containerd replaces the whole section of a plugin by that of an imported
//! file. So the file of the base config is edited, and everything else in it stays as it is.

use mco_api::container_runtime_config::ContainerRuntimeSettings;
use toml_edit::{DocumentMut, Item, Table, TableLike, value};

use super::crio;
use crate::toml::{TomlFault, read};

/// Section of the CRI plugin by version of the file.
const CRI_PLUGINS: [(i64, &str); 2] =
    [(2, "io.containerd.grpc.v1.cri"), (3, "io.containerd.cri.v1.runtime")];

/// Runtime that containerd starts unless its configuration names another one.
const DEFAULT_RUNTIME: &str = "runc";

/// The shim of runc, which also starts programs with the same command line.
const RUNTIME_TYPE: &str = "io.containerd.runc.v2";

/// Returns the names of the settings that the file has.
pub(super) fn settings_of(settings: &ContainerRuntimeSettings) -> Vec<&'static str> {
    let runtime = crio::default_runtime(settings);
    let all = [
        ("logLevel", !settings.log_level.is_empty()),
        ("defaultRuntime", runtime.is_some_and(|runtime| runtime != DEFAULT_RUNTIME)),
    ];
    all.into_iter().filter(|(_, set)| *set).map(|(name, _)| name).collect()
}

/// Writes the file: `base`, with the settings.
pub(super) fn config(base: &str, settings: &ContainerRuntimeSettings) -> Result<String, TomlFault> {
    let mut document = read::document(base)?;
    if !settings.log_level.is_empty() {
        let debug = table(document.as_table_mut(), &["debug"])?;
        debug.insert("level", value(settings.log_level.as_str()));
    }
    if let Some(runtime) = crio::default_runtime(settings) {
        set_runtime(&mut document, runtime)?;
    }
    Ok(document.to_string())
}

fn set_runtime(document: &mut DocumentMut, runtime: &str) -> Result<(), TomlFault> {
    let version = document.get("version").and_then(Item::as_integer).unwrap_or(1);
    let plugin = CRI_PLUGINS.iter().find(|(known, _)| *known == version);
    let Some((_, plugin)) = plugin else {
        return Err(TomlFault::new(format!("version must be 2 or 3, not {version}")));
    };
    let containerd = table(document.as_table_mut(), &["plugins", plugin, "containerd"])?;
    containerd.insert("default_runtime_name", value(runtime));
    let runtimes = table(containerd, &["runtimes"])?;
    if runtimes.contains_key(runtime) {
        return Ok(());
    }
    // The new runtime uses the same driver of control groups as runc: all must agree with the kubelet.
    let systemd = runtimes
        .get(DEFAULT_RUNTIME)
        .and_then(|runc| runc.get("options")?.get("SystemdCgroup")?.as_bool());
    let added = table(runtimes, &[runtime])?;
    added.insert("runtime_type", value(RUNTIME_TYPE));
    let options = table(added, &["options"])?;
    options.insert("BinaryName", value(runtime));
    if let Some(systemd) = systemd {
        options.insert("SystemdCgroup", value(systemd));
    }
    Ok(())
}

/// Returns the table at a path; adds the tables that are missing.
fn table<'t>(
    within: &'t mut dyn TableLike,
    path: &[&str],
) -> Result<&'t mut dyn TableLike, TomlFault> {
    let Some((name, rest)) = path.split_first() else { return Ok(within) };
    let item = within.entry(name).or_insert_with(|| {
        let mut made = Table::new();
        // Its own header is written only if it has values.
        made.set_implicit(true);
        Item::Table(made)
    });
    let wrong = || TomlFault::new(format!("{name} must be a table"));
    table(item.as_table_like_mut().ok_or_else(wrong)?, rest)
}
