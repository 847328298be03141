//! Processes whose API server stops answering end in time after SIGTERM.

#![expect(clippy::disallowed_methods, reason = "the test writes input files and reads the clock")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use mco_api::label;
use mco_cluster::{client, shutdown::SHUTDOWN_LIMIT};
use mco_testkit::{
    PATIENCE,
    api::{self, ApiServer, Embedded, Process, command},
    object_wait,
};
use rustix::process::Signal;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
};

use crate::processes::installed;

/// Time for the process to start the exit and for a loaded machine to carry it out.
const MARGIN: Duration = Duration::from_secs(8);

/// A relay to the API server that can stop: connections stay open, and nothing passes any more.
struct Relay {
    url: String,
    stopped: Arc<watch::Sender<bool>>,
}

impl Relay {
    async fn start(target: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("https://{}", listener.local_addr().expect("an address"));
        let stopped = Arc::new(watch::Sender::new(false));
        let stop = stopped.clone();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(relay(near, target.clone(), stop.subscribe()));
            }
        });
        Self { url, stopped }
    }
}

async fn relay(mut near: TcpStream, target: String, mut stopped: watch::Receiver<bool>) {
    let Ok(mut far) = TcpStream::connect(target).await else { return };
    let is_stopped = async { stopped.wait_for(|stopped| *stopped).await.is_ok() };
    tokio::select! {
        biased;
        // Both ends stay open.
        _ = is_stopped => std::future::pending().await,
        _ = copy_bidirectional(&mut near, &mut far) => {}
    }
}

/// Writes a kubeconfig that leads through the relay.
fn kubeconfig(api: &dyn ApiServer, relay: &Relay, folder: &Path) -> PathBuf {
    let text = fs::read_to_string(api.kubeconfig()).expect("a kubeconfig");
    assert!(text.contains(api.url()), "{text}");
    let path = folder.join("relayed");
    fs::write(&path, text.replace(api.url(), &relay.url)).expect("it is written");
    path
}

fn start(process: &str, words: &[&str], kubeconfig: &Path, folder: &Path) -> Process {
    let mut command = command(env!("CARGO_BIN_EXE_mco"));
    command.args([process, "start"]).args(words).arg("--kubeconfig").arg(kubeconfig);
    command.env_remove("KUBECONFIG").env_remove("RELEASE_VERSION");
    let log = folder.join(format!("{process}.log"));
    Process::start(process, &mut command, &log).expect("the binary starts")
}

// covers: PROC-4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_ends_processes_whose_api_server_does_not_answer() {
    let folder = tempfile::tempdir().expect("a folder");
    let api = Embedded::start(Path::new(env!("CARGO_BIN_EXE_mco")), folder.path())
        .expect("the embedded API server starts");
    let target = api.url().trim_start_matches("https://").to_owned();
    let relay = Relay::start(target).await;
    let file = kubeconfig(&api, &relay, folder.path());
    let metrics = ["--metrics-listen-address", "127.0.0.1:0"];
    let root = folder.path().join("root").display().to_string();
    let daemon = [&metrics[..], &["--node-name", "worker-0", "--root-mount", &root]].concat();
    let server = [&metrics[..], &["--apiserver-url", api.url()]].concat();
    let mut processes = [
        start("operator", &metrics, &file, folder.path()),
        start("controller", &metrics, &file, folder.path()),
        start("daemon", &daemon, &file, folder.path()),
        start("server", &server, &file, folder.path()),
    ];
    let client = client::connect(Some(api.kubeconfig())).await.expect("a client");
    installed(&client, "machineconfigpools.machineconfiguration.openshift.io").await;
    let held = |lease: Option<&Lease>| {
        let spec = lease.and_then(|lease| lease.spec.as_ref());
        spec.is_some_and(|spec| spec.holder_identity.as_ref().is_some_and(|it| !it.is_empty()))
    };
    for name in ["machine-config-controller", "machine-config"] {
        let leases = Api::<Lease>::namespaced(client.clone(), label::NAMESPACE);
        object_wait::wait_until(leases, name, "a leader", held).await.expect("it leads");
    }
    let asks = || processes[2].log().contains("Serving metrics").then_some(());
    api::wait("the daemon to run", PATIENCE, asks).expect("the daemon runs");

    relay.stopped.send_replace(true);
    let asked = Instant::now();
    for process in &processes {
        process.signal(Signal::TERM).expect("it runs");
    }
    for process in &mut processes {
        let ended = process.wait(SHUTDOWN_LIMIT + MARGIN);
        assert!(ended.is_ok(), "{:?} after {:?}: {}", ended, asked.elapsed(), process.log());
        assert!(asked.elapsed() < SHUTDOWN_LIMIT + MARGIN, "{:?}", asked.elapsed());
    }
}
