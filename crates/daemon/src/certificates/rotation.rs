//! Replaces the CAs of the API server in a kubeconfig.
//!
//! Pure. A kubeconfig is written by others, in YAML or JSON; only the value of the one member is
//! replaced, and everything else stays as it is.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use tracing::warn;
use x509_parser::pem::Pem;

const MEMBER: &str = "certificate-authority-data";

/// New CAs of these signers need no restart at once: they are for addresses that kubelets do not
/// use.
const DEFERRABLE_SIGNERS: [&str; 3] = [
    "kube-apiserver-localhost-signer",
    "openshift-kube-apiserver-operator_localhost-recovery-serving-signer",
    "kube-apiserver-lb-signer",
];

/// The restart of the kubelet that a rotation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restart {
    /// No restart.
    No,
    /// A restart that can be deferred.
    Later,
    /// A restart at once.
    Now,
}

/// The result of a rotation.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rotation {
    pub(super) kubeconfig: String,
    pub(super) restart: Restart,
}

/// Returns the kubeconfig with the CAs of the bundle; none if it has all of them already.
pub(super) fn rotate(kubeconfig: &str, bundle: &[u8]) -> Option<Rotation> {
    let (start, end) = value(kubeconfig)?;
    let known = STANDARD.decode(kubeconfig.get(start..end)?).unwrap_or_default();
    let known: Vec<Certificate> = certificates(&known);
    let offered = certificates(bundle);
    let is_new = |found: &&Certificate| !known.iter().any(|it| it.bytes == found.bytes);
    let new: Vec<&Certificate> = offered.iter().filter(is_new).collect();
    if new.is_empty() {
        return None;
    }
    let waits =
        |it: &&&Certificate| DEFERRABLE_SIGNERS.iter().any(|signer| it.name.contains(signer));
    let restart = if new.iter().all(|it| waits(&it)) { Restart::Later } else { Restart::Now };
    let all: String = offered.iter().map(Certificate::pem).collect();
    let (head, tail) = (kubeconfig.get(..start)?, kubeconfig.get(end..)?);
    Some(Rotation { kubeconfig: format!("{head}{}{tail}", STANDARD.encode(all)), restart })
}

/// Returns the range of the member's value.
fn value(kubeconfig: &str) -> Option<(usize, usize)> {
    let after = kubeconfig.find(MEMBER)? + MEMBER.len();
    let rest = kubeconfig.get(after..)?;
    let lead = rest.find(|letter: char| !matches!(letter, '"' | '\'' | ':' | ' ' | '\t'))?;
    let body = rest.get(lead..)?;
    let is_base64 = |letter: char| letter.is_ascii_alphanumeric() || "+/=".contains(letter);
    let length = body.find(|letter| !is_base64(letter)).unwrap_or(body.len());
    Some((after + lead, after + lead + length))
}

struct Certificate {
    bytes: Vec<u8>,
    name: String,
}

impl Certificate {
    fn pem(&self) -> String {
        let text = STANDARD.encode(&self.bytes);
        let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
        for line in text.as_bytes().chunks(64) {
            pem.extend(line.iter().copied().map(char::from).chain(['\n']));
        }
        pem + "-----END CERTIFICATE-----\n"
    }
}

/// Parses the certificates of a bundle; unreadable ones are skipped.
fn certificates(bundle: &[u8]) -> Vec<Certificate> {
    let mut found = Vec::new();
    for block in Pem::iter_from_buffer(bundle) {
        let read = block.ok().and_then(|block| {
            let name = block.parse_x509().ok().map(|it| it.subject().to_string())?;
            Some(Certificate { bytes: block.contents, name })
        });
        if let Some(certificate) = read {
            found.push(certificate);
        } else {
            warn!("Malformed Cert, not syncing");
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::Arc};

    use mco_host::{
        CallLog, Host, Root, SimulatedSystem,
        fault::{Fault, Faults},
    };
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::{
        super::{KUBECONFIG, KUBELET_KUBECONFIG, install_cas},
        *,
    };

    fn authority(name: &str) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    fn kubeconfig(authorities: &str) -> String {
        format!(
            "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {}\n    \
             server: https://a\n  name: local\n",
            STANDARD.encode(authorities)
        )
    }

    // covers: C103
    #[test]
    fn new_authorities_are_installed_and_three_signers_can_wait() {
        let old = authority("old");
        let before = kubeconfig(&old);
        assert_eq!(rotate(&before, old.as_bytes()), None, "nothing new");
        assert_eq!(rotate(&before, b"no certificate"), None);
        let signers = [
            ("new", Restart::Now),
            ("kube-apiserver-localhost-signer", Restart::Later),
            ("kube-apiserver-lb-signer", Restart::Later),
        ];
        for (name, restart) in signers {
            let bundle = format!("{old}{}", authority(name));
            let broken =
                format!("{bundle}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
            let after = rotate(&before, broken.as_bytes()).unwrap();
            assert_eq!(after.restart, restart, "{name}");
            let (start, end) = value(&after.kubeconfig).unwrap();
            let held = STANDARD.decode(&after.kubeconfig[start..end]).unwrap();
            assert_eq!(certificates(&held).len(), 2, "{name}: the malformed one is skipped");
            assert!(after.kubeconfig.ends_with("    server: https://a\n  name: local\n"));
        }
    }

    /// Returns a machine whose kubeconfigs trust one CA.
    fn machine(folder: &Path, authority: &str) -> Host<SimulatedSystem> {
        let root = Root::open(folder).unwrap();
        SimulatedSystem::write_base_files(&root).unwrap();
        for path in [KUBECONFIG, KUBELET_KUBECONFIG] {
            root.write(path, kubeconfig(authority).as_bytes(), 0o600).unwrap();
        }
        let system = SimulatedSystem::open(&root).unwrap();
        Host { root, system }
    }

    fn restarts(log: &CallLog) -> usize {
        log.calls().iter().filter(|call| *call == "restart kubelet.service").count()
    }

    // covers: C103
    #[test]
    fn a_restart_that_fails_is_repeated() {
        let old = authority("old");
        let bundle = format!("{old}{}", authority("new"));
        let folder = tempfile::tempdir().unwrap();
        let mut host = machine(folder.path(), &old);
        let log = host.system.call_log();
        log.fail("restart kubelet.service");
        assert!(install_cas(&mut host, bundle.as_bytes()).is_err());
        log.succeed("restart kubelet.service");
        for _ in 0..2 {
            install_cas(&mut host, bundle.as_bytes()).unwrap();
            assert_eq!(restarts(&log), 2, "once more, and then nothing is new");
        }
    }

    // covers: C103
    #[test]
    fn a_crash_at_any_change_loses_no_restart() {
        let old = authority("old");
        let bundle = format!("{old}{}", authority("new"));
        for number in 1.. {
            let folder = tempfile::tempdir().unwrap();
            let Host { root, system } = machine(folder.path(), &old);
            let faults = Arc::new(Faults::at(number, Fault::Crash));
            let mut host = Host { root: root.with_faults(Arc::clone(&faults)), system };
            let before = host.system.call_log();
            drop(install_cas(&mut host, bundle.as_bytes()));
            let Some(failed) = faults.failed() else { return };
            let root = Root::open(folder.path()).unwrap();
            let system = SimulatedSystem::open(&root).unwrap();
            let mut host = Host { root, system };
            install_cas(&mut host, bundle.as_bytes()).unwrap();
            assert!(restarts(&before) + restarts(&host.system.call_log()) > 0, "{failed}");
            for path in [KUBECONFIG, KUBELET_KUBECONFIG] {
                let text = String::from_utf8(host.root.read(path).unwrap().unwrap()).unwrap();
                assert_eq!(rotate(&text, bundle.as_bytes()), None, "{path}: {failed}");
            }
        }
    }

    #[test]
    fn the_member_is_found_in_json_too_and_may_be_missing() {
        let text =
            r#"{"clusters":[{"cluster":{"certificate-authority-data":"QUJD","server":"x"}}]}"#;
        let (start, end) = value(text).unwrap();
        assert_eq!(&text[start..end], "QUJD");
        assert_eq!(value("clusters: []"), None);
        assert_eq!(rotate("clusters: []", b""), None);
    }
}
