//! A cluster that machines can join: an installation of `mco`, the profile `full`, a registry with
//! the daemon's image, and the settings that a machine in a container needs.

use std::{
    collections::BTreeMap,
    fs,
    process::{Command, Output, Stdio},
};

use anyhow::Context as _;
use mco_api::{ControllerConfig, MachineConfigPool, label};
use mco_testkit::{
    PATIENCE,
    api::wait,
    lab::{Lab, Machine, Registry, WaitTarget},
};

use serde_json::{Value, json};

use super::MCO;
use crate::{rollout::boot_id, workspace};

const IMAGE: &str = "localhost/mco:latest";
const REPOSITORY: &str = "mco:latest";
const PORT: u16 = 22623;

/// A cluster that machines can join.
pub(crate) struct JoinCluster<'l> {
    pub(crate) lab: &'l Lab,
    _registry: Registry,
    url: String,
    ca: String,
    token: String,
}

/// The machines that must not be touched: boot ids, and UIDs and restarts of pods.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    boots: BTreeMap<String, String>,
    pods: BTreeMap<String, String>,
}

impl Snapshot {
    pub(crate) fn of(lab: &Lab) -> anyhow::Result<Self> {
        let boots =
            lab.machines().iter().map(|machine| Ok((machine.name().to_owned(), boot_id(machine)?)));
        let columns = "jsonpath={range .items[*]}{.spec.nodeName} {.metadata.uid} {.status.containerStatuses[*].restartCount}{\"\\n\"}{end}";
        let pods = lab.ask(&["get", "pods", "-A", "-o", columns])?;
        let ours = |line: &&str| {
            lab.machines().iter().any(|it| line.starts_with(&format!("{} ", it.name())))
        };
        let pods = pods.lines().filter(ours).filter_map(|line| {
            let (node, rest) = line.split_once(' ')?;
            let (uid, restarts) = rest.split_once(' ')?;
            Some((uid.to_owned(), format!("{node} {restarts}")))
        });
        Ok(Self { pods: pods.collect(), boots: boots.collect::<anyhow::Result<_>>()? })
    }

    /// Checks that no machine was rebooted since, and that all pods still run. There may be more pods.
    pub(crate) fn is_part_of(&self, later: &Self) -> anyhow::Result<()> {
        let gone: Vec<_> =
            self.pods.iter().filter(|(uid, state)| later.pods.get(*uid) != Some(state)).collect();
        anyhow::ensure!(gone.is_empty(), "pods were touched: {gone:?}, now {:?}", later.pods);
        anyhow::ensure!(self.boots == later.boots, "machines were rebooted: {self:?}, {later:?}");
        Ok(())
    }
}

impl<'l> JoinCluster<'l> {
    /// Installs the processes and waits until the config server serves the profile `full`.
    pub(crate) async fn install(lab: &'l Lab) -> anyhow::Result<Self> {
        let first = lab.machine("m1")?;
        lab.ask(&["label", "node", "m1", "node-role.kubernetes.io/control-plane="])?;
        let registry = provide_image(lab, first)?;
        let image = format!("{}/{REPOSITORY}", Registry::host());
        crate::install::apply(lab, &["--image", &image])?;
        let settings = lab.folder().join("99-worker-lab.json");
        fs::write(&settings, machine_settings()?).context("failed to write a manifest")?;
        lab.ask(&["apply", "-f", &settings.display().to_string()])?;
        let configs = kube::Api::<ControllerConfig>::all(lab.client());
        let step = WaitTarget::cluster("the ControllerConfig");
        lab.wait(step, configs, label::CONTROLLER_CONFIG, |_| Ok(())).await?;
        let profile = "machineconfiguration.openshift.io/profile=full";
        let tokens = "machineconfiguration.openshift.io/join-tokens=required";
        lab.ask(&["annotate", "controllerconfig", label::CONTROLLER_CONFIG, profile, tokens])?;
        let pools = kube::Api::<MachineConfigPool>::all(lab.client());
        let step = WaitTarget::cluster("the pool worker to have the profile `full`");
        lab.wait(step, pools, "worker", |pool| {
            let now = pool.status.clone().unwrap_or_default().configuration;
            let sources: Vec<String> = now.source.iter().map(|it| it.name.clone()).collect();
            let has = |name: &str| sources.iter().any(|found| found == name);
            if has("01-worker-kubelet") && has("99-worker-lab") {
                Ok(())
            } else {
                Err(format!("{sources:?}"))
            }
        })
        .await?;
        let namespace = ["-n", label::NAMESPACE];
        let rollout = ["rollout", "status", "daemonset/machine-config-server", "--timeout=180s"];
        lab.ask(&[&rollout[..], &namespace].concat())?;
        let bundle =
            ["get", "configmap", label::SERVER_CA, "-o", "jsonpath={.data.ca-bundle\\.crt}"];
        let ca = lab.ask(&[&bundle[..], &namespace].concat())?;
        let url = format!("https://{}", lab.balance(first, PORT)?);
        let token = create_token(lab)?;
        Ok(Self { lab, _registry: registry, url, ca, token })
    }

    /// Gives a machine what its administrator types or copies: the server's CA and a token.
    pub(crate) fn introduce(&self, machine: &Machine) -> anyhow::Result<()> {
        machine.write("/root/ca.crt", &self.ca)?;
        machine.write("/root/token", &self.token)
    }

    /// Returns the command with which a machine joins.
    pub(crate) fn join_words(&self) -> Vec<&str> {
        vec![
            MCO,
            "join",
            "--server",
            &self.url,
            "--pool",
            "worker",
            "--ca",
            "/root/ca.crt",
            "--token-file",
            "/root/token",
            "--yes",
        ]
    }

    /// Returns the pointer config of a node.
    pub(crate) fn pointer(&self, node: &str) -> anyhow::Result<String> {
        let words = ["pointer", "--pool", "worker", "--server", &self.url, "--node", node];
        self.mco(&[&words[..], &["--token", &self.token]].concat())
    }

    /// Returns the name of the pool's config.
    pub(crate) fn config(&self) -> anyhow::Result<String> {
        self.lab.ask(&["get", "mcp", "worker", "-o", "jsonpath={.spec.configuration.name}"])
    }

    /// Returns the log of the config server.
    pub(crate) fn server_log(&self) -> anyhow::Result<String> {
        self.lab.ask(&["logs", "-n", label::NAMESPACE, "daemonset/machine-config-server"])
    }

    /// Waits for the certificate requests of a machine, first that of the kubelet's client, then that
    /// of its server, and approves them.
    pub(crate) fn approve(&self, machine: &Machine) -> anyhow::Result<()> {
        let node = machine.name();
        let has_certificate = || {
            let disk = machine.disk().ok()?;
            disk.exists("/var/lib/kubelet/pki/kubelet-server-current.pem").ok()?.then_some(())
        };
        let what = format!("the certificates of {node}");
        wait(&what, PATIENCE, || {
            drop(self.mco(&["node", "approve", node]));
            has_certificate()
        })
        .map_err(|error| error.context(self.lab.explain(Some(machine))))
    }

    /// Returns the certificate requests that wait for an approval, as the administrator sees them.
    pub(crate) fn waiting(&self) -> anyhow::Result<String> {
        // The exit code says that requests wait.
        let output = mco(self.lab, &["node", "approve"])?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Returns the output of `mco status`, whose exit code tells that something needs attention.
    pub(crate) fn status(&self) -> anyhow::Result<String> {
        let output = mco(self.lab, &["status"])?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs `mco` as the administrator.
    pub(crate) fn mco(&self, words: &[&str]) -> anyhow::Result<String> {
        run_mco(self.lab, words)
    }

    /// Waits until the controller has put the node into its pool.
    pub(crate) fn has_role(&self, machine: &Machine) -> anyhow::Result<()> {
        let selector = "--selector=node-role.kubernetes.io/worker";
        wait("the label of the pool", PATIENCE, || {
            let nodes = self.lab.ask(&["get", "nodes", selector, "-o", "name"]).ok()?;
            nodes.lines().any(|line| line == format!("node/{}", machine.name())).then_some(())
        })
    }

    /// Checks that the API server trusts the kubelet's serving certificate.
    pub(crate) fn serves_logs(&self, machine: &Machine) -> anyhow::Result<()> {
        let field = format!("--field-selector=spec.nodeName={}", machine.name());
        let namespace = ["-n", label::NAMESPACE];
        let pods = ["get", "pods", &field, "-l", "k8s-app=machine-config-daemon", "-o", "name"];
        let pod = self.lab.ask(&[&pods[..], &namespace].concat())?;
        let log = self.lab.ask(&[&["logs", pod.trim()][..], &namespace].concat())?;
        anyhow::ensure!(!log.is_empty(), "the daemon of {} logged nothing", machine.name());
        Ok(())
    }

    /// Checks that the token is neither in a text, nor in the journal, nor in a file that others can
    /// read.
    pub(crate) fn shows_no_token(&self, machine: &Machine, text: &str) -> anyhow::Result<()> {
        let (_, secret) = self.token.split_once('.').context("the token has two parts")?;
        assert!(!text.contains(secret), "{text}");
        let journal = machine.journal(None, 5000)?;
        assert!(!journal.contains(secret), "the journal has the token");
        let found = machine.run(&["grep", "-rlsF", secret, "/etc", "/var/lib", "/run/systemd"])?;
        let found = String::from_utf8_lossy(&found.stdout).into_owned();
        assert_eq!(found, "", "files with the token");
        Ok(())
    }
}

/// Returns a MachineConfig with what a machine needs because it is a container without a network: the
/// registry without TLS, the image for pauses, and a kubelet and containerd without systemd's cgroups.
fn machine_settings() -> anyhow::Result<String> {
    let files = [
        ("/etc/containerd/config.toml", "crates/testkit/lab/machine/containerd.toml"),
        (
            "/etc/containerd/certs.d/10.77.0.1:5000/hosts.toml",
            "crates/mco/tests/lab/join/hosts.toml",
        ),
        ("/etc/openshift/kubelet.conf.d/90-lab.conf", "crates/mco/tests/lab/join/kubelet.conf"),
    ];
    let files = files.map(|(path, from)| {
        let text = fs::read(workspace().join(from)).context("failed to read a file")?;
        let source = mco_ignition::data_url::encode(&text);
        Ok(json!({"path": path, "mode": 0o644, "overwrite": true, "contents": {"source": source}}))
    });
    let files: Vec<Value> = files.into_iter().collect::<anyhow::Result<_>>()?;
    let manifest = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": "99-worker-lab", "labels": {(label::ROLE): "worker"}},
        "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": files}}},
    });
    Ok(manifest.to_string())
}

fn mco(lab: &Lab, words: &[&str]) -> anyhow::Result<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mco"));
    command.args(words).env("KUBECONFIG", lab.kubeconfig()).stdin(Stdio::null());
    command.output().context("failed to start mco")
}

fn run_mco(lab: &Lab, words: &[&str]) -> anyhow::Result<String> {
    let output = mco(lab, words)?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    anyhow::ensure!(output.status.success(), "mco {}: {text}", words.join(" "));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn create_token(lab: &Lab) -> anyhow::Result<String> {
    let words = ["token", "create", "--pool", "worker", "--uses", "4"];
    Ok(run_mco(lab, &words)?.trim().to_owned())
}

/// Pushes the image of `mco` to a registry, from which new machines pull it.
fn provide_image(lab: &Lab, first: &Machine) -> anyhow::Result<Registry> {
    let registry = lab.registry()?;
    wait("the image to be pushed", PATIENCE, || Registry::push(first, IMAGE, REPOSITORY).ok())
        .map_err(|error| error.context(registry.log()))?;
    for machine in lab.machines() {
        let image = format!("{}/{REPOSITORY}", Registry::host());
        machine.ask(&["ctr", "--namespace=k8s.io", "images", "tag", "--force", IMAGE, &image])?;
    }
    Ok(registry)
}
