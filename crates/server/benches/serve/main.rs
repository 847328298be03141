//! Measures the server over TLS on loopback, beside a bare hyper server and nginx with the same bytes.
//!
//! `make bench`, or `cargo bench -p mco-server` after `make dist`: the measured process is the shipped
//! binary. The cluster is the embedded API server. All servers and this client share the machine, so
//! only figures of the same run can be compared; each server has its turn in each round.
//!
//! `MCO_BENCH_SMOKE=1` makes everything short, to see that it runs. `MCO_BENCH_REQUESTS` is the number of
//! requests before the memory is measured, `MCO_BENCH_BINARY` another `mco`.

#![expect(clippy::disallowed_methods, reason = "measures processes from outside")]

mod load;
mod servers;

use std::{
    env, fs,
    io::{self, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use mco_api::{
    ControllerConfig, MachineConfig, MachineConfigPool, controller_config::ControllerConfigSpec,
};
use mco_apiserver::{ApiServer, Listener, Settings};
use serde_json::json;

use self::{
    load::{Load, Target},
    servers::{Hyper, Mco, Nginx},
};

pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Bytes of a usual worker's document, as in the measurements of the reference.
const SIZE: usize = 445_000;

/// Connections of an idle crowd.
const IDLE_CONNECTIONS: usize = 1_000;

/// Configs that no pool selects.
const MORE_CONFIGS: usize = 100;

/// Sizes of a run.
struct Extent {
    rounds: usize,
    duration: Duration,
    requests: usize,
    idle_connections: usize,
    more_configs: usize,
}

impl Extent {
    fn from_environment() -> Self {
        let requests = env::var("MCO_BENCH_REQUESTS").ok().and_then(|text| text.parse().ok());
        if env::var_os("MCO_BENCH_SMOKE").is_some() {
            return Self {
                rounds: 1,
                duration: Duration::from_millis(300),
                requests: requests.unwrap_or(200),
                idle_connections: 50,
                more_configs: 3,
            };
        }
        Self {
            rounds: 3,
            duration: Duration::from_secs(5),
            requests: requests.unwrap_or(200_000),
            idle_connections: IDLE_CONNECTIONS,
            more_configs: MORE_CONFIGS,
        }
    }
}

fn main() -> Outcome<()> {
    if let Ok(role) = env::var(servers::ROLE) {
        return servers::run_hyper(&role);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(&Extent::from_environment()))
}

fn say(what: &str, found: &str, note: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{what:<44} {found:>14}   {note}")
}

async fn measure(extent: &Extent) -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    let pair = servers::Pair::create(folder.path())?;
    let api = ApiServer::in_memory(Settings::default()).await?;
    let client = Client::new(api.clone(), "default");
    create_objects(&client).await?;
    let listener = Listener::bind(api, folder.path(), ([127, 0, 0, 1], 0).into()).await?;
    let kubeconfig = listener.kubeconfig().to_owned();
    tokio::spawn(listener.serve(std::future::pending()));

    let mco = Mco::start(&kubeconfig, &pair, folder.path()).await?;
    let target = Target::new(mco.address(), &pair)?;
    let body = target.fetch().await?;
    say("document", &format!("{} bytes", body.len()), mco.what())?;
    throughput(extent, &target, &body, &pair, folder.path()).await?;
    memory(extent, &mco, &target).await?;
    drop(mco);
    more_configs(extent, &client, &kubeconfig, &pair, folder.path()).await
}

/// Compares the requests per second of the three servers, and measures the latency of `mco`.
async fn throughput(
    extent: &Extent,
    mco: &Target,
    body: &[u8],
    pair: &servers::Pair,
    folder: &Path,
) -> Outcome<()> {
    let hyper = Hyper::start(body, pair, folder).await?;
    let nginx = Nginx::start(body, pair, folder).await?;
    if nginx.is_none() {
        say("nginx", "skipped", "not installed (Debian: apt install nginx)")?;
    }
    let mut targets = vec![("mco", mco.clone())];
    targets.push(("bare hyper", Target::new(hyper.address(), pair)?));
    if let Some(nginx) = &nginx {
        targets.push(("nginx", Target::new(nginx.address(), pair)?));
    }
    for connections in [1, 64] {
        let mut best = vec![0.0_f64; targets.len()];
        for _ in 0..extent.rounds {
            for ((_, target), best) in targets.iter().zip(&mut best) {
                let found = Load::new(connections, extent.duration).run(target).await?;
                *best = best.max(found.per_second());
            }
        }
        let ours = best.first().copied().unwrap_or_default();
        for ((name, _), found) in targets.iter().zip(&best) {
            let note = format!("mco has {:.2} of it", ours / found);
            say(&format!("{name}, {connections} connections"), &format!("{found:.0}/s"), &note)?;
        }
    }
    let found = Load::new(16, extent.duration).run(mco).await?;
    let (median, slow) = (found.percentile(50), found.percentile(99));
    let note = format!("median {median:.2?}; wanted 50 ms");
    say("mco, 16 connections, 99th percentile", &format!("{slow:.2?}"), &note)?;
    Ok(())
}

async fn memory(extent: &Extent, mco: &Mco, target: &Target) -> Outcome<()> {
    let mut requests = 0;
    while requests < extent.requests {
        requests += Load::new(64, extent.duration).run(target).await?.requests();
    }
    let note = format!("{}; wanted 20 MiB", mco.memory_note()?);
    say(&format!("memory (RSS) after {requests} requests"), &mco.memory()?, &note)?;
    let idle = target.idle_connections(extent.idle_connections).await?;
    // A connection has buffers for a moment after its last response.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let note = format!("{}; wanted 30 MiB", mco.memory_note()?);
    say(&format!("memory with {} idle connections", idle.len()), &mco.memory()?, &note)?;
    Ok(())
}

async fn more_configs(
    extent: &Extent,
    client: &Client,
    kubeconfig: &Path,
    pair: &servers::Pair,
    folder: &Path,
) -> Outcome<()> {
    for more in [0, extent.more_configs] {
        let configs: Api<MachineConfig> = Api::all(client.clone());
        for number in 0..more {
            let config = config(&format!("rendered-other-{number}"))?;
            configs.create(&PostParams::default(), &config).await?;
        }
        let mco = Mco::start(kubeconfig, pair, folder).await?;
        Target::new(mco.address(), pair)?.fetch().await?;
        let what = format!("memory after one request, {more} more configs");
        say(&what, &mco.memory()?, &mco.memory_note()?)?;
    }
    Ok(())
}

/// Builds a config whose document has about `SIZE` bytes.
fn config(name: &str) -> Outcome<MachineConfig> {
    let file = |index: usize| {
        let source = format!("data:,{}", "x".repeat(1000));
        json!({"path": format!("/etc/{index}"), "mode": 420, "contents": {"source": source}})
    };
    // Each file appears twice, the second time inside the contents of another one.
    let files: Vec<_> = (0..SIZE / 2713).map(file).collect();
    let ignition = json!({"ignition": {"version": "3.5.0"}, "storage": {"files": files}});
    let object = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": name}, "spec": {"config": ignition}
    });
    Ok(serde_json::from_str(&object.to_string())?)
}

async fn create_objects(client: &Client) -> Outcome<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in mco_api::crds() {
        definitions.create(&PostParams::default(), &definition).await?;
    }
    let configs: Api<MachineConfig> = Api::all(client.clone());
    configs.create(&PostParams::default(), &config("rendered-worker-1")?).await?;
    let controllers: Api<ControllerConfig> = Api::all(client.clone());
    let ca: mco_api::Bytes = b"ca".to_vec().into();
    let spec = ControllerConfigSpec {
        kube_api_server_serving_ca_data: ca.clone(),
        root_ca_data: ca,
        ..ControllerConfigSpec::default()
    };
    let controller = ControllerConfig::new("machine-config-controller", spec);
    controllers.create(&PostParams::default(), &controller).await?;
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let name = json!({"name": "rendered-worker-1"});
    let pool = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": "worker"}, "spec": {"configuration": name}
    });
    pools.create(&PostParams::default(), &serde_json::from_value(pool)?).await?;
    let status = json!({"status": {"updatedMachineCount": 1, "configuration": name}});
    pools.patch_status("worker", &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

/// Returns the shipped binary, or the one that the environment names.
fn program() -> Outcome<PathBuf> {
    if let Some(program) = env::var_os("MCO_BENCH_BINARY") {
        return Ok(program.into());
    }
    // Benchmarks are in a directory below the one of the binaries of their profile.
    let this = env::current_exe()?;
    let found = this.ancestors().nth(3).map(|folder| folder.join("dist/mco"));
    found.filter(|mco| mco.exists()).ok_or_else(|| "there is no dist/mco; run `make dist`".into())
}

/// Returns a line of `/proc/PID/status`.
fn process_status(process: u32, key: &str) -> Outcome<String> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let found = status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
    Ok(found.trim().to_owned())
}

/// Returns a loopback address that is free at the moment.
fn free_address() -> Outcome<SocketAddr> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
