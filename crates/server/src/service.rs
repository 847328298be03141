//! One request, one answer.

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Response, StatusCode, Uri,
    header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, LOCATION, USER_AGENT},
};
use http_body_util::Full;
use mco_cluster::report;
use mco_ignition::{Target, negotiate};
use tracing::{debug, info, warn};

use crate::{
    answer::{Asked, asked},
    bodies::Bodies,
    source::Source,
};

pub(crate) type Answer = Response<Full<Bytes>>;

/// What answers requests, from whichever address they come.
pub(crate) struct Service<S> {
    source: S,
    bodies: Bodies,
}

/// Why there is a status and no document.
struct Refusal {
    status: StatusCode,
    why: String,
}

impl<S: Source> Service<S> {
    pub(crate) fn new(source: S, documents: usize) -> Arc<Self> {
        Arc::new(Self { source, bodies: Bodies::new(documents) })
    }

    /// Answers; the body of the request is nothing to us and stays where it is.
    pub(crate) async fn answer(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        peer: SocketAddr,
    ) -> Answer {
        match asked(method, uri) {
            Asked::Config { pool } => self.config(&pool, headers, peer).await,
            Asked::Health => empty(StatusCode::OK),
            Asked::Elsewhere { location } => {
                let mut answer = empty(StatusCode::MOVED_PERMANENTLY);
                if let Ok(location) = HeaderValue::from_str(&location) {
                    answer.headers_mut().insert(LOCATION, location);
                }
                answer
            }
            Asked::Refused(status) => {
                debug!(%method, path = uri.path(), %peer, %status, "Request refused");
                empty(status)
            }
        }
    }

    async fn config(&self, pool: &str, headers: &HeaderMap, peer: SocketAddr) -> Answer {
        // Compat: only the first Accept header counts (pkg/server/api.go).
        let text = |name| {
            headers.get(name).map(|value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()))
        };
        let (accept, agent) =
            (text(ACCEPT).unwrap_or_default(), text(USER_AGENT).unwrap_or_default());
        match self.document(pool, &accept).await {
            Ok((version, body)) => {
                let bytes = body.len();
                info!(pool, %peer, user_agent = &*agent, accept = &*accept, %version, bytes,
                    "Config served");
                let mut answer = sized(StatusCode::OK, body);
                let json = HeaderValue::from_static("application/json");
                answer.headers_mut().insert(CONTENT_TYPE, json);
                answer
            }
            Err(Refusal { status, why }) => {
                warn!(pool, %peer, user_agent = &*agent, accept = &*accept, %status, why,
                    "Config not served");
                empty(status)
            }
        }
    }

    async fn document(&self, pool: &str, accept: &str) -> Result<(Target, Bytes), Refusal> {
        let version =
            negotiate(accept).map_err(|refused| Refusal::new(StatusCode::BAD_REQUEST, &refused))?;
        // Ignition gives up on 4xx and asks again on 5xx. A pool or config that is missing may be
        // there in a minute, so all that follows is 5xx.
        let inputs = self.source.inputs(pool).map_err(|error| Refusal::later(&error))?;
        let outcome =
            self.bodies.get(inputs, version).await.map_err(|error| Refusal::later(&error))?;
        let body = outcome.map_err(|error| Refusal::later(&*error))?;
        Ok((version, body))
    }
}

impl Refusal {
    fn new(status: StatusCode, error: &dyn std::error::Error) -> Self {
        Self { status, why: report::chain(error) }
    }

    fn later(error: &dyn std::error::Error) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, error)
    }
}

fn empty(status: StatusCode) -> Answer {
    sized(status, Bytes::new())
}

/// An answer that says how long it is, to HEAD too.
fn sized(status: StatusCode, body: Bytes) -> Answer {
    let length = HeaderValue::from(body.len());
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_LENGTH, length);
    answer
}
