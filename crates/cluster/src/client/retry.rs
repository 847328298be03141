//! Retries of requests that a busy API server rejected.
//!
//! kube's own policy retries fifteen times, for up to a quarter of an hour each, and also retries
//! an eviction that a PodDisruptionBudget forbids, which has the same status code. This policy
//! retries a few times within seconds, and never evictions and leases, whose callers have timeouts
//! of their own.

use std::time::Duration;

use http::{HeaderMap, Request, Response, StatusCode, header::RETRY_AFTER};
use kube::client::Body;
use tokio::time::Sleep;
use tower::retry::Policy;

/// Maximum number of retries.
const MAX_RETRIES: u32 = 3;

/// First delay; doubled each time.
const FIRST_DELAY: Duration = Duration::from_millis(100);

/// Maximum delay that the server can ask for here; the caller should know of longer ones.
const MAX_DELAY: Duration = Duration::from_secs(5);

/// The retry policy of one request.
#[derive(Clone, Debug, Default)]
pub(super) struct RetryPolicy {
    done: u32,
}

impl<E> Policy<Request<Body>, Response<Body>, E> for RetryPolicy {
    type Future = Sleep;

    fn retry(
        &mut self,
        request: &mut Request<Body>,
        result: &mut Result<Response<Body>, E>,
    ) -> Option<Sleep> {
        let response = result.as_ref().ok()?;
        if !is_busy(response.status())
            || has_own_retry(request.uri().path())
            || self.done >= MAX_RETRIES
        {
            return None;
        }
        let pause =
            retry_after(response.headers()).unwrap_or(FIRST_DELAY.saturating_mul(1 << self.done));
        self.done = self.done.saturating_add(1);
        (pause <= MAX_DELAY).then(|| tokio::time::sleep(pause.mul_f64(1.0 + fastrand::f64() / 4.0)))
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        // A streamed body cannot be sent twice.
        let body = request.body().try_clone()?;
        let mut copy = Request::new(body);
        request.method().clone_into(copy.method_mut());
        request.uri().clone_into(copy.uri_mut());
        request.headers().clone_into(copy.headers_mut());
        request.extensions().clone_into(copy.extensions_mut());
        *copy.version_mut() = request.version();
        Some(copy)
    }
}

fn is_busy(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}

/// Returns true if the caller of this path retries by itself.
fn has_own_retry(path: &str) -> bool {
    path.ends_with("/eviction") || path.contains("/leases")
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{
            Arc,
            atomic::{AtomicU32, Ordering},
        },
    };

    use kube::Client;
    use tokio::time::Instant;
    use tower::retry::Retry;

    use super::*;

    /// Returns the number of requests that reach a server which always answers `code`, and the
    /// seconds they take.
    async fn calls(code: u16, after: Option<&'static str>, path: &str) -> (u32, u64) {
        let count = Arc::new(AtomicU32::new(0));
        let counted = count.clone();
        let service = tower::service_fn(move |_: Request<Body>| {
            counted.fetch_add(1, Ordering::SeqCst);
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::from_u16(code).unwrap();
            if let Some(after) = after {
                response.headers_mut().insert(RETRY_AFTER, after.parse().unwrap());
            }
            async { Ok::<_, Infallible>(response) }
        });
        let client = Client::new(Retry::new(RetryPolicy::default(), service), "default");
        let start = Instant::now();
        let request = Request::builder().uri(path).body(Vec::new()).unwrap();
        drop(client.request_text(request).await);
        (count.load(Ordering::SeqCst), start.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn requests_to_a_busy_server_are_retried_a_few_times() {
        let nodes = "/api/v1/nodes/a";
        let rows = [
            (200, None, nodes, 1, 0..=0),
            (404, None, nodes, 1, 0..=0),
            (409, None, nodes, 1, 0..=0),
            (429, None, nodes, 4, 0..=1),
            (503, None, nodes, 4, 0..=1),
            (429, Some("1"), nodes, 4, 3..=4),
            (429, Some("60"), nodes, 1, 0..=0),
            (429, None, "/api/v1/namespaces/a/pods/b/eviction", 1, 0..=0),
            (503, None, "/apis/coordination.k8s.io/v1/namespaces/a/leases/b", 1, 0..=0),
        ];
        for (code, after, path, count, seconds) in rows {
            let (called, took) = calls(code, after, path).await;
            assert_eq!(called, count, "{code} {after:?} {path}");
            assert!(seconds.contains(&took), "{code} {after:?} {path}: {took} s");
        }
    }
}
