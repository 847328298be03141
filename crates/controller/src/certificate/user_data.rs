//! User data of machines that the cluster creates: adds the CA bundle of the config server.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    ByteString,
    api::core::v1::{Namespace, Secret},
};
use kube::{ResourceExt as _, api::ListParams};
use mco_api::label;
use mco_cluster::{
    Api, Cache, CallError, Queue, Shutdown,
    apply::{self, Precondition},
    error::Rejection,
    watch::Config,
};
use mco_core::certs::{self, UserData};
use serde_json::json;
use tokio::sync::watch;
use tracing::{info, warn};

use super::CertificateError;
use crate::Context;

/// Key of the Ignition config in the Secret.
const USER_DATA: &str = "userData";

/// The user data Secrets of a cluster that creates machines.
pub(super) struct Machines {
    queue: Arc<Queue<()>>,
    delay: Duration,
    /// True if the cluster creates machines.
    present: watch::Sender<bool>,
}

impl Machines {
    pub(super) fn new(queue: Arc<Queue<()>>, delay: Duration) -> Self {
        Self { queue, delay, present: watch::Sender::new(false) }
    }

    /// Returns true if the cluster has the namespace of the machine API.
    pub(super) async fn detect(&self, context: &Context) -> Result<bool, CertificateError> {
        let api = Api::<Namespace>::all(context.client.clone());
        let present = match api.get_opt(label::MACHINE_NAMESPACE).await.map_err(CallError::from) {
            Ok(found) => found.is_some(),
            // Without permission to read the namespace there are no Secrets to update.
            Err(error) if error.rejection() == Some(Rejection::Other(403)) => false,
            Err(source) => {
                let name = label::MACHINE_NAMESPACE.to_owned();
                return Err(CertificateError::Read { kind: "Namespace", name, source });
            }
        };
        self.present.send_replace(present);
        Ok(present)
    }

    /// Watches the Secrets and enqueues a reconcile on changes; never returns.
    pub(super) async fn watch(&self, context: &Context, shutdown: &Shutdown) {
        let mut present = self.present.subscribe();
        // The sender is part of `self`, so it outlives this wait.
        drop(present.wait_for(|present| *present).await);
        let (queue, delay) = (self.queue.clone(), self.delay);
        let cache = Cache::<Secret>::new(super::trim_secret);
        cache.on_change(move |_| queue.add_debounced((), delay));
        let api = Api::namespaced(context.client.clone(), label::MACHINE_NAMESPACE);
        cache.run(api, Config::default(), shutdown).await;
        // Never returns: the caller would cancel a reconcile in progress.
        std::future::pending::<()>().await;
    }

    /// Adds the CA bundle to the user data of future machines.
    pub(super) async fn add_bundle(
        &self,
        context: &Context,
        bundle: &str,
    ) -> Result<(), CertificateError> {
        if !*self.present.borrow() {
            return Ok(());
        }
        let api = Api::<Secret>::namespaced(context.client.clone(), label::MACHINE_NAMESPACE);
        // Secrets with the label are written by the operator.
        let others = ListParams::default().labels(&format!("!{}", label::MANAGED_USER_DATA));
        let secrets = api.list(&others).await.map_err(CallError::from);
        let secrets = secrets.map_err(|source| CertificateError::Read {
            kind: "Secrets of namespace",
            name: label::MACHINE_NAMESPACE.to_owned(),
            source,
        })?;
        for secret in secrets {
            patch_user_data(&api, &secret, bundle).await?;
        }
        Ok(())
    }
}

async fn patch_user_data(
    api: &Api<Secret>,
    secret: &Secret,
    bundle: &str,
) -> Result<(), CertificateError> {
    let name = secret.name_any();
    let Some(config) = secret.data.as_ref().and_then(|data| data.get(USER_DATA)) else {
        return Ok(());
    };
    let replaced = match certs::set_authorities(&config.0, bundle) {
        UserData::NotIgnition | UserData::Current | UserData::NoAuthority => return Ok(()),
        UserData::SeveralAuthorities => {
            warn!(name, "additional CAs detected, cannot modify automatically. Aborting");
            return Ok(());
        }
        UserData::Replaced(config) => config,
    };
    let version = secret.resource_version().unwrap_or_default();
    let patch = json!({"data": {USER_DATA: ByteString(replaced)}});
    let written = apply::merge(api, &name, patch, Precondition::Unchanged(&version)).await;
    written.map_err(|source| CertificateError::Write {
        kind: "Secret",
        name: name.clone(),
        source,
    })?;
    info!(name, "Updated the CA bundle in user data");
    Ok(())
}
