//! The operands of one kind: a cache of those that exist, and the calls that change them.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt as _};
use kube::{
    Client, Resource,
    api::{DeleteParams, Patch, PatchParams},
    core::{ClusterResourceScope, NamespaceResourceScope},
};
use mco_cluster::{
    Api, Cache, CallError, Queue, Shutdown,
    cache::{Change, trim},
    client::namespace,
    error::Rejection,
    watch::Config as WatchConfig,
};
use serde_json::Value;

use super::observed::{Fingerprint, Observed, Pods};
use crate::manifests::{self, ObjectName};

/// Field manager of the operands.
const MANAGER: &str = "machine-config-operator";

/// Permission to take fields over from other managers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Force {
    Yes,
    No,
}

/// An existing object.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) fingerprint: Fingerprint,
    /// True if the object belongs to this installation.
    pub(crate) is_ours: bool,
    pub(crate) generation: i64,
    pub(crate) pods: Pods,
}

impl<K> From<&Observed<K>> for Found {
    fn from(object: &Observed<K>) -> Self {
        Self {
            fingerprint: object.fingerprint(),
            is_ours: object.is_ours(),
            generation: object.metadata.generation.unwrap_or_default(),
            pods: object.pods.clone(),
        }
    }
}

/// The operands of one kind, whatever the kind is.
pub(crate) trait Store: Send + Sync {
    /// Returns the name of the kind.
    fn kind(&self) -> &str;
    /// Returns true if the API server serves the kind, and the objects were listed.
    fn is_synced(&self) -> bool;
    /// Returns true if a cluster may lack the kind.
    fn is_optional(&self) -> bool;
    /// Returns the cached object; only objects of this installation are cached.
    fn get(&self, name: &ObjectName) -> Option<Found>;
    /// Adds to `queue` when an object changes in a way that matters.
    fn subscribe(&self, queue: &Arc<Queue<()>>);
    /// Runs the watch until shutdown.
    fn run(&self, config: WatchConfig, shutdown: Shutdown) -> BoxFuture<'_, ()>;
    /// Waits until the objects were listed, or the API server does not serve the kind.
    fn ready(&self) -> BoxFuture<'_, ()>;
    /// Fetches an object from the API server.
    fn fetch<'s>(&'s self, name: &'s ObjectName)
    -> BoxFuture<'s, Result<Option<Found>, CallError>>;
    /// Applies an object and returns it as it is stored.
    fn apply<'s>(
        &'s self,
        name: &'s ObjectName,
        object: &'s Value,
        force: Force,
    ) -> BoxFuture<'s, Result<Found, CallError>>;
    /// Deletes an object, if it exists.
    fn delete<'s>(&'s self, name: &'s ObjectName) -> BoxFuture<'s, Result<(), CallError>>;
}

/// Function that returns the objects of a kind in one namespace or in all of them.
type ApiOf<K> = fn(Client, Option<&str>) -> Api<Observed<K>>;

/// The part of a kind's objects that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watched {
    /// The namespace of the operator, or the whole cluster for kinds without namespaces.
    Own,
    /// All namespaces.
    All,
}

/// Need for the members of an object beside its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Members {
    Metadata,
    Pods,
}

struct KindStore<K> {
    kind: String,
    client: Client,
    api: ApiOf<K>,
    watched: Watched,
    members: Members,
    is_optional: bool,
    cache: Cache<Observed<K>>,
}

/// Returns a store of a kind of the cluster.
pub(crate) fn cluster<K>(client: &Client) -> Arc<dyn Store>
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope> + 'static,
{
    Arc::new(KindStore::<K>::new(client, |client, _| Api::all(client)))
}

/// Returns a store of a kind whose objects are in the operator's namespace.
pub(crate) fn own<K>(client: &Client) -> Arc<dyn Store>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + 'static,
{
    Arc::new(KindStore::<K>::new(client, namespaced))
}

/// Returns a store of workloads in the operator's namespace.
pub(crate) fn workloads<K>(client: &Client) -> Arc<dyn Store>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + 'static,
{
    Arc::new(KindStore { members: Members::Pods, ..KindStore::<K>::new(client, namespaced) })
}

/// Returns a store of a kind whose objects are in several namespaces.
pub(crate) fn everywhere<K>(client: &Client) -> Arc<dyn Store>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + 'static,
{
    Arc::new(KindStore { watched: Watched::All, ..KindStore::<K>::new(client, namespaced) })
}

/// Returns a store of a kind that a cluster may lack.
pub(crate) fn optional<K>(client: &Client) -> Arc<dyn Store>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + 'static,
{
    Arc::new(KindStore { is_optional: true, ..KindStore::<K>::new(client, namespaced) })
}

fn namespaced<K>(client: Client, namespace: Option<&str>) -> Api<Observed<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + 'static,
{
    match namespace {
        Some(namespace) => Api::namespaced(client, namespace),
        None => Api::all(client),
    }
}

impl<K: Resource<DynamicType = ()> + 'static> KindStore<K> {
    fn new(client: &Client, api: ApiOf<K>) -> Self {
        Self {
            kind: K::kind(&()).into_owned(),
            client: client.clone(),
            api,
            watched: Watched::Own,
            members: Members::Metadata,
            is_optional: false,
            cache: Cache::new(trim::metadata),
        }
    }

    fn api_of(&self, name: &ObjectName) -> Api<Observed<K>> {
        (self.api)(self.client.clone(), name.namespace.as_deref())
    }
}

impl<K: Resource<DynamicType = ()> + 'static> Store for KindStore<K> {
    fn kind(&self) -> &str {
        &self.kind
    }

    fn is_synced(&self) -> bool {
        self.cache.ready().now_or_never().is_some()
    }

    fn is_optional(&self) -> bool {
        self.is_optional
    }

    fn get(&self, name: &ObjectName) -> Option<Found> {
        self.cache.get(&name.key()).map(|found| Found::from(&*found))
    }

    fn subscribe(&self, queue: &Arc<Queue<()>>) {
        let queue = queue.clone();
        self.cache.on_change(move |change: Change<'_, Observed<K>>| {
            let state = |found: &Arc<Observed<K>>| (found.fingerprint(), found.pods.clone());
            if change.before.map(state) != change.after.map(state) {
                queue.add(());
            }
        });
    }

    fn run(&self, config: WatchConfig, shutdown: Shutdown) -> BoxFuture<'_, ()> {
        let config = config.labels(&manifests::selector());
        let config = if self.is_optional { config.optional() } else { config };
        let config = match self.members {
            Members::Metadata => config.metadata_only(),
            Members::Pods => config,
        };
        let place = match self.watched {
            Watched::Own => Some(namespace(&self.client)),
            Watched::All => None,
        };
        let api = (self.api)(self.client.clone(), place);
        async move { self.cache.run(api, config, &shutdown).await }.boxed()
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        self.cache.ready_or_absent().boxed()
    }

    fn fetch<'s>(
        &'s self,
        name: &'s ObjectName,
    ) -> BoxFuture<'s, Result<Option<Found>, CallError>> {
        async move {
            let found = self.api_of(name).get_opt(&name.name).await?;
            Ok(found.as_ref().map(Found::from))
        }
        .boxed()
    }

    fn apply<'s>(
        &'s self,
        name: &'s ObjectName,
        object: &'s Value,
        force: Force,
    ) -> BoxFuture<'s, Result<Found, CallError>> {
        async move {
            let mut params = PatchParams::apply(MANAGER);
            params.force = force == Force::Yes;
            let (api, patch) = (self.api_of(name), Patch::Apply(object));
            let mut stored = api.patch(&name.name, &params, &patch).await.map_err(CallError::from);
            let is_invalid = |error: &CallError| error.rejection() == Some(Rejection::Other(422));
            if force == Force::Yes && stored.as_ref().is_err_and(is_invalid) {
                // Entries that another manager added to a list may not fit to ours: a merge patch
                // replaces the whole list.
                let whole = Patch::Merge(object);
                stored = api
                    .patch(&name.name, &PatchParams::default(), &whole)
                    .await
                    .map_err(Into::into);
            }
            let stored = stored?;
            let found = Found::from(&stored);
            // The next reconcile must not take the old state for a change.
            self.cache.learn_new(stored);
            Ok(found)
        }
        .boxed()
    }

    fn delete<'s>(&'s self, name: &'s ObjectName) -> BoxFuture<'s, Result<(), CallError>> {
        async move {
            let deleted = self.api_of(name).delete(&name.name, &DeleteParams::default()).await;
            match deleted.map_err(CallError::from) {
                Err(error) if !error.is_not_found() => Err(error),
                Ok(()) | Err(_) => Ok(()),
            }
        }
        .boxed()
    }
}
