//! Retries of requests, by class of failure and by request.
//!
//! kube's own policy retries fifteen times, for up to a quarter of an hour each, and also retries
//! an eviction that a PodDisruptionBudget forbids, which has the same status code. This policy
//! retries a few times within seconds, and never evictions and leases, whose callers have timeouts
//! of their own. A request whose answer was lost may have been carried out; it is repeated only if
//! that changes nothing.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::FutureExt as _;
use http::{
    HeaderMap, Method, Request, Response, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER},
};
use http_body_util::{BodyExt as _, Collected};
use kube::client::Body;
use serde::Deserialize;
use tower::{BoxError, Service};
use tracing::{debug, info, warn};

use super::{
    Options,
    deadline::{self, AnswerBody, Deadline, Target, TimedOut, causes, is_connect_error, is_watch},
};
use crate::{
    lease::{Fence, NotLeading},
    report,
};

/// Maximum number of retries.
const MAX_RETRIES: u32 = 3;

/// Maximum number of retries after a time-out, which has taken long already.
const MAX_TIMEOUT_RETRIES: u32 = 1;

/// First delay; doubled each time.
const FIRST_DELAY: Duration = Duration::from_millis(100);

/// Maximum delay that the server can ask for here; the caller should know of longer ones.
const MAX_DELAY: Duration = Duration::from_secs(5);

/// A class of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The request was not sent: there was no connection.
    NotSent,
    /// The connection failed after the request was sent.
    Lost,
    /// No answer arrived in time.
    TimedOut,
    /// The API server is overloaded or not available.
    Busy,
    /// The API server failed.
    ServerError,
    /// The API server no longer has the requested version.
    Gone,
}

impl Fault {
    /// Returns the reason in logs and metrics.
    const fn reason(self) -> &'static str {
        match self {
            Self::NotSent => "connect",
            Self::Lost => "connection_lost",
            Self::TimedOut => "timeout",
            Self::Busy => "busy",
            Self::ServerError => "server_error",
            Self::Gone => "gone",
        }
    }
}

/// The parts of a request that decide if it may be repeated.
#[derive(Debug)]
struct Call<'a> {
    method: &'a Method,
    path: &'a str,
    query: Option<&'a str>,
    content_type: &'a str,
    body: &'a [u8],
}

/// Returns true if the request may be sent again after such a failure.
fn may_repeat(call: &Call<'_>, fault: Fault) -> bool {
    if has_own_retry(call.path) {
        return false;
    }
    match fault {
        Fault::Busy => true,
        // The caller of a watch restarts it, from the last event.
        _ if is_watch(call.query) => false,
        Fault::NotSent => true,
        // The caller requests another version, or all.
        Fault::Gone => false,
        Fault::ServerError => call.method == Method::GET,
        Fault::Lost | Fault::TimedOut => is_idempotent(call),
    }
}

/// Returns true if the caller of this path retries by itself.
fn has_own_retry(path: &str) -> bool {
    path.ends_with("/eviction") || path.contains("/leases")
}

/// Returns true if carrying out the request a second time changes nothing more.
fn is_idempotent(call: &Call<'_>) -> bool {
    match *call.method {
        // The second PUT of a resource version is a conflict, which its caller handles.
        Method::GET | Method::HEAD | Method::PUT => true,
        Method::PATCH => {
            matches!(
                call.content_type,
                "application/merge-patch+json" | "application/apply-patch+yaml"
            )
        }
        // The object may have been created again in the meantime.
        Method::DELETE => Head::read(call.body).preconditions.uid.is_some(),
        // The second creation of a name is rejected as AlreadyExists, which its caller handles.
        Method::POST => Head::read(call.body).metadata.name.is_some(),
        _ => false,
    }
}

/// The members of a body that identify an object.
#[derive(Default, Deserialize)]
struct Head {
    #[serde(default)]
    metadata: Name,
    #[serde(default)]
    preconditions: Preconditions,
}

#[derive(Default, Deserialize)]
struct Name {
    name: Option<String>,
}

#[derive(Default, Deserialize)]
struct Preconditions {
    uid: Option<String>,
}

impl Head {
    /// Returns the members; those of any other body are absent.
    fn read(body: &[u8]) -> Self {
        serde_json::from_slice(body).unwrap_or_default()
    }
}

/// Returns the class of a failed attempt.
fn classify<B>(result: &Result<Response<B>, BoxError>) -> Option<Fault> {
    let error = match result {
        Ok(response) => {
            return match response.status() {
                StatusCode::TOO_MANY_REQUESTS
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT => Some(Fault::Busy),
                StatusCode::INTERNAL_SERVER_ERROR | StatusCode::BAD_GATEWAY => {
                    Some(Fault::ServerError)
                }
                StatusCode::GONE => Some(Fault::Gone),
                _ => None,
            };
        }
        Err(error) => error,
    };
    if let Some(failure) = error.downcast_ref::<TimedOut>() {
        return Some(match failure.deadline {
            Deadline::Connect => Fault::NotSent,
            Deadline::FirstByte | Deadline::Answer | Deadline::Idle => Fault::TimedOut,
        });
    }
    let error: &(dyn std::error::Error + 'static) = &**error;
    if is_connect_error(error) {
        return Some(Fault::NotSent);
    }
    let is_transport = |error: &(dyn std::error::Error + 'static)| {
        error.is::<hyper::Error>() || error.is::<std::io::Error>()
    };
    let is_rejected = causes(error).any(<dyn std::error::Error>::is::<NotLeading>);
    (!is_rejected && causes(error).any(is_transport)).then_some(Fault::Lost)
}

/// Returns the delay before the next attempt, if there is one.
fn delay(fault: Fault, done: u32, asked: Option<Duration>) -> Option<Duration> {
    let max = if fault == Fault::TimedOut { MAX_TIMEOUT_RETRIES } else { MAX_RETRIES };
    let delay = asked.unwrap_or(FIRST_DELAY.saturating_mul(1 << done.min(MAX_RETRIES)));
    (done < max && delay <= MAX_DELAY).then_some(delay)
}

/// Sends a request, and sends it again after failures that allow it.
pub(super) async fn send<S>(
    transport: S,
    options: Arc<Options>,
    mut request: Request<Body>,
) -> Result<Response<AnswerBody>, BoxError>
where
    S: Service<Request<Body>, Response = Response<Body>, Error: Into<BoxError>> + Clone,
{
    options.identity.sign(&mut request);
    let mut done = 0;
    loop {
        // A streamed body cannot be sent twice.
        let Some(copy) = copied(&request) else {
            return attempt(transport, &options, request).await;
        };
        let result = attempt(transport.clone(), &options, request).await;
        let Some(fault) = classify(&result) else { return result };
        let asked = result.as_ref().ok().and_then(|response| retry_after(response.headers()));
        let next = copy_may_repeat(&copy, fault).then(|| delay(fault, done, asked)).flatten();
        let Some(delay) = next else {
            log_failure(&Target::of(&copy), fault, &result);
            return result;
        };
        done += 1;
        log_retry(&Target::of(&copy), fault, done, &result);
        options.metrics.count_retry(fault.reason());
        drop(result);
        tokio::time::sleep(delay.mul_f64(1.0 + fastrand::f64() / 4.0)).await;
        request = copy;
    }
}

/// Sends a request once. A write is rejected when this process has lost its lease, even if it has
/// not been sent yet only because it waits for a connection.
async fn attempt<S>(
    transport: S,
    options: &Options,
    request: Request<Body>,
) -> Result<Response<AnswerBody>, BoxError>
where
    S: Service<Request<Body>, Response = Response<Body>, Error: Into<BoxError>>,
{
    let fence = request.extensions().get::<Fence>().cloned();
    let method = request.method().clone();
    let started = options.metrics.start(Target::of(&request));
    let sent = deadline::send(transport, request, &options.deadlines, &options.metrics);
    let result = match fence {
        None => sent.await,
        Some(fence) => tokio::select! {
            biased;
            rejected = fence.shut_down() => Err(rejected.into()),
            result = sent => result,
        },
    };
    started.finish();
    options.metrics.count(&method, &result);
    result
}

fn log_retry<B>(
    target: &Target,
    fault: Fault,
    attempt: u32,
    result: &Result<Response<B>, BoxError>,
) {
    let Target { method, path } = target;
    let (reason, cause) = (fault.reason(), cause(result));
    if attempt == 1 {
        warn!(%method, path, reason, attempt, cause, "Retrying a request to the API server");
    } else {
        debug!(%method, path, reason, attempt, cause, "Retrying a request to the API server");
    }
}

/// Logs a request that is not repeated here. Its caller knows what that means, and warns.
fn log_failure<B>(target: &Target, fault: Fault, result: &Result<Response<B>, BoxError>) {
    let Target { method, path } = target;
    let (reason, cause) = (fault.reason(), cause(result));
    let is_refused = |response: &Response<B>| response.status() == StatusCode::TOO_MANY_REQUESTS;
    if path.ends_with("/eviction") && result.as_ref().is_ok_and(is_refused) {
        // A PodDisruptionBudget forbids it for now, which the drain reports.
        debug!(%method, path, reason, cause, "Request to the API server failed");
    } else {
        info!(%method, path, reason, cause, "Request to the API server failed");
    }
}

fn cause<B>(result: &Result<Response<B>, BoxError>) -> String {
    match result {
        Ok(response) => response.status().as_u16().to_string(),
        Err(error) => report::chain(&**error),
    }
}

fn copy_may_repeat(request: &Request<Body>, fault: Fault) -> bool {
    let body = bytes(request.body());
    let content_type = request.headers().get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
    let call = Call {
        method: request.method(),
        path: request.uri().path(),
        query: request.uri().query(),
        content_type: content_type.unwrap_or_default(),
        body: &body,
    };
    may_repeat(&call, fault)
}

/// Returns the bytes of a body that is not streamed.
fn bytes(body: &Body) -> Bytes {
    let collected = body.try_clone().and_then(|body| body.collect().now_or_never());
    collected.and_then(Result::ok).map(Collected::to_bytes).unwrap_or_default()
}

fn copied(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    request.method().clone_into(copy.method_mut());
    request.uri().clone_into(copy.uri_mut());
    request.headers().clone_into(copy.headers_mut());
    request.extensions().clone_into(copy.extensions_mut());
    *copy.version_mut() = request.version();
    Some(copy)
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests;
