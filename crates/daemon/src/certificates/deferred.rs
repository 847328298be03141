//! A restart of the kubelet that could wait, and is made up for once the API server is not trusted any
//! longer: the kubelet then asks for its credentials anew, by the kubeconfig that has the new CAs.
//!
//! Compat: when and how is the reference's (`pkg/daemon/daemon.go`). Better: it is on record, so that
//! neither a reboot nor a crash forgets it, and a kubelet that could not ask anew keeps what it has.

use std::time::Duration;

use mco_host::{Host, Root, RootError, System};
use tracing::{info, warn};

use super::{CertificateError, KUBELET, KUBELET_KUBECONFIG};
use crate::{execute::KUBECONFIG, shared::SharedHost, watch::Watch};

/// There while a restart is put off.
const RECORD: &str = "/etc/machine-config-daemon/mco-kubelet-restart-deferred";

/// How long a kubelet may take to get its credentials.
const LIMIT: Duration = Duration::from_mins(2);

/// What making up for a restart came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MadeUp {
    /// The kubelet was restarted.
    Yes,
    /// None was put off.
    NotDue,
}

/// Whether an API server was not answered because nobody here trusts its certificate.
pub(super) fn is_distrust(error: &str) -> bool {
    let text = error.to_lowercase();
    text.contains("invalid peer certificate") || text.contains("x509")
}

/// Puts on record that a restart is put off.
pub(super) fn note(root: &Root) -> Result<(), RootError> {
    root.write(RECORD, b"", 0o600)
}

/// Puts on record that none is.
pub(super) fn forget(root: &Root) -> Result<(), RootError> {
    root.remove(RECORD).map(drop)
}

/// Restarts the kubelet where that was put off, and has it ask for its credentials anew.
pub(super) fn make_up<S: System>(
    host: &mut Host<S>,
    why: &str,
) -> Result<MadeUp, CertificateError> {
    if !host.root.exists(RECORD)? {
        return Ok(MadeUp::NotDue);
    }
    info!("Re-bootstrapping kubelet in response to deferred kubeconfig changes and {why}");
    let first = host.root.read(KUBECONFIG)?.unwrap_or_default();
    if first.iter().all(u8::is_ascii_whitespace) {
        warn!("There is no {KUBECONFIG} to ask for new credentials by; the kubelet keeps its own");
    } else {
        host.root.remove(KUBELET_KUBECONFIG)?;
    }
    host.system.restart(KUBELET).map_err(CertificateError::Restart)?;
    // Last: until then whoever comes after us must do it again.
    forget(&host.root)?;
    Ok(MadeUp::Yes)
}

/// Waits a while for the kubelet's new credentials.
pub(super) async fn wait_for_kubelet<S: System + 'static>(host: &SharedHost<S>) {
    let waiting = async {
        loop {
            let looked = host.work(|host| {
                // Watched before it is looked at, so that nothing slips between.
                let watch = Watch::new(&host.root, [KUBELET_KUBECONFIG].into_iter());
                (watch, host.root.exists(KUBELET_KUBECONFIG).unwrap_or_default())
            });
            let Ok((Ok(mut watch), is_there)) = looked.await else { return };
            if is_there || watch.changed().await.is_err() {
                return;
            }
        }
    };
    if tokio::time::timeout(LIMIT, waiting).await.is_err() {
        warn!("The kubelet has no new {KUBELET_KUBECONFIG} after {} seconds", LIMIT.as_secs());
    }
}

#[cfg(test)]
mod tests {
    use mco_host::SimulatedSystem;

    use super::*;

    fn machine() -> (tempfile::TempDir, Host<SimulatedSystem>) {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        SimulatedSystem::furnish(&root).unwrap();
        let system = SimulatedSystem::open(&root).unwrap();
        root.write(KUBELET_KUBECONFIG, b"old", 0o600).unwrap();
        (folder, Host { root, system })
    }

    // covers: C103
    #[test]
    fn a_restart_that_was_put_off_is_made_up_for_once() {
        let (_folder, mut host) = machine();
        host.root.write(KUBECONFIG, b"new", 0o600).unwrap();
        assert_eq!(make_up(&mut host, "x509").unwrap(), MadeUp::NotDue);
        assert!(host.root.exists(KUBELET_KUBECONFIG).unwrap());
        note(&host.root).unwrap();
        host.system.journal().fail("restart kubelet.service");
        assert!(make_up(&mut host, "x509").is_err());
        host.system.journal().mend("restart kubelet.service");
        assert_eq!(make_up(&mut host, "x509").unwrap(), MadeUp::Yes, "it was still due");
        assert!(!host.root.exists(KUBELET_KUBECONFIG).unwrap(), "it asks for another");
        assert_eq!(make_up(&mut host, "x509").unwrap(), MadeUp::NotDue);
    }

    #[test]
    fn a_kubelet_that_could_not_ask_anew_keeps_its_credentials() {
        let (_folder, mut host) = machine();
        note(&host.root).unwrap();
        assert_eq!(make_up(&mut host, "x509").unwrap(), MadeUp::Yes);
        assert!(host.root.exists(KUBELET_KUBECONFIG).unwrap());
    }

    #[test]
    fn only_a_certificate_that_nobody_trusts_is_distrust() {
        let distrust = "client error (Connect): invalid peer certificate: UnknownIssuer";
        assert!(is_distrust(distrust));
        assert!(is_distrust("x509: certificate signed by unknown authority"));
        assert!(!is_distrust("connection refused"));
        assert!(!is_distrust("HTTP status 401 Unauthorized"));
    }
}
