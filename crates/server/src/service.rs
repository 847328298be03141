//! Handles one request.

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Response, StatusCode, Uri,
    header::{
        ACCEPT, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, LOCATION,
        USER_AGENT, VARY,
    },
};
use http_body::Body as _;
use http_body_util::Full;
use mco_api::name;
use mco_ignition::{TargetVersion, negotiate};
use tracing::{debug, info, warn};

use crate::{
    Admission,
    content_coding::prefers_gzip,
    document_cache::{DocumentCache, Representation},
    entity_tag,
    metrics::{Metrics, RequestedPool},
    refusal::{REASON, Refusal, sentence},
    route::{Route, route},
    source::{LookupError, Source},
};

/// Maximum number of bytes of a client's text in the log.
const MAX_LOGGED: usize = 256;

pub(crate) type HttpResponse = Response<Full<Bytes>>;

/// The request handler of all listeners.
pub(crate) struct Service<S> {
    source: S,
    documents: DocumentCache,
    metrics: Metrics,
    pub(crate) admission: Option<Arc<Admission>>,
}

/// The result of a request for a config.
struct ConfigOutcome {
    /// Whether the server has the pool.
    is_known: bool,
    version: Option<TargetVersion>,
    result: Result<Representation, Refusal>,
}

impl<S: Source> Service<S> {
    pub(crate) fn new(
        source: S,
        documents: usize,
        metrics: Metrics,
        admission: Option<Arc<Admission>>,
    ) -> Arc<Self> {
        let documents = DocumentCache::new(documents, metrics.clone());
        Arc::new(Self { source, documents, metrics, admission })
    }

    /// Returns the response to a request; the body of the request is not read.
    pub(crate) async fn respond(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        peer: SocketAddr,
    ) -> HttpResponse {
        let response = match route(method, uri) {
            Route::Config { pool } => {
                return self.respond_with_config(&pool, method, headers, peer).await;
            }
            Route::Live => empty(StatusCode::OK),
            Route::Health => self.respond_with_health(false),
            Route::Ready => self.respond_with_health(true),
            Route::Redirect { location } => {
                let mut response = empty(StatusCode::MOVED_PERMANENTLY);
                if let Ok(location) = HeaderValue::from_str(&location) {
                    response.headers_mut().insert(LOCATION, location);
                }
                response
            }
            Route::Reject(status) => {
                debug!(%method, path = uri.path(), %peer, %status, "Rejected a request");
                Refusal::of_route(status).response()
            }
        };
        self.count(RequestedPool::None, None, method, &response);
        response
    }

    /// Responds that the configs are current, or names the watches that hear nothing.
    fn respond_with_health(&self, with_body: bool) -> HttpResponse {
        let stale = self.source.stale_watches();
        if stale.is_empty() {
            return empty(StatusCode::OK);
        }
        let body = if with_body { stale.join("\n") + "\n" } else { String::new() };
        let mut response = sized(StatusCode::SERVICE_UNAVAILABLE, body.into());
        if let Ok(reason) = HeaderValue::from_str(&sentence(&stale.join(", "))) {
            response.headers_mut().insert(REASON, reason);
        }
        response
    }

    async fn respond_with_config(
        &self,
        pool: &str,
        method: &Method,
        headers: &HeaderMap,
        peer: SocketAddr,
    ) -> HttpResponse {
        if let Some(admission) = &self.admission
            && let Err(refused) = admission.admit(pool, headers, peer).await
        {
            self.count(RequestedPool::None, None, method, &refused);
            return refused;
        }
        // Compat: only the first Accept header counts (pkg/server/api.go).
        let text = |name| {
            headers.get(name).map(|value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()))
        };
        let (accept, user_agent) =
            (text(ACCEPT).unwrap_or_default(), text(USER_AGENT).unwrap_or_default());
        let ConfigOutcome { is_known, version, result } =
            self.get_config(pool, &accept, prefers_gzip(headers)).await;
        let (pool_name, accept, user_agent) =
            (shortened(pool), shortened(&accept), shortened(&user_agent));
        let response = match result {
            Ok(representation) => {
                let response = with_config(headers, &representation);
                let version = version.map(TargetVersion::as_str);
                info!(pool = pool_name, %peer, user_agent, accept, version,
                    status = response.status().as_u16(), bytes = representation.body.len(),
                    "Served the config of a pool");
                response
            }
            Err(refusal) => {
                let (status, reason) = (refusal.status.as_u16(), &refusal.cause);
                warn!(pool = pool_name, %peer, user_agent, accept, status, reason,
                    "Refused a request for a config");
                refusal.response()
            }
        };
        let label = if is_known { RequestedPool::Known(pool) } else { RequestedPool::Unknown };
        self.count(label, version, method, &response);
        response
    }

    async fn get_config(&self, pool: &str, accept: &str, gzip: bool) -> ConfigOutcome {
        if let Err(fault) = name::check(pool) {
            let result = Err(Refusal::of_pool_name(fault));
            return ConfigOutcome { is_known: false, version: None, result };
        }
        let inputs = self.source.inputs(pool).await;
        let is_known = !inputs.as_ref().is_err_and(LookupError::is_unknown_pool);
        let Ok(version) = negotiate(accept) else {
            return ConfigOutcome { is_known, version: None, result: Err(Refusal::of_version()) };
        };
        let result = async {
            let inputs = inputs.map_err(|error| Refusal::of_lookup(&error))?;
            let outcome = self.documents.get(inputs, version).await;
            let document = outcome
                .map_err(Refusal::of_shutdown)?
                .map_err(|error| Refusal::of_build(pool, version, &error))?;
            document.representation(gzip).await.map_err(Refusal::of_shutdown)
        };
        ConfigOutcome { is_known, version: Some(version), result: result.await }
    }

    fn count(
        &self,
        pool: RequestedPool<'_>,
        version: Option<TargetVersion>,
        method: &Method,
        response: &HttpResponse,
    ) {
        let length = response.body().size_hint().exact().unwrap_or_default();
        let sent = if method == Method::HEAD { 0 } else { length };
        self.metrics.responded(pool, response.status(), version, sent);
    }
}

/// Builds the response with a config, or the one that says that the client has it already.
fn with_config(headers: &HeaderMap, representation: &Representation) -> HttpResponse {
    let Representation { body, tag, is_gzip } = representation;
    let mut response = if entity_tag::is_known(headers, tag) {
        let mut response = Response::new(Full::default());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        let mut response = sized(StatusCode::OK, body.clone());
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        if *is_gzip {
            let gzip = HeaderValue::from_static("gzip");
            response.headers_mut().insert(CONTENT_ENCODING, gzip);
        }
        response
    };
    let headers = response.headers_mut();
    headers.insert(ETAG, tag.clone());
    headers.insert(VARY, HeaderValue::from_static("accept, accept-encoding"));
    // A config has secrets: no shared cache may keep it.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    response
}

/// Returns the start of a text, for the log: a client may send kilobytes.
fn shortened(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_LOGGED)).unwrap_or(text)
}

pub(crate) fn empty(status: StatusCode) -> HttpResponse {
    sized(status, Bytes::new())
}

/// Builds a response with a Content-Length, for HEAD too.
fn sized(status: StatusCode, body: Bytes) -> HttpResponse {
    let length = HeaderValue::from(body.len());
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_LENGTH, length);
    response
}
