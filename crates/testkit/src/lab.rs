//! The lab: a real Kubernetes of several machines on one Linux machine, for tests and for people.
//!
//! The control plane runs in a network of its own. Each machine is a container that boots its own
//! systemd, kubelet and containerd from a disk of its own, and can be rebooted, cut off and killed.
//! All of it lives in namespaces whose first process ends with the process that wanted the lab,
//! however that ends; what is left then, cgroups and one folder, is removed by a keeper, or by the
//! start of the next lab. Nothing of the host is changed, and two labs do not meet.

#![expect(
    clippy::disallowed_methods,
    reason = "the lab is made of programs and files; nothing ships this"
)]

mod cgroup;
mod furnish;
mod image;
mod lone;
mod machine;
mod people;
mod place;
mod plane;
mod relay;
mod run;
mod space;
mod wait;

use std::{
    fmt,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::Arc,
};

use anyhow::Context as _;
use kube::Client;

use self::{cgroup::Groups, place::Place, plane::Plane, run::output, space::Space};
pub use self::{
    cgroup::Memory,
    image::SLEEP,
    lone::Lone,
    machine::{Machine, Network},
    people::Background,
    wait::Step,
};
use crate::{
    api::Programs,
    pki::{Authority, Credentials},
};

/// What a lab is made from, prepared by `scripts/lab`.
#[derive(Clone, Debug)]
pub struct Ingredients {
    /// The root that the disks of all machines lie over.
    base: PathBuf,
    /// The programs of Kubernetes that run in the machines.
    kube: PathBuf,
    /// The same with etcd, for the control plane.
    programs: Programs,
}

impl Ingredients {
    /// Finds them, or says in one line what is missing.
    pub fn find() -> Result<Self, String> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/lab");
        let mut command = Command::new(&script);
        let found = command.arg("where").output();
        let found = found.map_err(|error| format!("{}: {error}", script.display()))?;
        if !found.status.success() {
            return Err(String::from_utf8_lossy(&found.stderr).trim().to_owned());
        }
        let said = String::from_utf8_lossy(&found.stdout);
        let folder = |key: &str| {
            let value = said.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            value.map(PathBuf::from).ok_or_else(|| format!("scripts/lab names no {key}"))
        };
        let programs = Programs::find().map_err(|absent| absent.to_string())?;
        Ok(Self { base: folder("base")?, kube: folder("kube")?, programs })
    }

    /// Removes what labs have left behind whose process is gone; every start does that, too.
    pub fn sweep(&self) -> anyhow::Result<()> {
        place::clean(&self.labs()).map(drop)
    }

    /// The folder of all labs: beside what they are made from.
    #[must_use]
    pub fn labs(&self) -> PathBuf {
        self.base.with_file_name("labs")
    }
}

/// What the lab is to be.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many machines, named `m1` and so on.
    pub machines: u8,
    /// Our binary; every machine has the image that is made of it.
    pub mco: Option<PathBuf>,
}

/// A running lab. It ends when it goes out of scope.
pub struct Lab {
    machines: Vec<Machine>,
    control: Plane,
    client: Client,
    kubectl: PathBuf,
    groups: Arc<Groups>,
    space: Arc<Space>,
    place: Place,
}

impl Lab {
    /// Starts one and waits until every machine is a node that is Ready.
    ///
    /// The calling thread must live as long as the lab: the API server dies with it.
    pub async fn up(ingredients: &Ingredients, plan: &Plan) -> anyhow::Result<Self> {
        let place = Place::make(&ingredients.labs())?;
        let groups = Arc::new(Groups::make(&place)?);
        let space = Arc::new(Space::make(&place, &ingredients.base, &ingredients.kube)?);
        groups.add(plane::GROUP)?;
        image::make(&place.folder.join("images"), plan.mco.as_deref())?;
        let authority = Authority::new("lab")?;
        let machines: Vec<Machine> = (1..=plan.machines)
            .map(|index| {
                let credentials = credentials(&authority, index)?;
                Machine::make(index, &place, &ingredients.base, &space, &groups, &credentials)
            })
            .collect::<anyhow::Result<_>>()?;
        let control = Plane::start(&place, &space, &ingredients.programs, &authority)?;
        for machine in &machines {
            machine.start()?;
        }
        let client = mco_cluster::client::connect(Some(&control.kubeconfig)).await?;
        let kubectl = ingredients.programs.kubernetes("kubectl");
        let lab = Self { machines, control, client, kubectl, groups, space, place };
        for machine in &lab.machines {
            lab.wait_ready(machine).await?;
        }
        Ok(lab)
    }

    /// Its machines.
    #[must_use]
    pub fn machines(&self) -> &[Machine] {
        &self.machines
    }

    /// The machine of that name.
    pub fn machine(&self, name: &str) -> anyhow::Result<&Machine> {
        let found = self.machines.iter().find(|machine| machine.name() == name);
        found.with_context(|| format!("the lab has no machine {name}"))
    }

    /// A client that may do everything.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// A file that lets its holder do everything, from this machine, as long as this process runs.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.control.kubeconfig
    }

    /// Runs `kubectl`, however it ends.
    pub fn kubectl(&self, words: &[&str]) -> anyhow::Result<Output> {
        let mut command = Command::new(&self.kubectl);
        command.arg("--kubeconfig").arg(self.kubeconfig()).args(words).env_remove("KUBECONFIG");
        // It caches what it learns of the server; this server is gone soon.
        command.arg("--cache-dir").arg(self.place.folder.join("kubectl"));
        output(&format!("kubectl {}", words.join(" ")), command.stdin(std::process::Stdio::null()))
    }

    /// What `kubectl` writes, which must succeed.
    pub fn ask(&self, words: &[&str]) -> anyhow::Result<String> {
        run::said(&format!("kubectl {}", words.join(" ")), &self.kubectl(words)?)
    }

    /// What the whole lab takes of this machine's memory.
    #[must_use]
    pub fn memory(&self) -> Memory {
        self.groups.memory()
    }

    /// The lab's name, which is part of the names of its cgroups.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.place.id
    }

    /// Where it keeps everything; gone when it is down.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.place.folder
    }

    /// Ends it and waits until nothing is left of it.
    pub fn down(self) -> anyhow::Result<()> {
        self.space.end()
    }
}

impl fmt::Debug for Lab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lab").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        drop(self.space.end());
    }
}

/// What a machine shows to the API server and to those who call its kubelet.
fn credentials(authority: &Authority, index: u8) -> anyhow::Result<Vec<(&'static str, String)>> {
    let identity = machine::identity(index);
    let pair = authority.node(&identity.name, std::slice::from_ref(&identity.address))?;
    let config = authority.kubeconfig(&Plane::url(), Credentials::Certificate(&pair));
    Ok(vec![
        ("etc/kubernetes/ca.crt", authority.pair().certificate.clone()),
        ("etc/kubernetes/kubelet.crt", pair.certificate),
        ("etc/kubernetes/kubelet.key", pair.key),
        ("var/lib/kubelet/kubeconfig", config),
    ])
}
