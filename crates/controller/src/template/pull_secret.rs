//! The pull secret that the ControllerConfig names: watched for changes, read when it is needed.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use mco_api::{ControllerConfig, InternalReleaseImage, label, meta::ObjectReference};
use mco_cluster::{Api, Cache, CallError, Queue, Shutdown, client, watch};
use mco_core::template::{RegistryLogin, compact, with_login};
use tokio::sync::watch as channel;

use super::{Item, SyncError};
use crate::Context;

/// Secret with the password of the registry that serves an InternalReleaseImage.
const REGISTRY_SECRET: &str = "internal-release-image-registry-auth";

/// Watches of the Secrets that the pull secret on nodes is made of.
pub(super) struct PullSecretWatch {
    secrets: Arc<Cache<Secret>>,
    registry: Arc<Cache<Secret>>,
    /// The Secret that the ControllerConfig names.
    named: channel::Receiver<Option<ObjectReference>>,
}

impl PullSecretWatch {
    pub(super) fn new(context: &Arc<Context>, queue: &Arc<Queue<Item>>) -> Self {
        let (sender, named) = channel::channel(None);
        context.caches.controller_configs.on_change(move |change| {
            let secret = change.after.and_then(|config| reference(config));
            sender.send_if_modified(|named| {
                let is_new = *named != secret;
                *named = secret;
                is_new
            });
        });
        let cache = || {
            let (cache, again) = (Cache::<Secret>::new(trim), queue.clone());
            cache.on_change(move |_| again.add(Item::BaseConfigs));
            Arc::new(cache)
        };
        Self { secrets: cache(), registry: cache(), named }
    }

    /// Watches until shutdown is requested.
    pub(super) async fn run(&self, context: &Context, shutdown: &Shutdown) {
        let namespace = |name: &str| Api::<Secret>::namespaced(context.client.clone(), name);
        let only = |name: &str| watch::Config::default().named(name);
        let own = client::namespace(&context.client);
        let registry = self.registry.run(namespace(own), only(REGISTRY_SECRET), shutdown);
        let mut named = self.named.clone();
        let follow = async {
            loop {
                let secret = named.borrow_and_update().clone();
                let watching = async {
                    match &secret {
                        Some(secret) => {
                            let api = namespace(&secret.namespace);
                            self.secrets.run(api, only(&secret.name), shutdown).await;
                        }
                        None => shutdown.requested().await,
                    }
                };
                tokio::select! {
                    () = watching => return,
                    changed = named.changed() => if changed.is_err() { return },
                }
            }
        };
        tokio::join!(registry, follow);
    }

    /// Reads the pull secret, with the credentials of the cluster's own registry; `None` if the
    /// ControllerConfig names no Secret.
    pub(super) async fn read(
        &self,
        context: &Context,
        config: &ControllerConfig,
    ) -> Result<Option<String>, SyncError> {
        let Some(named) = reference(config) else { return Ok(None) };
        let secret = get(context, &named.namespace, &named.name).await?;
        let missing = || SyncError::Missing {
            kind: "Secret",
            name: format!("{}/{}", named.namespace, named.name),
        };
        let secret = secret.ok_or_else(missing)?;
        let data = secret.data.as_ref().and_then(|data| data.get(".dockerconfigjson"));
        let kind = secret.type_.clone().unwrap_or_default();
        let text = compact(&kind, data.map(|data| data.0.as_slice()))?;
        let releases = Api::<InternalReleaseImage>::all(context.client.clone());
        let found = releases.get_opt(label::CLUSTER).await.map_err(CallError::from);
        let found = found.map_err(|source| SyncError::Read {
            kind: "InternalReleaseImage",
            name: label::CLUSTER.to_owned(),
            source,
        })?;
        if found.is_none() {
            return Ok(Some(text));
        }
        let Some(registry) =
            get(context, client::namespace(&context.client), REGISTRY_SECRET).await?
        else {
            return Ok(Some(text));
        };
        let password = registry.data.as_ref().and_then(|data| data.get("password"));
        let password = password.and_then(|bytes| std::str::from_utf8(&bytes.0).ok());
        let base_domain = config.spec.dns.as_ref().map_or("", |dns| dns.spec.base_domain.as_str());
        let login = RegistryLogin { base_domain, password: password.unwrap_or_default() };
        Ok(Some(with_login(&text, login)?))
    }
}

/// Returns the Secret that the ControllerConfig names.
fn reference(config: &ControllerConfig) -> Option<ObjectReference> {
    config.spec.pull_secret.clone().filter(|secret| !secret.name.is_empty())
}

async fn get(context: &Context, namespace: &str, name: &str) -> Result<Option<Secret>, SyncError> {
    let api = Api::<Secret>::namespaced(context.client.clone(), namespace);
    let found = api.get_opt(name).await.map_err(CallError::from);
    let full = || format!("{namespace}/{name}");
    found.map_err(|source| SyncError::Read { kind: "Secret", name: full(), source })
}

/// Drops the data of a Secret, which are read when they are needed.
fn trim(secret: &mut Secret) {
    (secret.data, secret.string_data) = (None, None);
    secret.metadata.managed_fields = None;
}
