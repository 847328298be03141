//! The control plane: etcd, kube-apiserver, controller manager and scheduler, in the lab's network.

use std::{
    ffi::OsString,
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

use anyhow::Context as _;

use super::{
    folder::LabFolder,
    namespaces::{KUBE, Namespaces},
    relay,
};
use crate::{
    api::{ApiServer as _, KubeApiServer, Process, Programs, Settings},
    pki::{Authority, Credentials},
};

/// Address of the control plane for machines.
pub(super) const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// Port of the API server. The service `kubernetes` has one of the control plane's addresses, so
/// this is also its port.
const PORT: u16 = 443;

/// The cgroup of the control plane.
pub(super) const GROUP: &str = "control-plane";

/// A running control plane.
#[derive(Debug)]
pub(super) struct ControlPlane {
    // Dropped in this order, so that no process logs errors about a missing server.
    _scheduler: Process,
    _manager: Process,
    _server: KubeApiServer,
    /// The administrator's kubeconfig, valid on this host.
    pub(super) kubeconfig: PathBuf,
}

impl ControlPlane {
    /// Starts the control plane and waits until the API server is ready.
    pub(super) fn start(
        folder: &LabFolder,
        namespaces: &Namespaces,
        programs: &Programs,
        authority: &Authority,
    ) -> anyhow::Result<Self> {
        let dir = folder.path.join("control-plane");
        fs::create_dir_all(&dir).with_context(|| format!("failed to create {}", dir.display()))?;
        let enter = words(namespaces);
        let server =
            KubeApiServer::start(programs, authority, &settings(&dir, &enter, authority)?)?;
        let start = |name: &str, user: &str, flags: &[String]| {
            let url = server.url();
            let pair = authority.user(user, None)?;
            let text = authority.kubeconfig(url, Credentials::Certificate(&pair));
            let config = write(&dir, &format!("{name}.kubeconfig"), &text)?;
            let mut command = namespaces.enter(GROUP);
            command.arg(format!("{KUBE}/{name}")).args(flags).arg("--leader-elect=false");
            command.arg("--bind-address=127.0.0.1");
            for flag in ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"] {
                command.arg(format!("--{flag}={}", config.display()));
            }
            Process::start(name, &mut command, &dir.join(format!("{name}.log")))
        };
        let manager = start(
            "kube-controller-manager",
            "system:kube-controller-manager",
            &manager_flags(&server, &write(&dir, "ca.key", &authority.pair().key)?),
        )?;
        let scheduler = start("kube-scheduler", "system:kube-scheduler", &[])?;
        let near = relay::start(&namespaces.network(), SocketAddr::new(ADDRESS.into(), PORT))?;
        let admin = authority.user("admin", Some("system:masters"))?;
        let admin =
            authority.kubeconfig(&format!("https://{near}"), Credentials::Certificate(&admin));
        let kubeconfig = write(&folder.path, "kubeconfig", &admin)?;
        Ok(Self { _scheduler: scheduler, _manager: manager, _server: server, kubeconfig })
    }

    /// Returns the URL of the API server for machines.
    pub(super) fn url() -> String {
        format!("https://{ADDRESS}:{PORT}")
    }
}

/// Returns the command prefix that starts a program in the lab.
fn words(namespaces: &Namespaces) -> Vec<OsString> {
    let command = namespaces.enter(GROUP);
    let words = command.get_args().map(OsString::from);
    [command.get_program().to_owned()].into_iter().chain(words).collect()
}

fn settings(dir: &Path, enter: &[OsString], authority: &Authority) -> anyhow::Result<Settings> {
    let kubelet = authority.user("kube-apiserver", Some("system:masters"))?;
    let certificate = write(dir, "kubelet-client.crt", &kubelet.certificate)?;
    let key = write(dir, "kubelet-client.key", &kubelet.key)?;
    Ok(Settings {
        dir: dir.to_owned(),
        address: ADDRESS.into(),
        port: Some(PORT),
        bind: Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        names: Vec::new(),
        flags: vec![
            format!("--kubelet-client-certificate={}", certificate.display()),
            format!("--kubelet-client-key={}", key.display()),
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
        ],
        enter: enter.to_vec(),
        has_audit_log: false,
    })
}

fn manager_flags(server: &KubeApiServer, ca_key: &Path) -> Vec<String> {
    let file = |name: &str| server.file(name).display().to_string();
    vec![
        format!("--service-account-private-key-file={}", file("sa.key")),
        format!("--root-ca-file={}", file("ca.crt")),
        format!("--cluster-signing-cert-file={}", file("ca.crt")),
        format!("--cluster-signing-key-file={}", ca_key.display()),
        "--use-service-account-credentials=true".to_owned(),
        // A lost machine is detected within a minute. On a busy host a machine may get no CPU for
        // ten seconds; that must not count as lost.
        "--node-monitor-period=1s".to_owned(),
        "--node-monitor-grace-period=30s".to_owned(),
    ]
}

fn write(dir: &Path, name: &str, text: &str) -> anyhow::Result<PathBuf> {
    let path = dir.join(name);
    fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))?;
    Ok(path)
}
