//! The components of the cluster, each started as it would run alone.

use std::{net::SocketAddr, time::Duration};

use anyhow::Context as _;
use kube::Client;
use mco_cluster::{
    Clock, NoteCount, Reporter, Shutdown,
    config_server::{ConfigServer, Trust},
};
use mco_core::{drain::EvictionTiming, render::Build};
use mco_daemon::{
    Clients, DaemonContext,
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
    bootstrap_token::BootstrapToken,
    certificate::{self, ServerCertificate},
    component_pods::{self, CONTROLLER, DAEMON, OPERATOR, SERVER},
    controllers,
    display::ClusterWatch,
    fleet,
    kubelet::{self, Registration},
    rights::Identities,
    state_dir::StateDir,
    workload::{self, BudgetUpdates},
    zones,
};
use crate::{command::token, remote};

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
    /// The client of `mco up` itself.
    pub(crate) client: Client,
    pub(crate) shutdown: Shutdown,
    pub(crate) tasks: JoinSet<anyhow::Result<()>>,
}

impl Components<'_> {
    /// Starts the machines, their kubelets and their daemons. New machines take their first config from
    /// the config server.
    pub(crate) async fn machines(
        &mut self,
        identities: &Identities,
        server: SocketAddr,
    ) -> anyhow::Result<()> {
        let trust = Trust::authorities(&certificate::authorities(self.state)?)?;
        let server = ConfigServer::new(&format!("https://{server}"), &trust)?;
        let requires_tokens = token::fetch_required(&self.client).await?;
        for machine in fleet::machines(self.settings.masters, self.settings.workers) {
            let (power, seen) = watch::channel(Power::Off);
            let root = self.state.node(machine.name.as_str());
            let node = machine.name.clone();
            let pool = machine.role.word().to_owned();
            let kubelet = kubelet::run(
                kubelet::Clients {
                    administrator: self.client.clone(),
                    node: identities.kubelet("kubelet", node.as_str()),
                },
                machine,
                root.clone(),
                Clock::System,
                (seen, Registration::AfterFirstBoot),
                self.shutdown.clone(),
            );
            let boot_time = BOOT_TIME;
            let token = if requires_tokens && !self.state.is_installed(node.as_str()) {
                Some(token::issue(&self.client, &pool, node.as_str()).await?)
            } else {
                None
            };
            let first = FirstConfig::Server { server: server.clone(), pool, token };
            let machine = simulate::Machine { node: node.clone(), root, boot_time, power, first };
            let notes = NoteCount::default();
            // A daemon writes its node with the credentials of the kubelet.
            let of_node = identities.kubelet(DAEMON, node.as_str());
            let own = identities.component_on(DAEMON, node.as_str());
            let reporter = Reporter::new(of_node.clone(), "machineconfigdaemon", notes);
            let around = DaemonContext::new(Clients { own, node: of_node }, reporter);
            let shutdown = self.shutdown.clone();
            self.spawn(kubelet);
            self.tasks.spawn(async move {
                let run = Box::pin(simulate::simulate(machine, around, shutdown)).await;
                run.with_context(|| format!("simulated machine {node} failed"))
            });
        }
        Ok(())
    }

    /// Starts the operator.
    pub(crate) fn operator(&mut self, identities: &Identities, build: Build) {
        let mut config = mco_operator::Config::new(build, env!("CARGO_PKG_VERSION"));
        let kubeconfig = remote::kubeconfig(self.state.dir());
        let client = identities.component(OPERATOR);
        config.root_ca = mco_operator::RootCa::Connection(Some(kubeconfig));
        let run = mco_operator::run(config, client, self.shutdown.clone());
        self.spawn(async move {
            run.await;
        });
    }

    /// Starts the controller.
    pub(crate) fn controller(&mut self, identities: &Identities, build: Build) {
        let mut config = mco_controller::Config::new(build);
        config.pace = DRAIN_PACE;
        let client = identities.component(CONTROLLER);
        let run = mco_controller::run(config, client, self.shutdown.clone());
        self.spawn(async move {
            run.await;
        });
    }

    /// Starts the config server, once the controller has issued its certificate, and returns its
    /// address. Returns none if the cluster is stopped before.
    pub(crate) async fn server(
        &mut self,
        identities: &Identities,
        api: SocketAddr,
    ) -> anyhow::Result<Option<SocketAddr>> {
        let files = ServerCertificate::new(&self.client, self.state)?;
        let token = BootstrapToken::new(&self.client, self.state)?;
        let (certificate, credentials) = tokio::select! {
            found = async { tokio::try_join!(files.wait(self.state), token.wait()) } => found?,
            failed = first_failure(&mut self.tasks) => return Err(failed),
            () = self.shutdown.requested() => return Ok(None),
        };
        self.spawn(files.follow(self.shutdown.clone()));
        self.spawn(token.follow(self.shutdown.clone()));
        let mut settings = ServerSettings::new(certificate);
        settings.secure = self.settings.server_listen;
        settings.plain = None;
        let client = identities.component(SERVER);
        let server = ApiUrl::Fixed(format!("https://{api}"));
        let joining = JoinSettings { server, credentials };
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

    /// Starts what Kubernetes and a cloud provider do, the workloads of the components, and the
    /// example workload.
    pub(crate) fn simulation(&mut self, cluster: &ClusterWatch) {
        let (client, nodes) = (self.client.clone(), cluster.nodes.clone());
        let shutdown = self.shutdown.clone();
        self.spawn(controllers::run(client.clone(), nodes, Clock::System, shutdown.clone()));
        self.spawn(component_pods::run(client.clone(), shutdown.clone()));
        let (wanted, updates) = (usize::from(self.settings.workers), BudgetUpdates::ByApiServer);
        self.spawn(workload::run(client.clone(), wanted, updates, shutdown.clone()));
        if let Some(zones) = self.settings.zones {
            self.spawn(zones::run(client, cluster.nodes.clone(), zones, shutdown));
        }
    }

    pub(crate) fn spawn(&mut self, component: impl Future<Output = ()> + Send + 'static) {
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
