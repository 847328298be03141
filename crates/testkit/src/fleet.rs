//! A roll-out to a whole fleet on a real kube-apiserver, measured from outside.
//!
//! The controller is the binary as it ships, in a process of its own, so that its memory, its CPU time
//! and its requests are its own: the first two are read from `/proc`, the last from the audit log of
//! the API server, by the name of its user. Nodes and daemons are played, see `daemons`.

mod daemons;
mod measure;
mod objects;
mod settled;
mod watch;

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};
use futures::{StreamExt as _, stream};
use k8s_openapi::{
    api::core::v1::{Namespace, Node},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams, PostParams},
    runtime::{conditions, wait::await_condition},
};
use mco_api::{MachineConfig, MachineConfigNode, MachineConfigPool, label};
use mco_cluster::client;
use rustix::process::Signal;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use tokio::time::{Instant, sleep};

pub use self::daemons::Manner;
use self::{
    daemons::Daemons,
    measure::{Audit, Cpu, Requests},
    watch::Sights,
};
use crate::{
    api::{ApiServer as _, KubeApiServer, Process, Programs, Settings, command},
    pki::{Authority, Credentials},
};

/// How many writes we have under way at a time while we set up.
const WRITES: usize = 32;

/// Nothing takes this long unless it is broken.
const PATIENCE: Duration = Duration::from_mins(15);

/// The user that the controller is, by which its requests are told apart.
const CONTROLLER: &str = "mco-controller";

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The binary with the controller in it.
    pub mco: PathBuf,
    /// How many nodes there are.
    pub nodes: usize,
    /// How their daemons answer.
    pub manner: Manner,
    /// How long the controller is left alone before its memory is looked at.
    pub idle: Duration,
}

/// What was measured.
#[derive(Debug)]
pub struct Outcome {
    plan: Plan,
    /// Patches of one annotation of every node, by as many writers as the controller has.
    floor: Duration,
    /// Until it has counted all nodes.
    start: Effort,
    /// While nothing happens.
    idle: Effort,
    idle_memory: measure::Memory,
    sights: Sights,
    cpu: Duration,
    server_cpu: Duration,
    memory: measure::Memory,
    requests: Requests,
}

/// What the controller did in some time.
#[derive(Debug)]
struct Effort {
    cpu: Duration,
    requests: Requests,
}

/// A cluster with nodes and a controller.
struct Bench {
    api: KubeApiServer,
    controller: Process,
    client: Client,
    audit: Audit,
    plan: Plan,
    kubeconfig: PathBuf,
    log: PathBuf,
}

/// Measures one roll-out; everything is made in `folder` and gone afterwards.
pub async fn run(programs: &Programs, folder: &Path, plan: &Plan) -> anyhow::Result<Outcome> {
    let mut bench = Bench::start(programs, folder, plan).await?;
    let base = bench.furnish().await?;
    let floor = bench.floor().await?;
    // A fresh process, so that its memory is not that of the one that saw the nodes come.
    let start = bench.restart().await?;
    let idle = bench.idle().await?;
    let idle_memory = measure::Memory::of(bench.controller.id())?;
    let daemons = Daemons::start(&bench.client, plan.manner);
    let (cpu, server) = (bench.cpu()?, bench.server_cpu()?);
    bench.audit.skip()?;
    let sights = bench.roll_out(&base).await?;
    // What is said of nodes comes after the pool is done.
    settled::all_told(&bench.client).await?;
    let requests = bench.audit.requests(CONTROLLER)?;
    let outcome = Outcome {
        plan: plan.clone(),
        floor,
        start,
        idle,
        idle_memory,
        sights,
        cpu: bench.cpu()?.saturating_sub(cpu),
        server_cpu: bench.server_cpu()?.saturating_sub(server),
        memory: measure::Memory::of(bench.controller.id())?,
        requests,
    };
    drop(daemons);
    Ok(outcome)
}

impl Bench {
    async fn start(programs: &Programs, folder: &Path, plan: &Plan) -> anyhow::Result<Self> {
        let authority = Authority::new("fleet")?;
        let mut settings = Settings::loopback(&folder.join("api"));
        let audit = Audit::prepare(folder)?;
        settings.flags = audit.flags();
        let api = KubeApiServer::start(programs, &authority, &settings)?;
        let user = authority.user(CONTROLLER, Some("system:masters"))?;
        let text = authority.kubeconfig(api.url(), Credentials::Certificate(&user));
        let kubeconfig = measure::write(folder, "controller.kubeconfig", &text)?;
        let client = client::connect(Some(api.kubeconfig())).await?;
        objects::install(&client).await?;
        let log = folder.join("controller.log");
        let controller = controller(&plan.mco, &kubeconfig, &log)?;
        Ok(Self { api, controller, client, audit, plan: plan.clone(), kubeconfig, log })
    }

    /// Makes the nodes, each with what its daemon would have said in its MachineConfigNode; gives the
    /// config that they run.
    async fn furnish(&self) -> anyhow::Result<String> {
        let base =
            self.pool("has a config", |pool| !pool.spec.configuration.rendered.name.is_empty());
        let base = base.await?.spec.configuration.rendered.name;
        let nodes = Api::<Node>::all(self.client.clone());
        let names: Vec<String> = (0..self.plan.nodes).map(objects::name).collect();
        each(&names, |name| {
            let (nodes, node) = (nodes.clone(), objects::node(name, &base));
            async move {
                nodes.create(&PostParams::default(), &node?).await.map(drop).map_err(Into::into)
            }
        })
        .await?;
        let reports = Api::<MachineConfigNode>::all(self.client.clone());
        each(&names, |name| {
            let (reports, name, base) = (reports.clone(), name.to_owned(), base.clone());
            async move {
                let made =
                    await_condition(reports.clone(), &name, |found: Option<&_>| found.is_some());
                tokio::time::timeout(PATIENCE, made).await??;
                let status = Patch::Merge(json!({"status": objects::report(&base)}));
                reports.patch_status(&name, &PatchParams::default(), &status).await?;
                anyhow::Ok(())
            }
        })
        .await?;
        self.counted().await?;
        settled::all_told(&self.client).await?;
        Ok(base)
    }

    /// Waits until the controller has counted all nodes.
    async fn counted(&self) -> anyhow::Result<()> {
        let count = i32::try_from(self.plan.nodes)?;
        let counted = self.pool("counts its nodes", |pool| {
            pool.status.as_ref().is_some_and(|status| {
                status.machine_count == count && status.updated_machine_count == count
            })
        });
        counted.await.map(drop)
    }

    /// What the API server itself needs for one small write to each node.
    async fn floor(&self) -> anyhow::Result<Duration> {
        let nodes = Api::<Node>::all(self.client.clone());
        let names: Vec<String> = (0..self.plan.nodes).map(objects::name).collect();
        let start = Instant::now();
        each(&names, |name| {
            let (nodes, name) = (nodes.clone(), name.to_owned());
            async move {
                let patch =
                    Patch::Merge(json!({"metadata": {"annotations": {"example.com/x": "1"}}}));
                nodes.patch_metadata(&name, &PatchParams::default(), &patch).await?;
                anyhow::Ok(())
            }
        })
        .await?;
        Ok(start.elapsed())
    }

    /// Starts the controller anew; it leads and has counted all nodes afterwards.
    async fn restart(&mut self) -> anyhow::Result<Effort> {
        self.controller.signal(Signal::TERM)?;
        self.controller.wait(PATIENCE)?;
        // What the last one counted is taken away, so that it shows when this one has.
        let pools = Api::<MachineConfigPool>::all(self.client.clone());
        let nothing =
            Patch::Merge(json!({"status": {"machineCount": 0, "updatedMachineCount": 0}}));
        pools.patch_status("worker", &PatchParams::default(), &nothing).await?;
        self.audit.skip()?;
        self.controller = controller(&self.plan.mco, &self.kubeconfig, &self.log)?;
        let counted = self.counted().await;
        counted.with_context(|| format!("the controller says:\n{}", self.controller.log()))?;
        Ok(Effort { cpu: self.cpu()?, requests: self.audit.requests(CONTROLLER)? })
    }

    /// Leaves the controller alone for a while.
    async fn idle(&mut self) -> anyhow::Result<Effort> {
        let cpu = self.cpu()?;
        self.audit.skip()?;
        // What a process costs that has nothing to do is a question of time: here nothing is waited for.
        sleep(self.plan.idle).await;
        if let Some(status) = self.controller.ended()? {
            bail!("the controller ended ({status}):\n{}", self.controller.log());
        }
        let cpu = self.cpu()?.saturating_sub(cpu);
        Ok(Effort { cpu, requests: self.audit.requests(CONTROLLER)? })
    }

    async fn roll_out(&self, base: &str) -> anyhow::Result<Sights> {
        let watch = tokio::time::timeout(PATIENCE, watch::start(&self.client, base)).await?;
        let watch = watch.context("the roll-out cannot be watched")?;
        let start = Instant::now();
        let change = objects::config("99-worker-bench", "worker", "/etc/bench", 300);
        self.create(&change).await?;
        let seen = tokio::time::timeout(PATIENCE, watch.see(self.plan.nodes, start)).await;
        let seen = seen.with_context(|| format!("no end in sight:\n{}", self.controller.log()))?;
        seen.context("the roll-out cannot be watched")
    }

    async fn create<K>(&self, object: &K) -> anyhow::Result<()>
    where
        K: Resource<DynamicType = ()> + Clone + fmt::Debug + Serialize + DeserializeOwned,
    {
        let api = Api::<K>::all(self.client.clone());
        api.create(&PostParams::default(), object).await?;
        Ok(())
    }

    async fn pool(
        &self,
        what: &str,
        holds: impl Fn(&MachineConfigPool) -> bool,
    ) -> anyhow::Result<MachineConfigPool> {
        let pools = Api::<MachineConfigPool>::all(self.client.clone());
        let found = await_condition(pools, "worker", |pool: Option<&MachineConfigPool>| {
            pool.is_some_and(&holds)
        });
        let found = tokio::time::timeout(PATIENCE, found).await;
        let found = found.with_context(|| format!("pool worker never {what}"))??;
        found.with_context(|| format!("pool worker never {what}"))
    }

    fn cpu(&self) -> anyhow::Result<Duration> {
        Ok(Cpu::of(self.controller.id())?.0)
    }

    fn server_cpu(&mut self) -> anyhow::Result<Duration> {
        let [server, etcd] = self.api.processes();
        Ok(Cpu::of(server.id())?.0 + Cpu::of(etcd.id())?.0)
    }
}

fn controller(mco: &Path, kubeconfig: &Path, log: &Path) -> anyhow::Result<Process> {
    let mut start = command(mco);
    start.args(["controller", "start", "--metrics-listen-address", "127.0.0.1:0", "--kubeconfig"]);
    start.arg(kubeconfig).env_remove("RELEASE_VERSION");
    // The image sets this for every process.
    start.envs(xtask::image::TRIM.split_once('='));
    Process::start("the controller", &mut start, log)
}

/// Does something for each name, many at a time.
async fn each<F>(names: &[String], work: impl Fn(&str) -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let all = stream::iter(names).map(|name| work(name)).buffer_unordered(WRITES);
    let outcomes: Vec<anyhow::Result<()>> = all.collect().await;
    outcomes.into_iter().collect()
}

impl Outcome {
    /// Fails if the controller asked for more than is promised.
    pub fn check(&self) -> anyhow::Result<()> {
        let (share, most) = (self.requests_per_node(), self.plan.manner.most_requests());
        if share > most {
            bail!("{share:.2} requests per node, where {most} are promised at most");
        }
        Ok(())
    }

    #[expect(clippy::cast_precision_loss, reason = "both are small")]
    fn requests_per_node(&self) -> f64 {
        self.requests.total() as f64 / self.plan.nodes as f64
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self.plan.nodes;
        let mut line = |what: &str, value: String| writeln!(f, "{what:<44}{value}");
        line("nodes, daemons", format!("{nodes}, {}", self.plan.manner))?;
        line("one small write to each node, nothing else", seconds(self.floor))?;
        line("start: CPU", seconds(self.start.cpu))?;
        line("start: requests", self.start.requests.to_string())?;
        let (idle, long) = (&self.idle, seconds(self.plan.idle));
        line("idle: memory", self.idle_memory.to_string())?;
        line("idle: CPU", format!("{} in {long}", seconds(idle.cpu)))?;
        line("idle: requests", format!("{} in {long}", idle.requests))?;
        line("MachineConfig to rendered config", seconds(self.sights.rendered))?;
        line("MachineConfig to pool's target", seconds(self.sights.targeted))?;
        line("MachineConfig to first desiredConfig", seconds(self.sights.first))?;
        line("MachineConfig to last node done", seconds(self.sights.last))?;
        line("MachineConfig to pool Updated", seconds(self.sights.updated))?;
        line("nodes in update at once, at most", self.sights.at_once.to_string())?;
        line("controller CPU", seconds(self.cpu))?;
        line("API server and etcd CPU", seconds(self.server_cpu))?;
        line("memory afterwards", self.memory.to_string())?;
        let (requests, share) = (self.requests.total(), self.requests_per_node());
        line("requests", format!("{requests}, {share:.2} per node"))?;
        write!(f, "{}", self.requests.table())
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.3} s", time.as_secs_f64())
}
