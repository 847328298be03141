//! The lab: a real Kubernetes cluster of several machines on one Linux host, for tests and for
//! users.
//!
//! The control plane runs in its own network namespace. Each machine is a container that boots its
//! own systemd, kubelet and containerd from its own disk. It can be rebooted, disconnected and
//! killed. All processes run in namespaces whose first process ends with the process that started
//! the lab, even if that one is killed. The remains, cgroups and one folder, are removed by a
//! supervisor process, or by the start of the next lab. The host is not changed, and labs do not
//! affect each other.

#![expect(
    clippy::disallowed_methods,
    reason = "the lab consists of programs and files; no part of it ships"
)]

mod background;
mod blank;
mod cgroup;
mod control_plane;
mod disk;
mod folder;
mod image;
mod machine;
mod namespaces;
mod ostree;
mod registry;
mod relay;
mod run;
mod standalone;
mod wait;

use std::{
    fmt,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::Arc,
};

use anyhow::Context as _;
use kube::Client;

pub use self::{
    background::Background,
    cgroup::Memory,
    image::SLEEP,
    machine::{Machine, Network},
    ostree::{OstreeMachine, OstreePrerequisites, Tool},
    registry::Registry,
    standalone::StandaloneMachine,
    wait::WaitTarget,
};
use self::{
    cgroup::Cgroups, control_plane::ControlPlane, disk::Contents, folder::LabFolder,
    namespaces::Namespaces, run::output,
};
use crate::{
    api::Programs,
    pki::{Authority, Credentials},
};

/// The prerequisites of a lab, prepared by `scripts/lab`.
#[derive(Clone, Debug)]
pub struct LabPrerequisites {
    /// Root file system that the disks of all machines are overlaid on.
    base: PathBuf,
    /// Kubernetes programs that run in the machines.
    kube: PathBuf,
    /// The same programs and etcd, for the control plane.
    programs: Programs,
}

impl LabPrerequisites {
    /// Finds the prerequisites. The error names the missing one in one line.
    pub fn find() -> Result<Self, String> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/lab");
        let mut command = Command::new(&script);
        let found = command.arg("where").output();
        let found = found.map_err(|error| format!("{}: {error}", script.display()))?;
        if !found.status.success() {
            return Err(String::from_utf8_lossy(&found.stderr).trim().to_owned());
        }
        let stdout = String::from_utf8_lossy(&found.stdout);
        let folder = |key: &str| {
            let value = stdout.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            value.map(PathBuf::from).ok_or_else(|| format!("scripts/lab did not print {key}"))
        };
        let programs = Programs::find().map_err(|absent| absent.to_string())?;
        Ok(Self { base: folder("base")?, kube: folder("kube")?, programs })
    }

    /// Removes the remains of labs whose process has ended. Every start of a lab does the same.
    pub fn sweep(&self) -> anyhow::Result<()> {
        folder::clean(&self.labs()).map(drop)
    }

    /// Returns the folder of all labs.
    #[must_use]
    pub fn labs(&self) -> PathBuf {
        self.base.with_file_name("labs")
    }
}

/// The settings of a lab.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of machines, named `m1` and so on.
    pub machines: u8,
    /// Path of the `mco` binary. Every machine gets an image that contains it.
    pub mco: Option<PathBuf>,
}

/// A running lab. Removed when dropped.
pub struct Lab {
    machines: Vec<Machine>,
    control: ControlPlane,
    client: Client,
    kubectl: PathBuf,
    cgroups: Arc<Cgroups>,
    namespaces: Arc<Namespaces>,
    folder: LabFolder,
    base: PathBuf,
}

impl Lab {
    /// Starts a lab and waits until all its nodes are Ready.
    ///
    /// The calling thread must live as long as the lab, because the API server dies with it.
    pub async fn up(ingredients: &LabPrerequisites, plan: &Plan) -> anyhow::Result<Self> {
        let folder = LabFolder::make(&ingredients.labs())?;
        let cgroups = Arc::new(Cgroups::make(&folder)?);
        let namespaces = Arc::new(Namespaces::make(&folder, &ingredients.base, &ingredients.kube)?);
        cgroups.add(control_plane::GROUP)?;
        image::make(&folder.path.join("images"), plan.mco.as_deref())?;
        let authority = Authority::new("lab")?;
        let machines: Vec<Machine> = (1..=plan.machines)
            .map(|index| {
                let credentials = credentials(&authority, index)?;
                Machine::make(
                    index,
                    &folder,
                    &ingredients.base,
                    &namespaces,
                    &cgroups,
                    Contents::Node(&credentials),
                )
            })
            .collect::<anyhow::Result<_>>()?;
        let control = ControlPlane::start(&folder, &namespaces, &ingredients.programs, &authority)?;
        for machine in &machines {
            machine.start()?;
        }
        let client = mco_cluster::client::connect(Some(&control.kubeconfig)).await?;
        let kubectl = ingredients.programs.kubernetes("kubectl");
        let base = ingredients.base.clone();
        let lab = Self { machines, control, client, kubectl, cgroups, namespaces, folder, base };
        for machine in &lab.machines {
            lab.wait_ready(machine).await?;
        }
        Ok(lab)
    }

    /// Returns the machines.
    #[must_use]
    pub fn machines(&self) -> &[Machine] {
        &self.machines
    }

    /// Returns the machine of that name.
    pub fn machine(&self, name: &str) -> anyhow::Result<&Machine> {
        let found = self.machines.iter().find(|machine| machine.name() == name);
        found.with_context(|| format!("the lab has no machine {name}"))
    }

    /// Gives every machine the image of another `mco` binary, under that name.
    pub fn add_image(&self, name: &str, binary: &Path) -> anyhow::Result<()> {
        const FILE: &str = "other.tar";
        image::make_mco(&self.folder.path.join("images"), FILE, Some(name), binary)?;
        let path = format!("/opt/lab/images/{FILE}");
        for machine in &self.machines {
            machine.ask(&["ctr", "--namespace=k8s.io", "images", "import", &path])?;
        }
        Ok(())
    }

    /// Returns a client with the administrator's rights.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns the path of the administrator's kubeconfig, valid on this host while this process
    /// runs.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.control.kubeconfig
    }

    /// Runs `kubectl`. A failure of the command is not an error.
    pub fn kubectl(&self, words: &[&str]) -> anyhow::Result<Output> {
        let mut command = Command::new(&self.kubectl);
        command.arg("--kubeconfig").arg(self.kubeconfig()).args(words).env_remove("KUBECONFIG");
        // kubectl caches the server's discovery; this cache must not outlive the lab.
        command.arg("--cache-dir").arg(self.folder.path.join("kubectl"));
        output(&format!("kubectl {}", words.join(" ")), command.stdin(std::process::Stdio::null()))
    }

    /// Runs `kubectl` and returns its output. Fails if the command fails.
    pub fn ask(&self, words: &[&str]) -> anyhow::Result<String> {
        run::stdout(&format!("kubectl {}", words.join(" ")), &self.kubectl(words)?)
    }

    /// Returns the memory usage of the whole lab.
    #[must_use]
    pub fn memory(&self) -> Memory {
        self.cgroups.memory()
    }

    /// Returns the lab's id, which is part of the names of its cgroups.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.folder.id
    }

    /// Returns the lab's folder, which is removed with the lab.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder.path
    }

    /// Stops the lab and waits until its remains are removed.
    pub fn down(self) -> anyhow::Result<()> {
        self.namespaces.end()
    }
}

impl fmt::Debug for Lab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lab").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        drop(self.namespaces.end());
    }
}

/// Issues the credentials of a machine: for its requests to the API server and for callers of its
/// kubelet.
fn credentials(authority: &Authority, index: u8) -> anyhow::Result<Vec<(&'static str, String)>> {
    let identity = machine::identity(index);
    let pair = authority.node(&identity.name, std::slice::from_ref(&identity.address))?;
    let config = authority.kubeconfig(&ControlPlane::url(), Credentials::Certificate(&pair));
    Ok(vec![
        ("etc/kubernetes/ca.crt", authority.pair().certificate.clone()),
        ("etc/kubernetes/kubelet.crt", pair.certificate),
        ("etc/kubernetes/kubelet.key", pair.key),
        ("var/lib/kubelet/kubeconfig", config),
    ])
}
