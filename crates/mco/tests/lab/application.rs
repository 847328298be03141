//! Somebody's application on the machines, which must not suffer from updates.

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
use mco_testkit::lab::{Lab, Step};
use tokio::task::JoinHandle;

use crate::workspace;

const NAME: &str = "application";
const NAMESPACE: &str = "default";

/// A Deployment of three pods with a budget that lets one of them be missing.
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
    /// Starts it.
    pub(crate) async fn start(lab: &'l Lab) -> anyhow::Result<Self> {
        let manifest = workspace().join("crates/mco/tests/lab/application.yaml");
        lab.ask(&["apply", "-f", &manifest.display().to_string()])?;
        let fewest = Arc::new(AtomicI32::new(i32::MAX));
        let watcher = tokio::spawn(follow(deployments(lab), Arc::clone(&fewest)));
        let application = Self { lab, fewest, watcher };
        application.wait_complete().await?;
        Ok(application)
    }

    /// Waits until all pods are there, so that one may go.
    pub(crate) async fn wait_complete(&self) -> anyhow::Result<()> {
        let budgets: Api<PodDisruptionBudget> = Api::namespaced(self.lab.client(), NAMESPACE);
        let step = Step::of_all("the application to be complete");
        self.lab
            .wait(step, budgets, NAME, |budget| {
                let status = budget.status.clone().unwrap_or_default();
                let healthy = status.current_healthy.unwrap_or_default();
                if healthy == 3 { Ok(()) } else { Err(format!("{healthy} pods are healthy")) }
            })
            .await
    }

    /// The least number of pods that were available since this was last asked.
    pub(crate) fn fewest_available(&self) -> i32 {
        self.fewest.swap(i32::MAX, Ordering::SeqCst)
    }

    /// The identities of its pods.
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
        let available = deployment.status.and_then(|status| status.available_replicas);
        was_complete |= available == Some(3);
        if was_complete {
            fewest.fetch_min(available.unwrap_or_default(), Ordering::SeqCst);
        }
    }
}
