//! The API itself: takes requests, answers them. No sockets here.

mod answer;
mod delete;
mod dependents;
mod evict;
mod expire;
mod read;
mod recount;
mod route;
mod watch;
mod write;

pub(crate) use answer::refuse;

use std::{convert::Infallible, path::Path, sync::Arc};

use bytes::Bytes;
use http::{Request, Response};
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

/// The largest request body taken; what a real API server takes.
pub(crate) const BODY_LIMIT: usize = 3 * 1024 * 1024;

/// Namespaces every cluster has.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// The body of an answer: complete, or a stream of watch events.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The server's state.
pub(crate) struct Server {
    store: Store,
    catalog: Catalog,
    clock: Arc<dyn Clock>,
    entropy: Entropy,
    pods: PodDeletion,
    /// Evictions are counted against budgets one at a time, or two could share the last slot.
    evictions: tokio::sync::Mutex<()>,
    /// Held while a definition is written and heeded, which must come to the same.
    definitions: tokio::sync::Mutex<()>,
    /// When old events were last looked for, in seconds.
    expired_at: std::sync::atomic::AtomicI64,
    /// Ends the watches when the server stops.
    stop: tokio_util::sync::CancellationToken,
}

/// One request on a resource, taken apart.
pub(crate) struct Call {
    resource: Arc<Resource>,
    namespace: Option<String>,
    name: Option<String>,
    query: Query,
    shape: answer::Shape,
    /// Whose change it is, for field ownership.
    manager: String,
}

impl Call {
    fn key(&self) -> Key {
        Key::new(self.namespace.as_deref().unwrap_or(""), self.name.as_deref().unwrap_or(""))
    }
}

impl Server {
    /// Opens the state at `path`, or a state in memory, and serves what it defines.
    pub(crate) fn open(path: Option<&Path>, settings: Settings) -> Result<Self, OpenError> {
        let Settings { clock, entropy, remembered, pods } = settings;
        let store = match path {
            Some(path) => Store::open(path, remembered)?,
            None => Store::in_memory(remembered),
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

    /// Creates what every cluster has.
    pub(crate) async fn prepare(&self) -> Result<(), WriteError> {
        let namespaces = builtin::all().find(|one| &*one.track == builtin::NAMESPACES);
        let resource = namespaces.expect("namespaces are built in");
        for name in NAMESPACES {
            let key = Key::new("", name);
            if self.store.get(builtin::NAMESPACES, &key).is_some() {
                continue;
            }
            let new = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            let admitted = admit::create(&resource, new, self.clock.now(), (self.entropy)());
            let put = Put::Keep(admitted.expect("a plain namespace is valid").object);
            let track = Arc::clone(&resource.track);
            self.store.commit(Write { track, key, expect: None, put }).await?;
        }
        Ok(())
    }

    /// Ends all watches.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// Serves or withdraws what a definition defines.
    fn register(&self, definition: &Value, served: bool) {
        let (group, plural) = crd::identity(definition);
        let resources = if served { crd::resources(definition) } else { Vec::new() };
        self.catalog.replace(group, plural, resources);
    }

    /// Answers one request.
    pub(crate) async fn handle<B>(
        self: &Arc<Self>,
        request: Request<B>,
        who: Identity,
    ) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let answered = match Limited::new(body, BODY_LIMIT).collect().await {
            Ok(body) => self.route(&parts, body.to_bytes(), who).await,
            Err(error) if error.is::<LengthLimitError>() => Err(Failure::too_large(BODY_LIMIT)),
            Err(error) => Err(Failure::bad_request(format!("cannot read the body: {error}"))),
        };
        answered.unwrap_or_else(|failure| answer::refuse(&failure))
    }

    fn commit_failure(resource: &Resource, name: &str, error: &WriteError) -> Failure {
        match error {
            WriteError::Stale => Failure::modified(resource, name),
            WriteError::Disk(_) => Failure::internal(error.to_string()),
        }
    }

    /// The namespace must be there, and not on its way out, to take a new object.
    fn check_namespace(&self, call: &Call, name: &str) -> Result<(), Failure> {
        let Some(namespace) = &call.namespace else { return Ok(()) };
        let found = self.store.get(builtin::NAMESPACES, &Key::new("", namespace));
        match found {
            None => {
                let namespaces = self.catalog.find("", "v1", "namespaces");
                let resource = namespaces.expect("namespaces are built in");
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
