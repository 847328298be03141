//! The whole system as separate processes on the real kube-apiserver.
//!
//! A plain kube-apiserver has no controllers, so `mco surroundings` simulates kubelets, a
//! scheduler, pods, and the status of their PodDisruptionBudget. The tests need no garbage
//! collection.

#![expect(clippy::disallowed_methods, reason = "the test writes its input files")]

use std::{collections::BTreeMap, fs, path::PathBuf};

use mco_testkit::{
    PATIENCE,
    api::{self, ApiServer as _, KubeApiServer, Process, Programs},
    pki::Authority,
};
use rustix::process::Signal;

use super::cluster::{Nodes, Runs};

/// Process of the kubelets and the workload; its output contains the status lines of the nodes.
const SURROUNDINGS: &str = "surroundings";

/// The processes on a real kube-apiserver, one daemon per node.
pub(super) struct Apart {
    // Dropped in this order: the processes before the files they use.
    processes: BTreeMap<String, Process>,
    api: KubeApiServer,
    folder: tempfile::TempDir,
}

impl Apart {
    /// Starts all processes.
    pub(super) fn start(programs: &Programs) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new("test").unwrap();
        let settings = api::Settings::loopback(&folder.path().join("api"));
        let api = KubeApiServer::start(programs, &authority, &settings).unwrap();
        let names = ["localhost", "127.0.0.1"].map(str::to_owned);
        let server = authority.server("machine-config-server", &names).unwrap();
        fs::write(folder.path().join("tls.crt"), server.certificate).unwrap();
        fs::write(folder.path().join("tls.key"), server.key).unwrap();
        let mut apart = Self { processes: BTreeMap::new(), api, folder };
        for name in Self::names() {
            apart.spawn(&name);
        }
        apart
    }

    fn names() -> Vec<String> {
        let fixed = ["operator", "controller", "server", SURROUNDINGS].map(str::to_owned);
        let nodes = Nodes::Masters.names().into_iter().chain(Nodes::Workers.names());
        fixed.into_iter().chain(nodes).collect()
    }

    fn spawn(&mut self, name: &str) {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let (nodes, certificate, key) = (path("nodes"), path("tls.crt"), path("tls.key"));
        let root = self.nodes().join(name).display().to_string();
        let metrics = ["--metrics-listen-address", "127.0.0.1:0"];
        let mut words: Vec<&str> = match name {
            "operator" | "controller" => [&[name, "start"], &metrics[..]].concat(),
            "server" => vec![
                "server",
                "start",
                "--apiserver-url",
                self.api.url(),
                "--without-kubeconfig",
                "--secure-port",
                "0",
                "--insecure-port",
                "0",
                "--cert",
                &certificate,
                "--key",
                &key,
                "--metrics-listen-address",
                "127.0.0.1:0",
            ],
            SURROUNDINGS => vec!["surroundings", "--nodes-dir", &nodes],
            node => {
                let own = ["daemon", "start", "--node-name", node, "--root-mount", &root];
                [&own[..], &metrics[..], &["--boot-seconds", "1"]].concat()
            }
        };
        let kubeconfig = self.kubeconfig().display().to_string();
        words.extend(["--kubeconfig", &kubeconfig]);
        let mut command = api::command(env!("CARGO_BIN_EXE_mco"));
        command.args(words).env_remove("KUBECONFIG").env_remove("RELEASE_VERSION");
        let log = self.folder.path().join(format!("{name}.log"));
        let process = Process::start(name, &mut command, &log).unwrap();
        self.processes.insert(name.to_owned(), process);
    }

    /// Stops every process; each must exit with success.
    pub(super) fn stop(&mut self) {
        for process in self.processes.values() {
            process.signal(Signal::TERM).unwrap();
        }
        for (name, process) in &mut self.processes {
            let status = process.wait(PATIENCE).unwrap();
            assert!(status.success(), "{name}: {status}");
        }
    }
}

impl Runs for Apart {
    fn kubeconfig(&self) -> PathBuf {
        self.api.kubeconfig().to_owned()
    }

    fn nodes(&self) -> PathBuf {
        self.folder.path().join("nodes")
    }

    fn status_lines(&self) -> String {
        self.processes[SURROUNDINGS].log()
    }

    fn server(&self) -> Option<(String, PathBuf)> {
        let log = self.processes["server"].log();
        let lines = log.lines().rev().filter_map(|line| serde_json::from_str(line).ok());
        let address = lines.into_iter().find_map(|line: serde_json::Value| {
            let fields = line.get("fields").unwrap_or(&line);
            fields.get("address")?.as_str().map(str::to_owned)
        });
        let port = address?.rsplit_once(':')?.1.to_owned();
        Some((format!("https://127.0.0.1:{port}"), self.api.file("ca.crt")))
    }

    fn logs(&self) -> String {
        let of = |(name, process): (&String, &Process)| {
            let log = process.log();
            let lines: Vec<&str> = log.lines().collect();
            let last = &lines[lines.len().saturating_sub(15)..];
            format!("{name}:\n{}\n", last.join("\n"))
        };
        self.processes.iter().map(of).collect()
    }

    fn kill_and_start_again(&mut self) {
        for (name, process) in &mut self.processes {
            if name != "operator" {
                process.kill().unwrap();
            }
        }
        for name in Self::names().iter().filter(|name| *name != "operator") {
            self.spawn(name);
        }
    }
}
