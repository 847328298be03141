//! Creates the objects that new machines join with: the credential of their kubelets, and the
//! namespace of the join tokens. The rights of server and controller in it are operands.
//!
//! Objects that exist are left as they are: on OpenShift they belong to the release, and an
//! administrator may have changed them. One that was deleted is created again.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::{
    core::v1::{Namespace, Secret, ServiceAccount},
    rbac::v1::ClusterRoleBinding,
};
use kube::{Client, core::NamespaceResourceScope};
use mco_api::join_token::{self, BOOTSTRAPPER, BOOTSTRAPPER_SECRET};
use mco_cluster::{
    Api, CallError, Object,
    apply::{self, Created},
    client::namespace,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::info;

use crate::manifests::MANAGED_BY;

/// Time after which the objects are looked for again. They change seldom, and reconciles are
/// frequent during a rollout.
const INTERVAL: Duration = Duration::from_secs(25);

/// ClusterRole of Kubernetes whose holder may request a first certificate.
const BOOTSTRAPPER_ROLE: &str = "system:node-bootstrapper";

/// Name of the binding of that role, as in the reference.
const BOOTSTRAPPER_BINDING: &str = "system-bootstrap-node-bootstrapper";

/// A failure to create an object.
#[derive(Debug, thiserror::Error)]
#[error("failed to create {kind} {name}")]
pub(crate) struct JoinObjectError {
    kind: String,
    name: String,
    source: CallError,
}

/// The objects that new machines join with.
#[derive(Debug, Default)]
pub(crate) struct JoinObjects {
    /// Last time that all of them existed.
    complete: Mutex<Option<Instant>>,
    /// True if the API server has no rights to give: the embedded one.
    has_no_rights: AtomicBool,
}

impl JoinObjects {
    /// Creates the objects that do not exist.
    pub(crate) async fn apply(&self, client: &Client) -> Result<(), JoinObjectError> {
        let complete = *self.complete.lock().unwrap_or_else(PoisonError::into_inner);
        if complete.is_some_and(|time| time.elapsed() < INTERVAL) {
            return Ok(());
        }
        let rights = "rbac.authorization.k8s.io";
        let namespace = namespace(client);
        let own = Some(namespace);
        let account =
            |name: &str| json!({"kind": "ServiceAccount", "name": name, "namespace": namespace});
        let role = |name: &str| json!({"apiGroup": rights, "kind": "ClusterRole", "name": name});
        ensure::<ServiceAccount>(client, own, BOOTSTRAPPER, json!({})).await?;
        let of = "kubernetes.io/service-account.name";
        let secret = json!({
            "metadata": {"annotations": {of: BOOTSTRAPPER}},
            "type": "kubernetes.io/service-account-token",
        });
        ensure::<Secret>(client, own, BOOTSTRAPPER_SECRET, secret).await?;
        let binding =
            json!({"roleRef": role(BOOTSTRAPPER_ROLE), "subjects": [account(BOOTSTRAPPER)]});
        if !self.has_no_rights.load(Ordering::Relaxed) {
            let served = ensure_cluster_binding(client, BOOTSTRAPPER_BINDING, binding).await?;
            self.has_no_rights.store(served == Served::No, Ordering::Relaxed);
        }
        ensure_namespace(client, join_token::NAMESPACE).await?;
        *self.complete.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        Ok(())
    }
}

async fn ensure_namespace(client: &Client, name: &str) -> Result<(), JoinObjectError> {
    // Pods have no business among the tokens.
    let members = json!({"metadata": {"labels": {
        "pod-security.kubernetes.io/enforce": "restricted",
    }}});
    create(&Api::<Namespace>::all(client.clone()), None, name, members).await.map(drop)
}

async fn ensure_cluster_binding(
    client: &Client,
    name: &str,
    members: Value,
) -> Result<Served, JoinObjectError> {
    create(&Api::<ClusterRoleBinding>::all(client.clone()), None, name, members).await
}

async fn ensure<K>(
    client: &Client,
    namespace: Option<&str>,
    name: &str,
    members: Value,
) -> Result<(), JoinObjectError>
where
    K: Object + DeserializeOwned + kube::Resource<Scope = NamespaceResourceScope>,
{
    let api = Api::<K>::namespaced(client.clone(), namespace.unwrap_or_default());
    create(&api, namespace, name, members).await.map(drop)
}

/// Presence of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Served {
    Yes,
    No,
}

/// Creates an object unless it exists. A kind that the API server does not serve is left out.
async fn create<K: Object + DeserializeOwned>(
    api: &Api<K>,
    namespace: Option<&str>,
    name: &str,
    mut members: Value,
) -> Result<Served, JoinObjectError> {
    let kind = K::kind(&()).into_owned();
    let failed = |source| JoinObjectError { kind: kind.clone(), name: name.to_owned(), source };
    if api.get_opt(name).await.map_err(|error| failed(error.into()))?.is_some() {
        return Ok(Served::Yes);
    }
    if let Some(members) = members.as_object_mut() {
        let metadata = members.entry("metadata").or_insert_with(|| json!({}));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("name".to_owned(), json!(name));
            metadata.extend(namespace.map(|found| ("namespace".to_owned(), json!(found))));
            // Only for `mco uninstall`: the operator never changes these objects.
            let labels = metadata.entry("labels").or_insert_with(|| json!({}));
            if let Some(labels) = labels.as_object_mut() {
                labels.insert(MANAGED_BY.0.to_owned(), json!(MANAGED_BY.1));
            }
        }
    }
    let object: K = serde_json::from_value(members)
        .map_err(|error| failed(CallError::from(kube::Error::SerdeError(error))))?;
    match apply::create(api, &object).await {
        Ok(Created::Now(_)) => info!(kind, name, "Created an object that new machines join with"),
        Ok(Created::Before) => {}
        Err(error) if error.is_not_found() => return Ok(Served::No),
        Err(error) => return Err(failed(error)),
    }
    Ok(Served::Yes)
}
