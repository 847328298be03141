//! The first configs of machines that the cluster orders, where it orders any.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    ByteString,
    api::core::v1::{Namespace, Secret},
};
use kube::{Api, ResourceExt as _, api::ListParams, runtime::watcher};
use mco_api::label;
use mco_cluster::{
    Cache, CallError, Queue, Shutdown,
    apply::{self, Guard},
    error::Refused,
};
use mco_core::certs::{self, UserData};
use serde_json::json;
use tokio::sync::watch;
use tracing::{info, warn};

use super::CertificateError;
use crate::Context;

/// The member of the Secret that has the config.
const USER_DATA: &str = "userData";

/// The machines that a cluster orders.
pub(super) struct Machines {
    queue: Arc<Queue<()>>,
    delay: Duration,
    /// Whether the cluster orders any.
    there: watch::Sender<bool>,
}

impl Machines {
    pub(super) fn new(queue: Arc<Queue<()>>, delay: Duration) -> Self {
        Self { queue, delay, there: watch::Sender::new(false) }
    }

    /// Whether the cluster orders machines at all.
    pub(super) async fn are_there(&self, context: &Context) -> Result<bool, CertificateError> {
        let api = Api::<Namespace>::all(context.client.clone());
        let there = match api.get_opt(label::MACHINE_NAMESPACE).await.map_err(CallError::from) {
            Ok(found) => found.is_some(),
            // Who must not look there has no machines to tell.
            Err(error) if error.refused() == Some(Refused::Other(403)) => false,
            Err(source) => {
                let name = label::MACHINE_NAMESPACE.to_owned();
                return Err(CertificateError::Read { kind: "Namespace", name, source });
            }
        };
        self.there.send_replace(there);
        Ok(there)
    }

    /// Wakes the queue when such a config changes; never ends by itself.
    pub(super) async fn watch(&self, context: &Context, shutdown: &Shutdown) {
        let mut there = self.there.subscribe();
        // The sender is part of `self`, so it is not gone while somebody waits.
        drop(there.wait_for(|there| *there).await);
        let (queue, delay) = (self.queue.clone(), self.delay);
        let cache = Cache::<Secret>::new(super::forget_secret);
        cache.on_change(move |_| queue.settle((), delay));
        let api = Api::namespaced(context.client.clone(), label::MACHINE_NAMESPACE);
        cache.run(api, watcher::Config::default(), shutdown).await;
        // What the queue has begun is not broken off.
        std::future::pending::<()>().await;
    }

    /// Has the machines to come trust the authorities.
    pub(super) async fn trust(
        &self,
        context: &Context,
        bundle: &str,
    ) -> Result<(), CertificateError> {
        if !*self.there.borrow() {
            return Ok(());
        }
        let api = Api::<Secret>::namespaced(context.client.clone(), label::MACHINE_NAMESPACE);
        // Those with the label are the operator's to write.
        let others = ListParams::default().labels(&format!("!{}", label::MANAGED_USER_DATA));
        let secrets = api.list(&others).await.map_err(CallError::from);
        let secrets = secrets.map_err(|source| CertificateError::Read {
            kind: "Secrets of namespace",
            name: label::MACHINE_NAMESPACE.to_owned(),
            source,
        })?;
        for secret in secrets {
            trust(&api, &secret, bundle).await?;
        }
        Ok(())
    }
}

async fn trust(api: &Api<Secret>, secret: &Secret, bundle: &str) -> Result<(), CertificateError> {
    let name = secret.name_any();
    let Some(config) = secret.data.as_ref().and_then(|data| data.get(USER_DATA)) else {
        return Ok(());
    };
    let replaced = match certs::trust(&config.0, bundle) {
        UserData::Foreign | UserData::Current | UserData::Unnamed => return Ok(()),
        UserData::Several => {
            warn!(name, "additional CAs detected, cannot modify automatically. Aborting");
            return Ok(());
        }
        UserData::Replaced(config) => config,
    };
    let version = secret.resource_version().unwrap_or_default();
    let patch = json!({"data": {USER_DATA: ByteString(replaced)}});
    let written = apply::merge(api, &name, patch, Guard::Unchanged(&version)).await;
    written.map_err(|source| CertificateError::Write {
        kind: "Secret",
        name: name.clone(),
        source,
    })?;
    info!(name, "Machines to come trust the config server's authorities");
    Ok(())
}
