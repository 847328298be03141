//! An application on the machines that must stay available during updates.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
};

use futures::StreamExt as _;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::{Api, api::ListParams, runtime::watcher::watch_object};
use mco_testkit::lab::{Lab, WaitTarget};
use tokio::task::JoinHandle;

use crate::workspace;

const NAME: &str = "application";
const NAMESPACE: &str = "default";

/// A Deployment of three pods with a budget that allows one missing pod.
pub(crate) struct Application<'l> {
    lab: &'l Lab,
    fewest: Arc<AtomicI32>,
    watcher: JoinHandle<()>,
}

impl Drop for Application<'_> {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

impl<'l> Application<'l> {
    /// Starts the application.
    pub(crate) async fn start(lab: &'l Lab) -> anyhow::Result<Self> {
        let manifest = workspace().join("crates/mco/tests/lab/application.yaml");
        lab.ask(&["apply", "-f", &manifest.display().to_string()])?;
        let fewest = Arc::new(AtomicI32::new(i32::MAX));
        let watcher = tokio::spawn(follow(deployments(lab), Arc::clone(&fewest)));
        let application = Self { lab, fewest, watcher };
        application.wait_complete().await?;
        Ok(application)
    }

    /// Waits until all pods are available, so that one may be evicted.
    pub(crate) async fn wait_complete(&self) -> anyhow::Result<()> {
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(self.lab.client(), NAMESPACE);
        let step = WaitTarget::cluster("the application to be complete");
        self.lab
            .wait(step, budgets, NAME, |budget| {
                let status = budget.status.clone().unwrap_or_default();
                let healthy = status.current_healthy.unwrap_or_default();
                if healthy == 3 { Ok(()) } else { Err(format!("{healthy} pods are healthy")) }
            })
            .await
    }

    /// Returns the minimum of available pods since the last call.
    pub(crate) fn fewest_available(&self) -> i32 {
        self.fewest.swap(i32::MAX, Ordering::SeqCst)
    }

    /// Returns the UIDs of the pods.
    pub(crate) async fn pods(&self) -> anyhow::Result<BTreeSet<String>> {
        let pods: Api<Pod> = Api::namespaced(self.lab.client(), NAMESPACE);
        let ours = ListParams::default().labels("app=application");
        Ok(pods.list(&ours).await?.iter().filter_map(kube::ResourceExt::uid).collect())
    }
}

fn deployments(lab: &Lab) -> Api<Deployment> {
    Api::namespaced(lab.client(), NAMESPACE)
}

async fn follow(deployments: Api<Deployment>, fewest: Arc<AtomicI32>) {
    let mut changes = std::pin::pin!(watch_object(deployments, NAME));
    let mut was_complete = false;
    while let Some(change) = changes.next().await {
        let Ok(Some(deployment)) = change else { continue };
        let status = deployment.status.unwrap_or_default();
        let (available, conditions) = (status.available_replicas, status.conditions);
        was_complete |= available == Some(3);
        if was_complete {
            if available < Some(2) {
                // Visible in failed tests and with `--nocapture`.
                eprintln!("lab: the application has {available:?} pods: {conditions:?}");
            }
            fewest.fetch_min(available.unwrap_or_default(), Ordering::SeqCst);
        }
    }
}
