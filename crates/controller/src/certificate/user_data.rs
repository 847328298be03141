//! User data of machines that the cluster creates: one Secret for each pool, and the CA bundle of the
//! config server in those of others.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use k8s_openapi::{
    ByteString,
    api::core::v1::{Namespace, Secret},
};
use kube::{Resource as _, ResourceExt as _, api::ListParams};
use mco_api::{ControllerConfig, MachineConfigPool, label};
use mco_cluster::{
    Api, Cache, CallError, Queue, Shutdown,
    apply::{self, Created, Precondition},
    error::Rejection,
    watch::Config,
};
use mco_core::{
    certs::{self, UserData},
    controller_config,
    takeover::Tenure,
};
use serde_json::json;
use tokio::sync::watch;
use tracing::{info, warn};

use super::CertificateError;
use crate::Context;

/// Key of the Ignition config in the Secret.
const USER_DATA: &str = "userData";
/// Key that keeps the Machine API from changing the Ignition config.
const DISABLE_TEMPLATING: &str = "disableTemplating";
/// Label of the Secrets that this controller writes, and its value.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "mco");

/// The user data Secrets of a cluster that creates machines.
pub(super) struct Machines {
    queue: Arc<Queue<()>>,
    delay: Duration,
    /// True if the cluster creates machines.
    present: watch::Sender<bool>,
    /// True if it was logged that this process may not create Secrets.
    denied: AtomicBool,
}

impl Machines {
    pub(super) fn new(queue: Arc<Queue<()>>, delay: Duration) -> Self {
        Self { queue, delay, present: watch::Sender::new(false), denied: AtomicBool::new(false) }
    }

    /// Detects if the cluster has the namespace of the machine API.
    pub(super) async fn detect(&self, context: &Context) -> Result<(), CertificateError> {
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
        Ok(())
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

    /// Writes the user data of every pool. Secrets of another operator stay as they are.
    pub(super) async fn write_pools(
        &self,
        context: &Context,
        config: &ControllerConfig,
        bundle: &str,
    ) -> Result<(), CertificateError> {
        if !*self.present.borrow() || context.tenure == Tenure::TakenOver {
            return Ok(());
        }
        // Without the host no machine could fetch its config.
        let Some(host) = controller_config::machine_host(&config.spec) else { return Ok(()) };
        let api = Api::<Secret>::namespaced(context.client.clone(), label::MACHINE_NAMESPACE);
        let ours = ListParams::default().labels(label::MANAGED_USER_DATA);
        let found = api.list(&ours).await.map_err(CallError::from);
        let found = found.map_err(|source| CertificateError::Read {
            kind: "Secrets of namespace",
            name: label::MACHINE_NAMESPACE.to_owned(),
            source,
        })?;
        let found: BTreeMap<String, Secret> =
            found.into_iter().map(|secret| (secret.name_any(), secret)).collect();
        for pool in context.caches.pools.list() {
            let wanted = secret(&pool, &host, bundle);
            let name = wanted.name_any();
            let written = match found.get(&name) {
                None => self.create(&api, &wanted).await,
                Some(found) => restore(&api, found, &wanted).await,
            };
            written.map_err(|source| CertificateError::Write { kind: "Secret", name, source })?;
        }
        Ok(())
    }

    async fn create(&self, api: &Api<Secret>, wanted: &Secret) -> Result<(), CallError> {
        let name = wanted.name_any();
        match apply::create(api, wanted).await {
            Ok(Created::Now(_)) => info!(name, "Created user data of a pool"),
            // It has no label: it is not ours.
            Ok(Created::Before) => {}
            Err(error) if error.rejection() == Some(Rejection::Other(403)) => {
                if !self.denied.swap(true, Ordering::Relaxed) {
                    let namespace = label::MACHINE_NAMESPACE;
                    warn!(namespace, "May not create Secrets; pools have no user data");
                }
            }
            Err(error) => return Err(error),
        }
        Ok(())
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

/// Returns the Secret with the user data of a pool. Compat: name, label and keys are the reference's.
fn secret(pool: &MachineConfigPool, host: &str, bundle: &str) -> Secret {
    let name = pool.name_any();
    let user_data = controller_config::user_data(host, &name, bundle);
    let data = [(DISABLE_TEMPLATING, b"true\n".to_vec()), (USER_DATA, user_data)];
    let labels = [(label::MANAGED_USER_DATA, ""), MANAGED_BY];
    let text = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    let mut secret = Secret {
        type_: Some("Opaque".to_owned()),
        data: Some(data.map(|(key, bytes)| (key.to_owned(), ByteString(bytes))).into()),
        ..Secret::default()
    };
    secret.metadata.name = Some(format!("{name}-user-data-managed"));
    secret.metadata.namespace = Some(label::MACHINE_NAMESPACE.to_owned());
    secret.metadata.labels = Some(labels.map(text).into());
    secret.metadata.owner_references = pool.owner_ref(&()).map(|owner| vec![owner]);
    secret
}

/// Reverts edits of a Secret that this controller made.
async fn restore(api: &Api<Secret>, found: &Secret, wanted: &Secret) -> Result<(), CallError> {
    let is_ours = found.labels().get(MANAGED_BY.0).is_some_and(|it| it == MANAGED_BY.1);
    if !is_ours || found.data == wanted.data {
        return Ok(());
    }
    let extra = found.data.iter().flatten().map(|(key, _)| (key.clone(), None));
    let wanted = wanted.data.iter().flatten();
    let wanted = wanted.map(|(key, bytes)| (key.clone(), Some(bytes.clone())));
    let data: BTreeMap<String, Option<ByteString>> = extra.chain(wanted).collect();
    let (name, version) = (found.name_any(), found.resource_version().unwrap_or_default());
    let patch = json!({"data": data});
    apply::merge(api, &name, patch, Precondition::Unchanged(&version)).await?;
    info!(name, "Restored user data of a pool");
    Ok(())
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
