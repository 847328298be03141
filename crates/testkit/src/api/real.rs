//! The real kube-apiserver with its own etcd.
//!
//! No other part of Kubernetes runs: no controller manager, no scheduler, no kubelet. Unless a test
//! does it, dependents of deleted objects are not collected, service accounts are not created, and
//! the status of PodDisruptionBudgets is not computed.

#![expect(clippy::disallowed_methods, reason = "writes the files that the programs are given")]

mod backup;

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    io::{self, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail};

pub use self::backup::Snapshot;
use super::{ApiServer, AuditedRequest, Process, Programs, audit, command};
use crate::{
    PATIENCE,
    pki::{Authority, Credentials, SigningKey},
};

/// The address range of services, and the address of the service `kubernetes`, which pods use.
const SERVICES: &str = "10.96.0.0/16";
const SERVICE: &str = "10.96.0.1";

/// Admission plugins besides the default ones. OpenShift enforces the permissions of owner
/// references.
const ADMISSION: &str = "NodeRestriction,OwnerReferencesPermissionEnforcement";

/// Files of the audit log and its policy, in the server's directory.
const AUDIT_LOG: &str = "audit.log";
const AUDIT_POLICY: &str = "audit-policy.yaml";

/// Settings of the API server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Directory for data, keys and logs, created if it is missing.
    pub dir: PathBuf,
    /// Address that clients use.
    pub address: IpAddr,
    /// Port that clients use. A free port if left out.
    pub port: Option<u16>,
    /// Address to listen on. The clients' address if left out.
    pub bind: Option<IpAddr>,
    /// Further host names and addresses of the server certificate.
    pub names: Vec<String>,
    /// Further flags. If a flag is given twice, the last one counts.
    pub flags: Vec<String>,
    /// Command prefix of each program, such as `nsenter --net=/run/netns/a`.
    pub enter: Vec<OsString>,
    /// Whether requests are recorded for [`KubeApiServer::requests`].
    pub has_audit_log: bool,
}

impl Settings {
    /// Returns settings for a free port of the loopback address.
    #[must_use]
    pub fn loopback(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            address: Ipv4Addr::LOCALHOST.into(),
            port: None,
            bind: None,
            names: Vec::new(),
            flags: Vec::new(),
            enter: Vec::new(),
            has_audit_log: false,
        }
    }
}

/// A running kube-apiserver with its etcd.
#[derive(Debug)]
pub struct KubeApiServer {
    // Dropped in this order: the server before its database.
    server: Process,
    etcd: Process,
    url: String,
    dir: PathBuf,
    kubeconfig: PathBuf,
    kubectl: PathBuf,
    programs: Programs,
    settings: Settings,
    /// Port of the API server.
    port: u16,
    /// Ports of etcd for clients and peers.
    storage: [u16; 2],
}

/// Maximum number of starts when another process takes a chosen port first.
const MAX_STARTS: usize = 5;

/// The error of both programs when a port is in use.
const PORT_IN_USE: &str = "address already in use";

impl KubeApiServer {
    /// Starts a server below `folder`, on the loopback address and with an authority of its own.
    /// Returns `None`, with a printed reason, if its programs are not installed.
    pub fn alone(folder: &Path) -> anyhow::Result<Option<Self>> {
        match Programs::find() {
            Ok(programs) => {
                let settings = Settings::loopback(&folder.join("api"));
                Self::start(&programs, &Authority::new("test")?, &settings).map(Some)
            }
            Err(absent) => {
                writeln!(io::stderr(), "skipped: {absent}")?;
                Ok(None)
            }
        }
    }

    /// Starts etcd and kube-apiserver, and waits until the API server is ready.
    pub fn start(
        programs: &Programs,
        authority: &Authority,
        settings: &Settings,
    ) -> anyhow::Result<Self> {
        let dir = &settings.dir;
        fs::create_dir_all(dir).with_context(|| format!("failed to create {}", dir.display()))?;
        let logs = ["etcd.log", "kube-apiserver.log"].map(|name| dir.join(name));
        for _ in 1..MAX_STARTS {
            let started = Self::try_to_start(programs, authority, settings);
            let is_taken =
                |log: &PathBuf| fs::read_to_string(log).is_ok_and(|it| it.contains(PORT_IN_USE));
            if started.is_ok() || !logs.iter().any(is_taken) {
                return started;
            }
            for left in logs.iter().chain([&dir.join("etcd")]) {
                // Fails if there is nothing to remove.
                drop(fs::remove_file(left).or_else(|_| fs::remove_dir_all(left)));
            }
        }
        Self::try_to_start(programs, authority, settings)
    }

    fn try_to_start(
        programs: &Programs,
        authority: &Authority,
        settings: &Settings,
    ) -> anyhow::Result<Self> {
        let dir = &settings.dir;
        let port = settings.port.map_or_else(|| free(settings.address), Ok)?;
        let url = format!("https://{}", SocketAddr::new(settings.address, port));
        let keys = keys(authority, settings, &url)?;
        // The ports are probed in the host's network, even if the programs run in another one.
        let storage = [free(Ipv4Addr::LOCALHOST.into())?, free(Ipv4Addr::LOCALHOST.into())?];
        let (server, etcd) = launch(programs, settings, port, storage)?;
        let (kubectl, programs) = (programs.kubernetes("kubectl"), programs.clone());
        let (dir, settings) = (dir.clone(), settings.clone());
        let kubeconfig = keys;
        Ok(Self { server, etcd, url, dir, kubeconfig, kubectl, programs, settings, port, storage })
    }

    /// Returns the `kubectl` of the same version.
    #[must_use]
    pub fn kubectl(&self) -> &Path {
        &self.kubectl
    }

    /// Returns the path of a file in the server's directory: `ca.crt`, `sa.key`, `sa.pub`,
    /// `server.crt`, `server.key`.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Returns the different requests since the start, if the settings ask for a record.
    pub fn requests(&self) -> anyhow::Result<BTreeSet<AuditedRequest>> {
        let path = self.file(AUDIT_LOG);
        let log = fs::read_to_string(&path);
        let log = log.with_context(|| format!("failed to read {}", path.display()))?;
        Ok(audit::requests(&log))
    }

    /// Returns the processes: the API server and etcd.
    pub fn processes(&mut self) -> [&mut Process; 2] {
        [&mut self.server, &mut self.etcd]
    }
}

impl ApiServer for KubeApiServer {
    fn url(&self) -> &str {
        &self.url
    }

    fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }
}

/// Starts etcd and the API server with the files in the settings' directory, and waits until the API
/// server is ready.
fn launch(
    programs: &Programs,
    settings: &Settings,
    port: u16,
    storage: [u16; 2],
) -> anyhow::Result<(Process, Process)> {
    let mut etcd = etcd(programs, settings, storage)?;
    let mut start = entered(settings, &programs.kubernetes("kube-apiserver"));
    start.args(flags(settings, port, storage)).args(&settings.flags);
    let mut server =
        Process::start("kube-apiserver", &mut start, &settings.dir.join("kube-apiserver.log"))?;
    let kubectl = programs.kubernetes("kubectl");
    server.wait_ready(PATIENCE, || {
        // The API server never becomes ready without its database.
        if etcd.try_wait().is_ok_and(|ended| ended.is_some()) {
            return true;
        }
        let mut ask = entered(settings, &kubectl);
        ask.arg("--kubeconfig")
            .arg(settings.dir.join("kubeconfig"))
            .args(["get", "--raw", "/readyz"]);
        let answer = ask.stderr(Stdio::null()).stdin(Stdio::null()).output();
        answer.is_ok_and(|answer| answer.stdout == b"ok")
    })?;
    if let Some(status) = etcd.try_wait()? {
        bail!("etcd ended during startup ({status}):\n{}", etcd.log());
    }
    Ok((server, etcd))
}

/// Returns a command with the prefix of the settings. The program dies with the test.
fn entered(settings: &Settings, program: &Path) -> Command {
    let mut words = settings.enter.iter().map(OsString::as_os_str).chain([program.as_os_str()]);
    let first = words.next().unwrap_or(program.as_os_str());
    let mut command = command(first);
    command.args(words);
    command
}

/// Returns a free port. Another process may take it before it is used.
fn free(address: IpAddr) -> anyhow::Result<u16> {
    let listener = TcpListener::bind((address, 0));
    let port = listener.and_then(|listener| listener.local_addr()).map(|found| found.port());
    port.with_context(|| format!("failed to find a free port of {address}"))
}

/// Writes all keys and certificates, and the kubeconfig. Returns the path of the kubeconfig.
fn keys(authority: &Authority, settings: &Settings, url: &str) -> anyhow::Result<PathBuf> {
    let write = |name: &str, text: &str| {
        let path = settings.dir.join(name);
        fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))?;
        anyhow::Ok(path)
    };
    let fixed =
        ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", SERVICE];
    let mut names = fixed.map(str::to_owned).to_vec();
    names.push("kubernetes.default.svc.cluster.local".to_owned());
    names.extend(
        [Ipv4Addr::LOCALHOST.into(), settings.address].map(|found: IpAddr| found.to_string()),
    );
    names.extend(settings.names.iter().cloned());
    names.sort();
    names.dedup();
    let server = authority.server("kube-apiserver", &names)?;
    let accounts = SigningKey::new()?;
    write("ca.crt", &authority.pair().certificate)?;
    write("server.crt", &server.certificate)?;
    write("server.key", &server.key)?;
    write("sa.key", &accounts.private)?;
    write("sa.pub", &accounts.public)?;
    write(AUDIT_POLICY, audit::POLICY)?;
    let admin = authority.user("admin", Some("system:masters"))?;
    write("kubeconfig", &authority.kubeconfig(url, Credentials::Certificate(&admin)))
}

fn etcd(
    programs: &Programs,
    settings: &Settings,
    [client, peer]: [u16; 2],
) -> anyhow::Result<Process> {
    let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
    let mut start = entered(settings, programs.etcd());
    start.arg("--data-dir").arg(settings.dir.join("etcd"));
    start.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    start.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    start.args(["--initial-cluster", &format!("default={peer}"), "--unsafe-no-fsync"]);
    Process::start("etcd", &mut start, &settings.dir.join("etcd.log"))
}

fn flags(settings: &Settings, port: u16, [storage, _]: [u16; 2]) -> Vec<String> {
    let file = |name: &str| settings.dir.join(name).display().to_string();
    let flags = [
        ("etcd-servers", format!("http://127.0.0.1:{storage}")),
        ("bind-address", settings.bind.unwrap_or(settings.address).to_string()),
        ("advertise-address", settings.address.to_string()),
        ("secure-port", port.to_string()),
        ("client-ca-file", file("ca.crt")),
        ("tls-cert-file", file("server.crt")),
        ("tls-private-key-file", file("server.key")),
        ("service-account-issuer", "https://kubernetes.default.svc".to_owned()),
        ("service-account-key-file", file("sa.pub")),
        ("service-account-signing-key-file", file("sa.key")),
        ("service-cluster-ip-range", SERVICES.to_owned()),
        ("authorization-mode", "Node,RBAC".to_owned()),
        ("enable-admission-plugins", ADMISSION.to_owned()),
        ("allow-privileged", true.to_string()),
        ("enable-aggregator-routing", true.to_string()),
        ("profiling", false.to_string()),
    ];
    let audit = [("audit-policy-file", file(AUDIT_POLICY)), ("audit-log-path", file(AUDIT_LOG))];
    let audit = audit.into_iter().filter(|_| settings.has_audit_log);
    flags.into_iter().chain(audit).map(|(name, value)| format!("--{name}={value}")).collect()
}
