//! The servers that are compared, each a process of its own.

use std::{
    convert::Infallible,
    env, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Response, header::CONTENT_TYPE};
use http_body_util::Full;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::{Outcome, free_address, process_status, program};

/// Environment variable that makes a process of this program the bare server: its folder and address.
pub(crate) const ROLE: &str = "MCO_BENCH_HYPER";

/// Time in which a server listens.
const START_LIMIT: Duration = Duration::from_mins(1);

/// The certificate of all servers.
pub(crate) struct Pair {
    pub(crate) certificate: CertificateDer<'static>,
    chain: PathBuf,
    key: PathBuf,
}

impl Pair {
    pub(crate) fn create(folder: &Path) -> Outcome<Self> {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])?;
        let (chain, key) = (folder.join("tls.crt"), folder.join("tls.key"));
        fs::write(&chain, made.cert.pem())?;
        fs::write(&key, made.signing_key.serialize_pem())?;
        Ok(Self { certificate: made.cert.der().clone(), chain, key })
    }
}

/// A process that is killed on drop.
struct Kept(Child);

impl Drop for Kept {
    fn drop(&mut self) {
        // The process may have exited by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Kept {
    /// Starts a process and waits until it listens.
    async fn start(command: &mut Command, address: SocketAddr, log: &Path) -> Outcome<Self> {
        let file = fs::File::create(log)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let mut child = Self(command.spawn()?);
        let start = Instant::now();
        while TcpStream::connect(address).await.is_err() {
            if child.0.try_wait()?.is_some() || start.elapsed() > START_LIMIT {
                let log = fs::read_to_string(log)?;
                return Err(format!("{command:?} does not listen on {address}:\n{log}").into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(child)
    }
}

/// The server of `mco`.
pub(crate) struct Mco {
    process: Kept,
    address: SocketAddr,
    what: String,
}

impl Mco {
    pub(crate) async fn start(kubeconfig: &Path, pair: &Pair, folder: &Path) -> Outcome<Self> {
        let (program, address) = (program()?, free_address()?);
        let mut command = Command::new(&program);
        // The container image sets this for every process.
        command.env("MALLOC_TRIM_THRESHOLD_", "131072");
        command.args(["server", "start", "--apiserver-url", "https://localhost"]);
        command.args(["--without-kubeconfig", "--metrics-listen-address", "127.0.0.1:0"]);
        command.args(["--insecure-port", "0", "--secure-port", &address.port().to_string()]);
        command.arg("--kubeconfig").arg(kubeconfig);
        command.arg("--cert").arg(&pair.chain).arg("--key").arg(&pair.key);
        let process = Kept::start(&mut command, address, &folder.join("mco.log")).await?;
        Ok(Self { process, address, what: program.display().to_string() })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn what(&self) -> &str {
        &self.what
    }

    pub(crate) fn memory(&self) -> Outcome<String> {
        process_status(self.process.0.id(), "VmRSS:")
    }

    pub(crate) fn memory_note(&self) -> Outcome<String> {
        let process = self.process.0.id();
        let (anonymous, peak) =
            (process_status(process, "RssAnon:")?, process_status(process, "VmHWM:")?);
        Ok(format!("{anonymous} private, {peak} at most"))
    }
}

/// nginx with one static file.
pub(crate) struct Nginx {
    _process: Kept,
    address: SocketAddr,
}

impl Nginx {
    /// Starts nginx; returns nothing if it is not installed.
    pub(crate) async fn start(body: &[u8], pair: &Pair, folder: &Path) -> Outcome<Option<Self>> {
        if Command::new("nginx").arg("-v").stderr(Stdio::null()).status().is_err() {
            return Ok(None);
        }
        let (root, address) = (folder.join("nginx"), free_address()?);
        fs::create_dir_all(root.join("config"))?;
        fs::write(root.join("config/worker"), body)?;
        let (chain, key) = (pair.chain.display(), pair.key.display());
        let here = root.display();
        // One line of log for each request, as `mco` writes.
        let text = format!(
            "daemon off;\nworker_processes auto;\nerror_log stderr;\npid {here}/pid;\n\
             events {{ worker_connections 4096; }}\n\
             http {{\n  access_log {here}/access.log;\n  default_type application/json;\n\
             keepalive_requests 1000000000;\n  sendfile on;\n  open_file_cache max=16;\n\
             client_body_temp_path {here}/b;\n  proxy_temp_path {here}/p;\n\
             fastcgi_temp_path {here}/f;\n  uwsgi_temp_path {here}/u;\n  scgi_temp_path {here}/s;\n\
             server {{\n    listen {address} ssl;\n    ssl_certificate {chain};\n\
             ssl_certificate_key {key};\n    ssl_protocols TLSv1.2 TLSv1.3;\n    root {here};\n  }}\n}}\n"
        );
        let config = root.join("nginx.conf");
        fs::write(&config, text)?;
        let mut command = Command::new("nginx");
        command.arg("-p").arg(&root).arg("-c").arg(&config);
        // Its workers read the folder, which is private, as root.
        command.args(["-g", "user root;"]);
        let process = Kept::start(&mut command, address, &folder.join("nginx.log")).await?;
        Ok(Some(Self { _process: process, address }))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A server that parses requests with hyper and responds to each with the same bytes.
pub(crate) struct Hyper {
    _process: Kept,
    address: SocketAddr,
}

impl Hyper {
    pub(crate) async fn start(body: &[u8], pair: &Pair, folder: &Path) -> Outcome<Self> {
        let address = free_address()?;
        fs::write(folder.join("body"), body)?;
        let (chain, key) = (pair.chain.display(), pair.key.display());
        let role = format!("{}\n{chain}\n{key}\n{address}", folder.join("body").display());
        let mut command = Command::new(env::current_exe()?);
        command.env(ROLE, role);
        let process = Kept::start(&mut command, address, &folder.join("hyper.log")).await?;
        Ok(Self { _process: process, address })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Runs the bare server until the process is killed.
pub(crate) fn run_hyper(role: &str) -> Outcome<()> {
    let mut words = role.lines();
    let mut next = || words.next().ok_or("a body, a chain, a key and an address");
    let (body, chain, key, address) = (next()?, next()?, next()?, next()?);
    let body = Bytes::from(fs::read(body)?);
    let chain = CertificateDer::from_pem_slice(&fs::read(chain)?)?;
    let key = PrivateKeyDer::from_pem_slice(&fs::read(key)?)?;
    let config = ServerConfig::builder_with_provider(ring::default_provider().into());
    let config = config.with_safe_default_protocol_versions()?.with_no_client_auth();
    let acceptor = TlsAcceptor::from(Arc::new(config.with_single_cert(vec![chain], key)?));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(address).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let (acceptor, body) = (acceptor.clone(), body.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let answer = service_fn(move |_| {
                    let mut response = Response::new(Full::new(body.clone()));
                    let json = http::HeaderValue::from_static("application/json");
                    response.headers_mut().insert(CONTENT_TYPE, json);
                    async move { Ok::<_, Infallible>(response) }
                });
                // A client that disconnects is no failure.
                drop(http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await);
            });
        }
    })
}
