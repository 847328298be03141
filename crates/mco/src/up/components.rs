//! The components of the cluster, each started as it would run alone.

use std::{net::SocketAddr, time::Duration};

use anyhow::Context as _;
use kube::Client;
use mco_cluster::{
    Clock, NoteCount, Reporter, Shutdown,
    client::{self, Identity},
    config_server::{ConfigServer, Trust},
};
use mco_core::{drain::EvictionTiming, render::Build};
use mco_daemon::{
    DaemonContext,
    simulate::{self, FirstConfig, Power},
};
use mco_server::{
    Admission, ClusterSource, Server, Settings as ServerSettings,
    admission::{AdmissionSettings, Requirement},
    api_url::ApiUrl,
    source::JoinSettings,
};
use tokio::{sync::watch, task::JoinSet};

use super::{
    Settings,
    certificate::{self, ServerCertificate},
    display::ClusterWatch,
    fleet,
    kubelet::{self, Registration},
    state_dir::StateDir,
    workload,
};
use crate::remote;

/// Time that a simulated machine takes to boot.
const BOOT_TIME: Duration = Duration::from_millis(300);

/// Pods terminate at once here, so drains retry sooner than on real machines.
const DRAIN_PACE: EvictionTiming = EvictionTiming {
    attempt_timeout: Duration::from_secs(90),
    retry_interval: Duration::from_millis(200),
};

/// The running components, with the values that each of them needs.
pub(crate) struct Components<'s> {
    pub(crate) state: &'s StateDir,
    pub(crate) settings: &'s Settings,
    pub(crate) client: Client,
    pub(crate) shutdown: Shutdown,
    pub(crate) tasks: JoinSet<anyhow::Result<()>>,
}

impl Components<'_> {
    /// Starts the machines, their kubelets and their daemons. New machines take their first config from
    /// the config server.
    pub(crate) fn machines(&mut self, server: SocketAddr) -> anyhow::Result<()> {
        let trust = Trust::authorities(&certificate::authorities(self.state)?)?;
        let server = ConfigServer::new(&format!("https://{server}"), &trust)?;
        for machine in fleet::machines(self.settings.masters, self.settings.workers) {
            let (power, seen) = watch::channel(Power::Off);
            let root = self.state.node(machine.name.as_str());
            let node = machine.name.clone();
            let pool = machine.role.word().to_owned();
            let kubelet = kubelet::run(
                self.client.clone(),
                machine,
                root.clone(),
                Clock::System,
                (seen, Registration::AfterFirstBoot),
                self.shutdown.clone(),
            );
            self.spawn(kubelet);
            let boot_time = BOOT_TIME;
            let first = FirstConfig::Server { server: server.clone(), pool };
            let machine = simulate::Machine { node: node.clone(), root, boot_time, power, first };
            let notes = NoteCount::default();
            let client = self.client_of(Identity::new("machine-config-daemon"));
            let reporter = Reporter::new(client.clone(), "machineconfigdaemon", notes);
            let around = DaemonContext::new(client, reporter);
            let shutdown = self.shutdown.clone();
            self.tasks.spawn(async move {
                let run = Box::pin(simulate::simulate(machine, around, shutdown)).await;
                run.with_context(|| format!("simulated machine {node} failed"))
            });
        }
        Ok(())
    }

    /// Starts the operator.
    pub(crate) fn operator(&mut self, build: Build) {
        let mut config = mco_operator::Config::new(build, env!("CARGO_PKG_VERSION"));
        let kubeconfig = remote::kubeconfig(self.state.dir());
        let client = self.client_of(Identity::new("machine-config-operator"));
        config.root_ca = mco_operator::RootCa::Connection(Some(kubeconfig));
        let run = mco_operator::run(config, client, self.shutdown.clone());
        self.spawn(async move {
            run.await;
        });
    }

    /// Starts the controller.
    pub(crate) fn controller(&mut self, build: Build) {
        let mut config = mco_controller::Config::new(build);
        config.pace = DRAIN_PACE;
        let client = self.client_of(Identity::new("machine-config-controller"));
        let run = mco_controller::run(config, client, self.shutdown.clone());
        self.spawn(async move {
            run.await;
        });
    }

    /// Starts the config server, once the controller has issued its certificate, and returns its
    /// address. Returns none if the cluster is stopped before.
    pub(crate) async fn server(&mut self, api: SocketAddr) -> anyhow::Result<Option<SocketAddr>> {
        let files = ServerCertificate::new(&self.client, self.state)?;
        let certificate = tokio::select! {
            found = files.wait(self.state) => found?,
            failed = first_failure(&mut self.tasks) => return Err(failed),
            () = self.shutdown.requested() => return Ok(None),
        };
        self.spawn(files.follow(self.shutdown.clone()));
        let mut settings = ServerSettings::new(certificate);
        settings.secure = self.settings.server_listen;
        settings.plain = None;
        let client = self.client_of(Identity::new("machine-config-server"));
        let ca = self.state.dir().join("ca.crt");
        let joining = JoinSettings {
            server: ApiUrl::Fixed(format!("https://{api}")),
            credentials: certificate::bootstrap_credentials(self.state, &ca)?,
        };
        let source = ClusterSource::watch(&client, Some(joining), &self.shutdown).await;
        let admission = AdmissionSettings::new(Requirement::ByControllerConfig);
        let admission = Admission::watch(&client, admission, source.health(), &self.shutdown);
        settings.admission = Some(admission);
        let server = Server::open(settings, source).await?;
        let address = server.secure_address()?;
        let shutdown = self.shutdown.clone();
        self.spawn(async move { server.serve(&shutdown).await });
        Ok(Some(address))
    }

    /// Starts the example workload.
    pub(crate) fn workload(&mut self, cluster: &ClusterWatch) {
        let wanted = usize::from(self.settings.workers);
        let (nodes, shutdown) = (cluster.nodes.clone(), self.shutdown.clone());
        let updates = workload::BudgetUpdates::ByApiServer;
        self.spawn(workload::run(self.client.clone(), nodes, wanted, updates, shutdown));
    }

    /// Returns a client for a process, with the deadlines and retries that the process has elsewhere.
    fn client_of(&self, identity: Identity) -> Client {
        let options = client::Options { identity, ..client::Options::default() };
        client::over(client::service(self.client.clone()), "default", &options)
    }

    fn spawn(&mut self, component: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(async move {
            component.await;
            Ok(())
        });
    }
}

/// Waits until a component fails; components that end without an error are ignored.
pub(crate) async fn first_failure(tasks: &mut JoinSet<anyhow::Result<()>>) -> anyhow::Error {
    loop {
        match tasks.join_next().await {
            Some(Ok(Ok(()))) => {}
            Some(Ok(Err(error))) => return error,
            Some(Err(error)) => {
                return anyhow::Error::new(error).context("a component panicked");
            }
            None => std::future::pending().await,
        }
    }
}
