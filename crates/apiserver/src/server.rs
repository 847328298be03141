//! The API server without its sockets: takes requests and returns responses.

mod answer;
mod delete;
mod dependents;
mod evict;
mod expire;
mod read;
mod recount;
mod route;
mod scale;
mod watch;
mod write;

pub(crate) use answer::refuse;

use std::{convert::Infallible, path::Path, sync::Arc};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, LengthLimitError, Limited, combinators::UnsyncBoxBody};
use serde_json::{Value, json};

use crate::{
    admit,
    clock::{Clock, Entropy},
    failure::Failure,
    object,
    query::Query,
    resource::{Resource, builtin, catalog::Catalog, crd},
    review::Identity,
    service::{PodDeletion, Settings},
    store::{Key, OpenError, Put, Store, Write, WriteError},
};

/// Maximum size of a request body, the same as kube-apiserver's.
pub(crate) const BODY_LIMIT: usize = 3 * 1024 * 1024;

/// The namespaces that every cluster has.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// The body of a response: complete, or a stream of watch events.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The state of the server.
pub(crate) struct Server {
    store: Store,
    catalog: Catalog,
    clock: Arc<dyn Clock>,
    entropy: Entropy,
    pods: PodDeletion,
    /// Serializes evictions, because two concurrent ones could use the same allowed disruption.
    evictions: tokio::sync::Mutex<()>,
    /// Held while a definition is stored and the catalog updated, so that the catalog matches the
    /// stored definitions.
    definitions: tokio::sync::Mutex<()>,
    /// Time of the last removal of expired events, in seconds.
    expired_at: std::sync::atomic::AtomicI64,
    /// Ends the watches when the server stops.
    stop: tokio_util::sync::CancellationToken,
}

/// A decoded request on a resource.
pub(crate) struct Call {
    resource: Arc<Resource>,
    namespace: Option<String>,
    name: Option<String>,
    query: Query,
    shape: answer::Shape,
    /// The field manager of the request.
    manager: String,
}

impl Call {
    fn key(&self) -> Key {
        Key::new(self.namespace.as_deref().unwrap_or(""), self.name.as_deref().unwrap_or(""))
    }
}

impl Server {
    /// Opens the database at `path`, or a store in memory, and serves the custom resources that it
    /// defines.
    pub(crate) fn open(path: Option<&Path>, settings: Settings) -> Result<Self, OpenError> {
        let Settings { clock, entropy, watch_history, pods } = settings;
        let store = match path {
            Some(path) => Store::open(path, watch_history)?,
            None => Store::in_memory(watch_history),
        };
        let server = Self {
            store,
            catalog: Catalog::new(),
            clock,
            entropy,
            pods,
            evictions: tokio::sync::Mutex::default(),
            definitions: tokio::sync::Mutex::default(),
            expired_at: std::sync::atomic::AtomicI64::new(0),
            stop: tokio_util::sync::CancellationToken::new(),
        };
        for definition in server.store.list(builtin::CRDS, None, None).0 {
            server.register(&definition.value, true);
        }
        Ok(server)
    }

    /// Creates the namespaces that every cluster has.
    pub(crate) async fn prepare(&self) -> Result<(), WriteError> {
        let namespaces = builtin::all().find(|one| &*one.collection == builtin::NAMESPACES);
        let resource = namespaces.expect("namespaces are a built-in resource");
        for name in NAMESPACES {
            let key = Key::new("", name);
            if self.store.get(builtin::NAMESPACES, &key).is_some() {
                continue;
            }
            let new = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            let admitted = admit::create(&resource, new, self.clock.now(), (self.entropy)());
            let put =
                Put::Keep(admitted.expect("a namespace with a constant name is valid").object);
            let collection = Arc::clone(&resource.collection);
            self.store.commit(Write { collection, key, expect: None, put }).await?;
        }
        // Deletions that an earlier process began.
        for namespace in self.store.list(builtin::NAMESPACES, None, None).0 {
            if object::is_deleting(&namespace.value) {
                self.empty_namespace(object::name(&namespace.value)).await;
            }
        }
        Ok(())
    }

    /// Ends all watches.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// Adds or removes the resources of a definition in the catalog.
    fn register(&self, definition: &Value, served: bool) {
        let (group, plural) = crd::identity(definition);
        let resources = if served { crd::resources(definition) } else { Vec::new() };
        self.catalog.replace(group, plural, resources);
    }

    /// Handles one request.
    pub(crate) async fn handle<B>(
        self: &Arc<Self>,
        request: Request<B>,
        caller: Identity,
    ) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let answered = match Limited::new(body, BODY_LIMIT).collect().await {
            Ok(body) if parts.method == Method::GET => {
                self.route(&parts, body.to_bytes(), caller).await
            }
            // A write is completed even if its client does not wait for the answer.
            Ok(body) => {
                let (server, body) = (Arc::clone(self), body.to_bytes());
                let work = tokio::spawn(async move { server.route(&parts, body, caller).await });
                let failed = |error: tokio::task::JoinError| Failure::internal(error.to_string());
                work.await.map_err(failed).flatten()
            }
            Err(error) if error.is::<LengthLimitError>() => Err(Failure::too_large(BODY_LIMIT)),
            Err(error) => Err(Failure::bad_request(format!("failed to read the body: {error}"))),
        };
        answered.unwrap_or_else(|failure| answer::refuse(&failure))
    }

    fn commit_failure(resource: &Resource, name: &str, error: &WriteError) -> Failure {
        match error {
            WriteError::Stale => Failure::modified(resource, name),
            WriteError::Disk(_) => Failure::internal(error.to_string()),
        }
    }

    /// Fails if the namespace of a new object is missing or being deleted.
    fn check_namespace(&self, call: &Call, name: &str) -> Result<(), Failure> {
        let Some(namespace) = &call.namespace else { return Ok(()) };
        let found = self.store.get(builtin::NAMESPACES, &Key::new("", namespace));
        match found {
            None => {
                let namespaces = self.catalog.find("", "v1", "namespaces");
                let resource = namespaces.expect("namespaces are a built-in resource");
                Err(Failure::not_found(&resource, namespace))
            }
            Some(found) if object::is_deleting(&found.value) => Err(Failure::forbidden(
                &call.resource,
                name,
                &format!(
                    "unable to create new content in namespace {namespace} because it is being \
                     terminated"
                ),
            )),
            Some(_) => Ok(()),
        }
    }
}
