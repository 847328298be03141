//! Benchmark of a rollout to a whole fleet on a real kube-apiserver, measured from outside the
//! controller.
//!
//! The controller is the shipped binary in its own process, so that its memory, CPU time and
//! requests can be told apart: the first two are read from `/proc`, the last from the API server's
//! audit log, by user name. Nodes and daemons are simulated, see `daemons`.

mod converged;
mod daemons;
mod measure;
mod objects;
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

pub use self::daemons::DaemonMode;
use self::{
    daemons::Daemons,
    measure::{AuditLog, Cpu, RequestCounts},
    watch::RolloutTimes,
};
use crate::{
    api::{ApiServer as _, KubeApiServer, Process, Programs, Settings, command},
    pki::{Authority, Credentials},
};

/// Number of concurrent writes during setup.
const SETUP_CONCURRENCY: usize = 32;

/// Timeout of every wait. Only a broken program exceeds it.
const TIMEOUT: Duration = Duration::from_mins(15);

/// User name of the controller, which identifies its requests in the audit log.
const CONTROLLER: &str = "mco-controller";

/// The parameters of a measurement.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Path of the `mco` binary.
    pub mco: PathBuf,
    /// Number of nodes.
    pub nodes: usize,
    /// Behaviour of the daemons.
    pub mode: DaemonMode,
    /// Idle time before the controller's memory is measured.
    pub idle: Duration,
}

/// The results of a measurement.
#[derive(Debug)]
pub struct Outcome {
    plan: Plan,
    /// Time for one patch of one annotation of every node, with as many writers as the controller
    /// has.
    baseline: Duration,
    /// From the controller's start until all nodes are counted.
    start: ResourceUsage,
    /// While nothing changes.
    idle: ResourceUsage,
    idle_memory: measure::Memory,
    times: RolloutTimes,
    cpu: Duration,
    server_cpu: Duration,
    memory: measure::Memory,
    requests: RequestCounts,
}

/// The controller's resource usage during a phase.
#[derive(Debug)]
struct ResourceUsage {
    cpu: Duration,
    requests: RequestCounts,
}

/// A cluster with nodes and a controller.
struct Bench {
    api: KubeApiServer,
    controller: Process,
    client: Client,
    audit: AuditLog,
    plan: Plan,
    kubeconfig: PathBuf,
    log: PathBuf,
}

/// Measures one rollout. All files are created in `folder` and removed afterwards.
pub async fn run(programs: &Programs, folder: &Path, plan: &Plan) -> anyhow::Result<Outcome> {
    let mut bench = Bench::start(programs, folder, plan).await?;
    let base = bench.create_nodes().await?;
    let baseline = bench.baseline().await?;
    // A new process, so that its memory does not include the creation of the nodes.
    let start = bench.restart().await?;
    let idle = bench.idle().await?;
    let idle_memory = measure::Memory::of(bench.controller.id())?;
    let daemons = Daemons::start(&bench.client, plan.mode);
    let (cpu, server) = (bench.cpu()?, bench.server_cpu()?);
    bench.audit.skip()?;
    let times = bench.roll_out(&base).await?;
    // The controller writes MachineConfigNodes until after the pool is updated.
    converged::wait(&bench.client).await?;
    let requests = bench.audit.requests(CONTROLLER)?;
    let outcome = Outcome {
        plan: plan.clone(),
        baseline,
        start,
        idle,
        idle_memory,
        times,
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
        let audit = AuditLog::prepare(folder)?;
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

    /// Creates the nodes, each with the MachineConfigNode status that its daemon would report.
    /// Returns the name of their config.
    async fn create_nodes(&self) -> anyhow::Result<String> {
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
                tokio::time::timeout(TIMEOUT, made).await??;
                let status = Patch::Merge(json!({"status": objects::report(&base)}));
                reports.patch_status(&name, &PatchParams::default(), &status).await?;
                anyhow::Ok(())
            }
        })
        .await?;
        self.counted().await?;
        converged::wait(&self.client).await?;
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

    /// Measures the API server's own time for one small write to each node.
    async fn baseline(&self) -> anyhow::Result<Duration> {
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

    /// Restarts the controller. It leads and has counted all nodes afterwards.
    async fn restart(&mut self) -> anyhow::Result<ResourceUsage> {
        self.controller.signal(Signal::TERM)?;
        self.controller.wait(TIMEOUT)?;
        // Resets the counts of the previous process, so that the new counts are visible.
        let pools = Api::<MachineConfigPool>::all(self.client.clone());
        let nothing =
            Patch::Merge(json!({"status": {"machineCount": 0, "updatedMachineCount": 0}}));
        pools.patch_status("worker", &PatchParams::default(), &nothing).await?;
        self.audit.skip()?;
        self.controller = controller(&self.plan.mco, &self.kubeconfig, &self.log)?;
        let counted = self.counted().await;
        counted.with_context(|| format!("log of the controller:\n{}", self.controller.log()))?;
        Ok(ResourceUsage { cpu: self.cpu()?, requests: self.audit.requests(CONTROLLER)? })
    }

    /// Measures the controller while nothing changes.
    async fn idle(&mut self) -> anyhow::Result<ResourceUsage> {
        let cpu = self.cpu()?;
        self.audit.skip()?;
        // Idle usage can only be measured over time: this sleep waits for nothing.
        sleep(self.plan.idle).await;
        if let Some(status) = self.controller.try_wait()? {
            bail!("the controller ended ({status}):\n{}", self.controller.log());
        }
        let cpu = self.cpu()?.saturating_sub(cpu);
        Ok(ResourceUsage { cpu, requests: self.audit.requests(CONTROLLER)? })
    }

    async fn roll_out(&self, base: &str) -> anyhow::Result<RolloutTimes> {
        let watch = tokio::time::timeout(TIMEOUT, watch::start(&self.client, base)).await?;
        let watch = watch.context("failed to watch the rollout")?;
        let start = Instant::now();
        let change = objects::config("99-worker-bench", "worker", "/etc/bench", 300);
        self.create(&change).await?;
        let seen = tokio::time::timeout(TIMEOUT, watch.see(self.plan.nodes, start)).await;
        let seen =
            seen.with_context(|| format!("the rollout timed out:\n{}", self.controller.log()))?;
        seen.context("failed to watch the rollout")
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
        let found = tokio::time::timeout(TIMEOUT, found).await;
        let found =
            found.with_context(|| format!("timed out waiting until pool worker {what}"))??;
        found.with_context(|| format!("the watch ended before pool worker {what}"))
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
    // The container image sets this variable for every process.
    start.envs(xtask::image::TRIM.split_once('='));
    Process::start("the controller", &mut start, log)
}

/// Runs `work` for each name, concurrently.
async fn each<F>(names: &[String], work: impl Fn(&str) -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let all = stream::iter(names).map(|name| work(name)).buffer_unordered(SETUP_CONCURRENCY);
    let outcomes: Vec<anyhow::Result<()>> = all.collect().await;
    outcomes.into_iter().collect()
}

impl Outcome {
    /// Fails if the controller sent more requests than allowed.
    pub fn check(&self) -> anyhow::Result<()> {
        let (share, most) = (self.requests_per_node(), self.plan.mode.most_requests());
        if share > most {
            bail!("{share:.2} requests per node, at most {most} are allowed");
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
        line("nodes, daemons", format!("{nodes}, {}", self.plan.mode))?;
        line("baseline: one small write to each node", seconds(self.baseline))?;
        line("start: CPU", seconds(self.start.cpu))?;
        line("start: requests", self.start.requests.to_string())?;
        let (idle, long) = (&self.idle, seconds(self.plan.idle));
        line("idle: memory", self.idle_memory.to_string())?;
        line("idle: CPU", format!("{} in {long}", seconds(idle.cpu)))?;
        line("idle: requests", format!("{} in {long}", idle.requests))?;
        line("MachineConfig to rendered config", seconds(self.times.rendered))?;
        line("MachineConfig to pool's target", seconds(self.times.targeted))?;
        line("MachineConfig to first desiredConfig", seconds(self.times.first))?;
        line("MachineConfig to last node done", seconds(self.times.last))?;
        line("MachineConfig to pool Updated", seconds(self.times.updated))?;
        line("nodes in update at once, at most", self.times.at_once.to_string())?;
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
