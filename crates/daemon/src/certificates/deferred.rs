//! A deferred restart of the kubelet. It runs once the API server's certificate is not trusted: the
//! kubelet then bootstraps its credentials again with the kubeconfig that has the new CAs.
//!
//! Compat: the conditions and steps are the reference's (`pkg/daemon/daemon.go`). Better: the
//! deferred restart is recorded, so that neither a reboot nor a crash loses it, and a kubelet that
//! has no bootstrap kubeconfig keeps its credentials.

use std::time::Duration;

use mco_apply::execute::KUBECONFIG;
use mco_host::{Host, Root, RootError, System};
use tracing::{info, warn};

use super::{CertificateError, KUBELET, KUBELET_KUBECONFIG, rotation::Restart};
use crate::{shared::SharedHost, watch::Watch};

/// Exists while a restart is deferred, or has not succeeded.
const RECORD: &str = "/etc/machine-config-daemon/mco-kubelet-restart-deferred";

/// Contents of the record of a restart that cannot be deferred.
const AT_ONCE: &[u8] = b"now";

/// Time for the kubelet to obtain its credentials.
const KUBELET_TIMEOUT: Duration = Duration::from_mins(2);

/// The result of running a deferred restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeferredRestart {
    /// The kubelet was restarted.
    Done,
    /// No restart was deferred.
    NotDue,
}

/// Returns true if a request failed because the API server's certificate is not trusted.
pub(super) fn is_untrusted_certificate(error: &str) -> bool {
    let text = error.to_lowercase();
    text.contains("invalid peer certificate") || text.contains("x509")
}

/// Records a restart, which is deferred or about to happen.
pub(super) fn record(root: &Root, restart: Restart) -> Result<(), RootError> {
    let text: &[u8] = if restart == Restart::Now { AT_ONCE } else { b"" };
    root.write(RECORD, text, 0o600)
}

/// Returns true if a restart that cannot be deferred was recorded and did not succeed.
pub(super) fn is_interrupted(root: &Root) -> Result<bool, RootError> {
    Ok(root.read(RECORD)?.as_deref() == Some(AT_ONCE))
}

/// Removes the record of a deferred restart.
pub(super) fn clear(root: &Root) -> Result<(), RootError> {
    root.remove(RECORD).map(drop)
}

/// Restarts the kubelet if a restart is deferred, and makes it bootstrap its credentials again.
pub(super) fn run<S: System>(
    host: &mut Host<S>,
    why: &str,
) -> Result<DeferredRestart, CertificateError> {
    if !host.root.exists(RECORD)? {
        return Ok(DeferredRestart::NotDue);
    }
    info!("Re-bootstrapping kubelet in response to deferred kubeconfig changes and {why}");
    let first = host.root.read(KUBECONFIG)?.unwrap_or_default();
    if first.iter().all(u8::is_ascii_whitespace) {
        warn!("Kept the kubelet's credentials: {KUBECONFIG} is missing or empty");
    } else {
        host.root.remove(KUBELET_KUBECONFIG)?;
    }
    host.system.restart(KUBELET).map_err(CertificateError::Restart)?;
    // Last, so that a crash before it repeats the restart.
    clear(&host.root)?;
    Ok(DeferredRestart::Done)
}

/// Waits until the kubelet has new credentials, or a timeout.
pub(super) async fn wait_for_kubelet<S: System + 'static>(host: &SharedHost<S>) {
    let waiting = async {
        loop {
            let checked = host.work(|host| {
                // Watched before it is checked, so that no change is missed in between.
                let watch = Watch::new(&host.root, [KUBELET_KUBECONFIG].into_iter());
                (watch, host.root.exists(KUBELET_KUBECONFIG).unwrap_or_default())
            });
            let Ok((Ok(mut watch), is_there)) = checked.await else { return };
            if is_there || watch.changed().await.is_err() {
                return;
            }
        }
    };
    if tokio::time::timeout(KUBELET_TIMEOUT, waiting).await.is_err() {
        warn!("Timed out waiting for the kubelet to write {KUBELET_KUBECONFIG}");
    }
}

#[cfg(test)]
mod tests {
    use mco_host::SimulatedSystem;

    use super::*;

    fn machine() -> (tempfile::TempDir, Host<SimulatedSystem>) {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        SimulatedSystem::write_base_files(&root).unwrap();
        let system = SimulatedSystem::open(&root).unwrap();
        root.write(KUBELET_KUBECONFIG, b"old", 0o600).unwrap();
        (folder, Host { root, system })
    }

    // covers: C103
    #[test]
    fn a_deferred_restart_runs_once() {
        let (_folder, mut host) = machine();
        host.root.write(KUBECONFIG, b"new", 0o600).unwrap();
        assert_eq!(run(&mut host, "x509").unwrap(), DeferredRestart::NotDue);
        assert!(host.root.exists(KUBELET_KUBECONFIG).unwrap());
        record(&host.root, Restart::Later).unwrap();
        host.system.call_log().fail("restart kubelet.service");
        assert!(run(&mut host, "x509").is_err());
        host.system.call_log().succeed("restart kubelet.service");
        assert_eq!(run(&mut host, "x509").unwrap(), DeferredRestart::Done, "still deferred");
        assert!(!host.root.exists(KUBELET_KUBECONFIG).unwrap(), "bootstraps again");
        assert_eq!(run(&mut host, "x509").unwrap(), DeferredRestart::NotDue);
    }

    #[test]
    fn a_kubelet_without_a_bootstrap_kubeconfig_keeps_its_credentials() {
        let (_folder, mut host) = machine();
        record(&host.root, Restart::Later).unwrap();
        assert_eq!(run(&mut host, "x509").unwrap(), DeferredRestart::Done);
        assert!(host.root.exists(KUBELET_KUBECONFIG).unwrap());
    }

    #[test]
    fn only_untrusted_certificates_count() {
        let untrusted = "client error (Connect): invalid peer certificate: UnknownIssuer";
        assert!(is_untrusted_certificate(untrusted));
        assert!(is_untrusted_certificate("x509: certificate signed by unknown authority"));
        assert!(!is_untrusted_certificate("connection refused"));
        assert!(!is_untrusted_certificate("HTTP status 401 Unauthorized"));
    }
}
