//! Makes running services use the config that the disk has.

use mco_host::System;
use tracing::info;

use super::ExecuteError;

/// Makes systemd read its units again.
pub(super) fn reload_systemd<S: System>(system: &mut S, config: &str) -> Result<(), ExecuteError> {
    log_action("DaemonReload", config);
    let service = "daemon-reload".to_owned();
    system.reload_systemd().map_err(|source| ExecuteError::Reload { service, source })
}

/// Reloads a service.
pub(super) fn reload<S: System>(
    system: &mut S,
    service: &str,
    config: &str,
) -> Result<(), ExecuteError> {
    log_action("Reload", config);
    if skips_missing_crio(system, service)? {
        return Ok(());
    }
    let failed = |source| ExecuteError::Reload { service: service.to_owned(), source };
    system.reload(service).map_err(failed)?;
    info!("{service} service reloaded successfully!");
    Ok(())
}

/// Restarts a service.
pub(super) fn restart<S: System>(
    system: &mut S,
    service: &str,
    config: &str,
) -> Result<(), ExecuteError> {
    log_action("Restart", config);
    if skips_missing_crio(system, service)? {
        return Ok(());
    }
    let failed = |source| ExecuteError::Restart { service: service.to_owned(), source };
    system.restart(service).map_err(failed)?;
    info!("{service} service restarted successfully!");
    Ok(())
}

/// Returns true if `service` is CRI-O and the machine has another container engine: policies name
/// CRI-O by default, and no engine on such a machine reads its files.
fn skips_missing_crio<S: System>(system: &S, service: &str) -> Result<bool, ExecuteError> {
    let is_engine = matches!(service, "crio" | "crio.service");
    let is_missing = is_engine && !system.has_unit("crio.service")?;
    if is_missing {
        info!("CRI-O is not installed; skipping its reload");
    }
    Ok(is_missing)
}

fn log_action(action: &str, config: &str) {
    info!("Performing post config change action: {action} for config {config}");
}
