//! The kubelet of a machine: its unit, its credentials and its health endpoint, which depend on the
//! distribution of Kubernetes.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use crate::{
    root::{Root, RootError},
    system::CheckResult,
};

/// Units that run a kubelet: that of OpenShift and kubeadm, K3s, RKE2, k0s and `MicroK8s`.
pub(crate) const UNITS: [&str; 8] = [
    "kubelet.service",
    "k3s.service",
    "k3s-agent.service",
    "rke2-server.service",
    "rke2-agent.service",
    "k0scontroller.service",
    "k0sworker.service",
    "snap.microk8s.daemon-kubelite.service",
];

/// Credentials of the kubelet: of OpenShift, kubeadm, K3s, RKE2, k0s and `MicroK8s`.
const CREDENTIALS: [&str; 6] = [
    "/etc/kubernetes/kubeconfig",
    "/etc/kubernetes/kubelet.conf",
    "/var/lib/rancher/k3s/agent/kubelet.kubeconfig",
    "/var/lib/rancher/rke2/agent/kubelet.kubeconfig",
    "/var/lib/k0s/kubelet.conf",
    "/var/snap/microk8s/current/credentials/kubelet.config",
];

/// Returns the paths of the kubelet's credentials that the machine has.
pub fn credentials(root: &Root) -> Result<Vec<&'static str>, RootError> {
    let mut found = Vec::new();
    for path in CREDENTIALS {
        if root.exists(path)? {
            found.push(path);
        }
    }
    Ok(found)
}

/// Returns the files of the kubelet's credentials, to which the known paths may be links.
pub fn credential_files(root: &Root) -> Result<Vec<String>, RootError> {
    let known = credentials(root)?.into_iter();
    known.map(|path| Ok(root.destination(path)?.unwrap_or_else(|| path.to_owned()))).collect()
}

/// Default address of the health endpoint.
pub(crate) const HEALTH: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 10248);

/// Timeout; a kubelet on the same machine responds at once or not at all.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Longest response that is read.
const MAX_RESPONSE: u64 = 4096;

/// Checks once. Only status 200 with the body `ok` passes.
pub(crate) fn check(address: SocketAddr) -> CheckResult {
    match get(address) {
        Ok(text) if text.contains(" 200 ") && text.trim_end().ends_with("ok") => {
            CheckResult::Passed
        }
        Ok(text) => {
            let first = text.lines().next().unwrap_or_default();
            CheckResult::Failed(format!("kubelet is unhealthy: {first}"))
        }
        Err(error) => CheckResult::Failed(format!("kubelet does not respond: {error}")),
    }
}

fn get(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.write_all(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut bytes = Vec::new();
    stream.take(MAX_RESPONSE).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    // covers: C77
    #[test]
    fn credentials_are_found_on_every_distribution() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        assert!(credentials(&root).unwrap().is_empty(), "a machine that has not joined");
        for path in CREDENTIALS.iter().skip(1) {
            root.write(path, b"", 0o600).unwrap();
            assert_eq!(credentials(&root).unwrap(), [*path]);
            root.remove(path).unwrap();
        }
        // MicroK8s has a link to the current revision.
        root.write("/var/snap/microk8s/7/credentials/kubelet.config", b"", 0o600).unwrap();
        root.link("7", "/var/snap/microk8s/current").unwrap_err();
        root.remove_directories("/var/snap/microk8s/current").unwrap();
        root.link("7", "/var/snap/microk8s/current").unwrap();
        assert_eq!(credentials(&root).unwrap(), [CREDENTIALS[5]]);
    }

    #[test]
    fn only_ok_passes() {
        let cases = [
            ("HTTP/1.0 200 OK\r\n\r\nok", true),
            ("HTTP/1.0 500 Internal Server Error\r\n\r\nok", false),
            ("HTTP/1.0 200 OK\r\n\r\nnot yet", false),
        ];
        for (answer, want) in cases {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let server = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 64];
                let _ = stream.read(&mut request).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
            });
            assert_eq!(check(address) == CheckResult::Passed, want, "{answer}");
            server.join().unwrap();
            assert!(matches!(check(address), CheckResult::Failed(_)), "the listener is closed");
        }
    }
}
