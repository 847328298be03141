//! Handles one request.

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Response, StatusCode, Uri,
    header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, LOCATION, USER_AGENT},
};
use http_body_util::Full;
use mco_cluster::report;
use mco_ignition::{TargetVersion, negotiate};
use tracing::{debug, info, warn};

use crate::{
    Admission,
    document_cache::DocumentCache,
    route::{Route, route},
    source::Source,
};

pub(crate) type HttpResponse = Response<Full<Bytes>>;

/// The request handler of all listeners.
pub(crate) struct Service<S> {
    source: S,
    documents: DocumentCache,
    pub(crate) admission: Option<Arc<Admission>>,
}

/// A rejected request: its status and the reason.
struct Refusal {
    status: StatusCode,
    why: String,
}

impl<S: Source> Service<S> {
    pub(crate) fn new(source: S, documents: usize, admission: Option<Arc<Admission>>) -> Arc<Self> {
        Arc::new(Self { source, documents: DocumentCache::new(documents), admission })
    }

    /// Returns the response to a request; the body of the request is not read.
    pub(crate) async fn respond(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        peer: SocketAddr,
    ) -> HttpResponse {
        match route(method, uri) {
            Route::Config { pool } => self.respond_with_config(&pool, headers, peer).await,
            Route::Health => empty(StatusCode::OK),
            Route::Ready => {
                let stale = self.source.stale_watches();
                if stale.is_empty() {
                    return empty(StatusCode::OK);
                }
                sized(StatusCode::SERVICE_UNAVAILABLE, Bytes::from(stale.join("\n") + "\n"))
            }
            Route::Redirect { location } => {
                let mut response = empty(StatusCode::MOVED_PERMANENTLY);
                if let Ok(location) = HeaderValue::from_str(&location) {
                    response.headers_mut().insert(LOCATION, location);
                }
                response
            }
            Route::Reject(status) => {
                debug!(%method, path = uri.path(), %peer, %status, "Rejected request");
                empty(status)
            }
        }
    }

    async fn respond_with_config(
        &self,
        pool: &str,
        headers: &HeaderMap,
        peer: SocketAddr,
    ) -> HttpResponse {
        if let Some(admission) = &self.admission
            && let Err(refused) = admission.admit(pool, headers, peer).await
        {
            return refused;
        }
        // Compat: only the first Accept header counts (pkg/server/api.go).
        let text = |name| {
            headers.get(name).map(|value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()))
        };
        let (accept, agent) =
            (text(ACCEPT).unwrap_or_default(), text(USER_AGENT).unwrap_or_default());
        match self.get_document(pool, &accept).await {
            Ok((version, body)) => {
                let bytes = body.len();
                info!(pool, %peer, user_agent = &*agent, accept = &*accept, %version, bytes,
                    "Config served");
                let mut response = sized(StatusCode::OK, body);
                let json = HeaderValue::from_static("application/json");
                response.headers_mut().insert(CONTENT_TYPE, json);
                response
            }
            Err(Refusal { status, why }) => {
                warn!(pool, %peer, user_agent = &*agent, accept = &*accept, %status, why,
                    "Config not served");
                empty(status)
            }
        }
    }

    async fn get_document(
        &self,
        pool: &str,
        accept: &str,
    ) -> Result<(TargetVersion, Bytes), Refusal> {
        let version =
            negotiate(accept).map_err(|refused| Refusal::new(StatusCode::BAD_REQUEST, &refused))?;
        // Ignition gives up on 4xx and retries on 5xx. A missing pool or config may exist in a
        // minute, so all errors below are 5xx.
        let inputs = self.source.inputs(pool).map_err(|error| Refusal::retriable(&error))?;
        let outcome = self
            .documents
            .get(inputs, version)
            .await
            .map_err(|error| Refusal::retriable(&error))?;
        let body = outcome.map_err(|error| Refusal::retriable(&*error))?;
        Ok((version, body))
    }
}

impl Refusal {
    fn new(status: StatusCode, error: &(dyn std::error::Error + 'static)) -> Self {
        Self { status, why: report::chain(error) }
    }

    fn retriable(error: &(dyn std::error::Error + 'static)) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, error)
    }
}

fn empty(status: StatusCode) -> HttpResponse {
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
