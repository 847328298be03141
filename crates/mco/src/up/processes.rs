//! Operator, controller, server and daemons as processes of their own, which `mco up` starts, restarts
//! and stops.

use std::{
    fs::{File, OpenOptions},
    io::{BufRead as _, BufReader, Read, Write as _},
    net::{SocketAddr, TcpListener},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use anyhow::Context as _;
use mco_cluster::{
    Clock, Shutdown,
    telemetry::{LogLine, Receiver},
};
use mco_daemon::simulate::Power;
use mco_host::Root;
use rustix::process::{Pid, Signal};
use tokio::{
    runtime::Handle,
    sync::{oneshot, watch},
};
use tracing::warn;

use super::{
    bootstrap_token::BootstrapToken,
    certificate::ServerCertificate,
    components::{self, Components},
    fleet::{self, Machine},
    kubelet::{self, Registration},
    state_dir::LOGS,
};
use crate::remote;

/// Time that a process may take to stop; less than the cluster's time.
const STOP_TIMEOUT: Duration = Duration::from_secs(8);

/// Pause before a process that ended is started again.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// Seconds that a simulated machine takes to boot.
const BOOT_SECONDS: &str = "1";

/// The kubeconfig that new machines get.
#[derive(Clone, Debug)]
pub(crate) enum Joining {
    /// One with a token that only requests certificates.
    ByToken,
    /// None: new machines cannot join by themselves.
    Nothing,
}

/// A component as a process of its own.
struct ComponentProcess {
    /// Name of the log file.
    name: String,
    /// Crate whose log lines are those of the component.
    target: &'static str,
    /// Node of a daemon.
    node: Option<String>,
    arguments: Vec<String>,
}

/// Starts all components on the cluster of the kubeconfig in the state directory, and returns the address
/// of the config server. Returns none if the cluster is stopped before.
pub(crate) async fn start(
    components: &mut Components<'_>,
    api: &str,
    joining: Joining,
) -> anyhow::Result<Option<SocketAddr>> {
    let root = Root::create(components.state.dir())?;
    root.create_directory(&format!("/{LOGS}"))?;
    for (name, target) in [("operator", "mco_operator"), ("controller", "mco_controller")] {
        run(components, ComponentProcess::new(name, target, &["start"]))?;
    }
    for machine in fleet::machines(components.settings.masters, components.settings.workers) {
        run_machine(components, machine)?;
    }
    let files = ServerCertificate::new(&components.client, components.state)?;
    tokio::select! {
        found = files.wait(components.state) => drop(found?),
        failed = components::first_failure(&mut components.tasks) => return Err(failed),
        () = components.shutdown.requested() => return Ok(None),
    }
    components.spawn(files.follow(components.shutdown.clone()));
    let address = free(components.settings.server_listen)?;
    let folder = components.state.server();
    let path = |name: &str| folder.join(name).display().to_string();
    let (certificate, key) = (path("tls.crt"), path("tls.key"));
    let (ip, port) = (address.ip().to_string(), address.port().to_string());
    let mut server = ComponentProcess::new("server", "mco_server", &["start"]);
    server.add(&["--apiserver-url", api, "--listen-ip", &ip, "--secure-port", &port]);
    server.add(&["--insecure-port", "0", "--cert", &certificate, "--key", &key]);
    match joining {
        Joining::ByToken => {
            let token = BootstrapToken::new(&components.client, components.state)?;
            let dir = tokio::select! {
                dir = token.wait() => dir?,
                failed = components::first_failure(&mut components.tasks) => return Err(failed),
                () = components.shutdown.requested() => return Ok(None),
            };
            components.spawn(token.follow(components.shutdown.clone()));
            server.add(&["--bootstrap-token-dir", &dir.display().to_string()]);
        }
        Joining::Nothing => server.add(&["--without-kubeconfig"]),
    }
    run(components, server)?;
    Ok(Some(address))
}

/// Starts the daemon of a simulated machine, and its kubelet in this process.
fn run_machine(components: &mut Components<'_>, machine: Machine) -> anyhow::Result<()> {
    let (node, disk) = (machine.name.to_string(), components.state.node(machine.name.as_str()));
    let (power, seen) = watch::channel(Power::Off);
    let following = kubelet::follow(disk.clone(), power, components.shutdown.clone());
    let seen = (seen, Registration::AtOnce);
    let (client, stop) = (components.client.clone(), components.shutdown.clone());
    let clients = kubelet::Clients { administrator: client.clone(), node: client };
    let kubelet = kubelet::run(clients, machine, disk.clone(), Clock::System, seen, stop);
    components.tasks.spawn(async move {
        tokio::join!(following, kubelet);
        Ok(())
    });
    let mut daemon =
        ComponentProcess::new("daemon", "mco_daemon", &["start", "--node-name", &node]);
    daemon.name.clone_from(&node);
    daemon.node = Some(node);
    daemon.add(&["--root-mount", &disk.display().to_string(), "--boot-seconds", BOOT_SECONDS]);
    run(components, daemon)
}

/// Returns the address with a free port if it has none.
fn free(address: SocketAddr) -> anyhow::Result<SocketAddr> {
    if address.port() != 0 {
        return Ok(address);
    }
    let socket =
        TcpListener::bind(address).with_context(|| format!("failed to listen on {address}"));
    Ok(socket?.local_addr()?)
}

impl ComponentProcess {
    fn new(name: &str, target: &'static str, arguments: &[&str]) -> Self {
        let mut process = Self { name: name.to_owned(), target, node: None, arguments: Vec::new() };
        process.add(&[name]);
        process.add(arguments);
        process.add(&["--metrics-listen-address", "127.0.0.1:0"]);
        process
    }

    fn add(&mut self, arguments: &[&str]) {
        self.arguments.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    }

    #[expect(clippy::disallowed_methods, reason = "the processes are this program itself")]
    fn command(&self, kubeconfig: &Path) -> anyhow::Result<Command> {
        let program = std::env::current_exe().context("failed to find this program")?;
        let mut command = Command::new(program);
        // A process group of its own, so that Ctrl-C reaches `mco up` alone, which stops the others in
        // order.
        command.arg("--parent").arg(std::process::id().to_string()).process_group(0);
        command.args(&self.arguments).arg("--kubeconfig").arg(kubeconfig);
        command.args(["--payload-version", env!("CARGO_PKG_VERSION")]).env_remove("KUBECONFIG");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        Ok(command)
    }
}

/// Runs a process until shutdown. One that ends is started again.
fn run(components: &mut Components<'_>, process: ComponentProcess) -> anyhow::Result<()> {
    let dir = components.state.dir();
    let command = process.command(&remote::kubeconfig(dir))?;
    let path = dir.join(LOGS).join(format!("{}.log", process.name));
    let log = OpenOptions::new().create(true).write(true).truncate(true).open(&path);
    let log = log.with_context(|| format!("failed to open {}", path.display()))?;
    let (receiver, shutdown) = (components.settings.logs.receiver(), components.shutdown.clone());
    let running = Arc::new(Running::default());
    let name = process.name.clone();
    let mut supervisor = Supervisor {
        process,
        command,
        log,
        receiver,
        running: Arc::clone(&running),
        shutdown: shutdown.clone(),
        runtime: Handle::current(),
    };
    let (ended, mut end) = oneshot::channel();
    // A thread of its own: the kernel ends the process with the thread that started it.
    let thread = thread::Builder::new().name(name);
    thread.spawn(move || drop(ended.send(supervisor.run())))?;
    components.tasks.spawn(async move {
        tokio::select! {
            ended = &mut end => return ended.unwrap_or(Ok(())),
            () = shutdown.requested() => {}
        }
        running.signal(Signal::TERM);
        if tokio::time::timeout(STOP_TIMEOUT, &mut end).await.is_err() {
            running.signal(Signal::KILL);
            return end.await.unwrap_or(Ok(()));
        }
        Ok(())
    });
    Ok(())
}

/// The process that runs now; none between two starts.
#[derive(Debug, Default)]
struct Running(Mutex<Option<Child>>);

impl Running {
    fn lock(&self) -> MutexGuard<'_, Option<Child>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a signal. The id belongs to the process until its exit status was read under the lock.
    fn signal(&self, signal: Signal) {
        if let Some(child) = &*self.lock() {
            // A process that has ended needs no signal.
            let _ = rustix::process::kill_process(Pid::from_child(child), signal);
        }
    }

    /// Reads the exit status of a process that has closed its log.
    fn wait(&self) -> Option<String> {
        let mut child = self.lock().take()?;
        child.wait().ok().map(|status| status.to_string())
    }
}

/// The thread that runs a process again and again.
struct Supervisor {
    process: ComponentProcess,
    command: Command,
    log: File,
    receiver: Receiver,
    running: Arc<Running>,
    shutdown: Shutdown,
    runtime: Handle,
}

impl Supervisor {
    fn run(&mut self) -> anyhow::Result<()> {
        while !self.shutdown.is_requested() {
            let name = &self.process.name;
            let child = self.command.spawn();
            let mut child = child.with_context(|| format!("failed to start {name}"))?;
            let lines = child.stderr.take();
            *self.running.lock() = Some(child);
            if self.shutdown.is_requested() {
                self.running.signal(Signal::TERM);
            }
            if let Some(lines) = lines {
                self.copy(lines);
            }
            let status = self.running.wait().unwrap_or_default();
            if self.shutdown.is_requested() {
                break;
            }
            warn!(process = self.process.name, status, "Process ended; it is started again");
            let shutdown = self.shutdown.clone();
            let pause = async { tokio::time::timeout(RESTART_PAUSE, shutdown.requested()).await };
            // The time is over, or the shutdown ends the loop.
            drop(self.runtime.block_on(pause));
        }
        Ok(())
    }

    /// Copies the log of the process into its file, and to the log of its pod, until the process ends.
    fn copy(&mut self, lines: impl Read) {
        let (target, node) = (self.process.target, self.process.node.as_deref());
        for text in BufReader::new(lines).split(b'\n').map_while(Result::ok) {
            let text = String::from_utf8_lossy(&text);
            // A full disk loses the log, and stops no process.
            drop(writeln!(self.log, "{text}"));
            (self.receiver)(LogLine { target, node, text: &text });
        }
    }
}

/// Makes this process end with the process that started it, which has the given id. Returns false if that
/// process has ended already.
pub(crate) fn end_with_parent(parent: u32) -> bool {
    let set = rustix::process::set_parent_process_death_signal(Some(Signal::TERM));
    let present = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
    set.is_ok() && present.is_some_and(|present| i64::from(present) == i64::from(parent))
}
