//! The API server without its sockets: takes requests and returns responses.

mod answer;
pub(crate) mod authorize;
mod bind;
mod delete;
mod dependents;
mod evict;
mod expire;
mod grant;
mod intake;
mod log;
mod openapi;
mod policy;
mod read;
mod recount;
mod review;
mod route;
mod scale;
mod steps;
mod subresource;
mod terminate;
mod watch;
mod write;

pub(crate) use answer::refuse;

use std::{convert::Infallible, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, LengthLimitError, Limited, combinators::UnsyncBoxBody};
use serde_json::{Value, json};

use crate::{
    admit::{self, Part},
    authorize as rights,
    clock::{Clock, Entropy},
    failure::Failure,
    kubelets::Kubelets,
    object,
    openapi::Documents,
    outage::Outage,
    patch::managed::{self, Manager},
    query::Query,
    resource::{Resource, builtin, catalog::Catalog, crd},
    review::{Claims, Identity},
    schema::cel::Programs,
    service::{Authorization, Controllers, OnDenied, PodDeletion, Settings},
    store::{Key, OpenError, Put, Store, Write, WriteError},
    token::TokenKey,
};

/// Maximum size of a request body, the same as kube-apiserver's.
pub(crate) const BODY_LIMIT: usize = 3 * 1024 * 1024;

/// Maximum size of a message of kube-apiserver to etcd.
const MAX_MESSAGE: usize = 2 * 1024 * 1024;

/// Time in which a client sends the body of a request.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The namespaces that every cluster has.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// The body of a response: complete, or a stream of watch events.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The state of the server.
pub(crate) struct Server {
    store: Store,
    catalog: Catalog,
    openapi: Documents,
    clock: Arc<dyn Clock>,
    entropy: Entropy,
    pods: PodDeletion,
    kubelets: Option<Arc<dyn Kubelets>>,
    controllers: Controllers,
    authorization: Authorization,
    on_denied: Option<OnDenied>,
    /// Signs the tokens of service accounts.
    tokens: TokenKey,
    /// The compiled expressions of admission policies.
    programs: Programs,
    /// Serializes evictions, because two concurrent ones could use the same allowed disruption.
    evictions: tokio::sync::Mutex<()>,
    /// Held while a definition is stored and the catalog updated, so that the catalog matches the
    /// stored definitions.
    definitions: tokio::sync::Mutex<()>,
    /// Held for reading from the last check of the namespace and the definition of a new object until
    /// the object is stored, and for writing while one of them is removed.
    removals: tokio::sync::RwLock<()>,
    /// Time of the last removal of expired events, in seconds.
    expired_at: std::sync::atomic::AtomicI64,
    /// Ends the watches when the server stops.
    stop: tokio_util::sync::CancellationToken,
    /// Ends the watches and refuses connections for a while.
    pub(crate) outage: Outage,
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
    subresource: String,
    caller: Identity,
    claims: Claims,
}

/// Reads a body, up to its limits of size and time.
async fn read<B>(body: B) -> Result<Bytes, Failure>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let body = Limited::new(body, BODY_LIMIT).collect();
    match tokio::time::timeout(BODY_TIMEOUT, body).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Failure::too_large(BODY_LIMIT)),
        Ok(Err(error)) => Err(Failure::bad_request(format!("failed to read the body: {error}"))),
        Err(_) => Err(Failure::slow_body()),
    }
}

impl Call {
    fn key(&self) -> Key {
        Key::new(self.namespace.as_deref().unwrap_or(""), self.name.as_deref().unwrap_or(""))
    }
}

/// Returns the objects that every cluster has.
fn initial_objects() -> Vec<Value> {
    let namespace =
        |name: &&str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let class = |(name, value): &(&str, i64)| {
        let which = match *name {
            "system-node-critical" => "must not be moved from their current node.",
            _ => "must run in the cluster, but can be moved to another node if necessary.",
        };
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": name}, "value": value,
            "description": format!("Used for system critical pods that {which}")})
    };
    let namespaces = NAMESPACES.iter().map(namespace);
    let classes = admit::SYSTEM_PRIORITIES.iter().map(class);
    namespaces.chain(classes).chain(rights::defaults()).collect()
}

impl Server {
    /// Opens the database at `path`, or a store in memory, and serves the custom resources that it
    /// defines.
    pub(crate) fn open(path: Option<&Path>, settings: Settings) -> Result<Self, OpenError> {
        let Settings {
            clock,
            entropy,
            watch_history,
            pods,
            kubelets,
            controllers,
            authorization,
            on_denied,
        } = settings;
        let store = match path {
            Some(path) => Store::open(path, watch_history)?,
            None => Store::in_memory(watch_history),
        };
        let server = Self {
            store,
            catalog: Catalog::new(),
            openapi: Documents::default(),
            tokens: TokenKey::new([entropy(), entropy()]),
            programs: Programs::default(),
            clock,
            entropy,
            pods,
            kubelets,
            controllers,
            authorization,
            on_denied,
            evictions: tokio::sync::Mutex::default(),
            definitions: tokio::sync::Mutex::default(),
            removals: tokio::sync::RwLock::default(),
            expired_at: std::sync::atomic::AtomicI64::new(0),
            stop: tokio_util::sync::CancellationToken::new(),
            outage: Outage::default(),
        };
        for definition in server.store.list(builtin::CRDS, None, None).0 {
            server.register(&definition.value(), true);
        }
        Ok(server)
    }

    /// Creates the objects that every cluster has: namespaces, priority classes and roles.
    pub(crate) async fn prepare(&self) -> Result<(), WriteError> {
        for object in initial_objects() {
            let kind = object::text(&object, &["kind"]);
            let resource = builtin::all().find(|one| one.kind == kind);
            let resource = resource.expect("initial objects are of built-in kinds");
            let key = Key::new("", object::name(&object));
            if self.store.get(&resource.collection, &key).is_some() {
                continue;
            }
            let manager = Manager {
                name: "kube-apiserver",
                api_version: resource.api_version(),
                subresource: "",
                part: Part::Main,
                now: self.clock.now(),
            };
            let own = |object: &mut Value| managed::created(&resource, object, &manager);
            let admitted = admit::create(&resource, object, manager.now, (self.entropy)(), own);
            let put = Put::Keep(admitted.expect("an initial object is valid").object);
            let collection = Arc::clone(&resource.collection);
            self.store.commit(Write { collection, key, expect: None, put }).await?;
        }
        self.resume().await;
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
        let (method, uri, user) = (parts.method.clone(), parts.uri.clone(), caller.user.clone());
        let answered = self.answer(parts, body, caller).await;
        // Messages of refusals quote values of the object, which may be secret.
        let (code, reason) = match &answered {
            Ok(response) => (response.status(), ""),
            Err(failure) => (failure.code, failure.reason),
        };
        let (path, code) = (uri.path(), code.as_u16());
        if code >= 500 {
            tracing::error!(%method, path, user, code, reason, "Failed to answer a request");
        } else {
            tracing::debug!(%method, path, user, code, reason, "Answered a request");
        }
        answered.unwrap_or_else(|failure| answer::refuse(&failure))
    }

    async fn answer<B>(
        self: &Arc<Self>,
        parts: http::request::Parts,
        body: B,
        caller: Identity,
    ) -> Result<Response<Body>, Failure>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.check_path(&parts)?;
        if parts.method == Method::GET {
            return self.route(&parts, Bytes::new(), caller).await;
        }
        let body = read(body).await?;
        // A write is completed even if its client does not wait for the answer.
        let server = Arc::clone(self);
        let work = tokio::spawn(async move { server.route(&parts, body, caller).await });
        let failed = |error: tokio::task::JoinError| Failure::internal(error.to_string());
        work.await.map_err(failed).flatten()
    }

    fn commit_failure(resource: &Resource, name: &str, error: &WriteError) -> Failure {
        match error {
            WriteError::Stale => Failure::modified(resource, name),
            WriteError::Disk(_) => Failure::internal(error.to_string()),
            WriteError::TooLarge(size) if *size > MAX_MESSAGE => Failure::unexplained(format!(
                "rpc error: code = ResourceExhausted desc = trying to send message larger than max \
                 ({size} vs. {MAX_MESSAGE})"
            )),
            WriteError::TooLarge(_) => Failure::unexplained("etcdserver: request is too large"),
            WriteError::TooDeep => {
                Failure::bad_request(format!("{} {name:?}: {error}", resource.kind))
            }
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
            Some(found) if found.head.is_deleting => {
                let why = format!(
                    "unable to create new content in namespace {namespace} because it is being \
                     terminated"
                );
                let cause = json!({"reason": "NamespaceTerminating",
                    "message": format!("namespace {namespace} is being terminated"),
                    "field": "metadata.namespace"});
                Err(Failure::forbidden(&call.resource, name, &why).because(&cause))
            }
            Some(_) => Ok(()),
        }
    }
}
