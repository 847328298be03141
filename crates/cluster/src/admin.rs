//! The administrative listener of a process: `/metrics`, `/livez`, `/readyz` and, for the daemon,
//! `/state`. `/healthz` is an alias of `/livez`.
//!
//! It has no authentication and belongs on the loopback address. [`SecureAdmin`] serves other machines.

mod access;
mod secure;

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{rt::TokioIo, server::graceful::GracefulShutdown};
use prometheus_client::encoding::text::encode;
pub use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tracing::{debug, info};

pub use self::secure::{SecureAdmin, SecureError};
use crate::{Health, Shutdown};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Failure to listen on an address.
#[derive(Debug, thiserror::Error)]
#[error("failed to listen on {address}")]
pub struct ListenError {
    address: SocketAddr,
    source: std::io::Error,
}

/// A function that returns the JSON of `/state`.
pub type StatePage = Arc<dyn Fn() -> String + Send + Sync>;

/// Readiness of a process. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<AtomicBool>);

impl Readiness {
    /// Marks the process as ready.
    pub fn set_ready(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_reached(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A bound listener that does not serve yet.
pub struct Admin {
    listener: TcpListener,
    pages: Pages,
}

/// The pages of a process. Clones share their contents.
#[derive(Clone)]
struct Pages {
    registry: Arc<Registry>,
    readiness: Readiness,
    health: Health,
    state: Option<StatePage>,
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin").field("listener", &self.listener).finish_non_exhaustive()
    }
}

impl Admin {
    /// Binds `address`; port 0 takes a free one.
    pub async fn listen(address: SocketAddr, registry: Arc<Registry>) -> Result<Self, ListenError> {
        let listener =
            TcpListener::bind(address).await.map_err(|source| ListenError { address, source })?;
        let (readiness, health) = (Readiness::default(), Health::default());
        Ok(Self { listener, pages: Pages { registry, readiness, health, state: None } })
    }

    /// Reports `health` at `/livez` and `/readyz`.
    #[must_use]
    pub fn with_health(mut self, health: Health) -> Self {
        self.pages.health = health;
        self
    }

    /// Serves `page` at `/state`.
    #[must_use]
    pub fn with_state(mut self, page: Option<StatePage>) -> Self {
        self.pages.state = page;
        self
    }

    /// Returns the readiness that `/readyz` reports. It starts as not ready.
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.pages.readiness.clone()
    }

    /// Returns the bound address.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves requests until shutdown.
    pub async fn serve(self, shutdown: &Shutdown) {
        if let Ok(address) = self.address() {
            info!(%address, "Serving metrics");
        }
        let connections = GracefulShutdown::new();
        loop {
            let stream = tokio::select! {
                () = shutdown.requested() => break,
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        debug!(%error, "Failed to accept a connection");
                        continue;
                    }
                },
            };
            let pages = self.pages.clone();
            let answer = service_fn(move |request: Request<Incoming>| {
                let response = pages.answer(request.uri().path());
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
            let connection = connections.watch(connection);
            tokio::spawn(async move {
                if let Err(error) = connection.await {
                    debug!(%error, "Connection failed");
                }
            });
        }
        connections.shutdown().await;
    }
}

/// Status, content type and body of a page.
type Page = (StatusCode, &'static str, String);

impl Pages {
    fn answer(&self, path: &str) -> Response<Full<Bytes>> {
        response(match (path, &self.state) {
            ("/state", Some(page)) => (StatusCode::OK, "application/json", page()),
            ("/metrics", _) => self.metrics(),
            ("/livez" | "/healthz", _) => verdict(&self.health.stuck_queues()),
            ("/readyz", _) if self.readiness.is_reached() => ready(&self.health),
            ("/readyz", _) => verdict(&["the API server has not answered yet".to_owned()]),
            _ => (StatusCode::NOT_FOUND, "text/plain", "not found\n".to_owned()),
        })
    }

    fn metrics(&self) -> Page {
        let mut text = String::new();
        match encode(&mut text, &self.registry) {
            Ok(()) => (StatusCode::OK, OPEN_METRICS, text),
            Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "text/plain", String::new()),
        }
    }
}

fn response((status, kind, body): Page) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

/// Returns the answer of the readiness check.
fn ready(health: &Health) -> Page {
    let faults = health.stale_watches();
    match health.idle() {
        Some(reason) if faults.is_empty() => {
            (StatusCode::OK, "text/plain", format!("ok\n{reason}\n"))
        }
        Some(_) | None => verdict(&faults),
    }
}

/// Returns the answer of a health check with these faults.
fn verdict(faults: &[String]) -> Page {
    if faults.is_empty() {
        return (StatusCode::OK, "text/plain", "ok".to_owned());
    }
    (StatusCode::SERVICE_UNAVAILABLE, "text/plain", faults.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::gauge::Gauge;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    #[tokio::test]
    async fn metrics_and_health_are_served_until_shutdown() {
        let mut registry = Registry::default();
        registry.register("up", "whether it runs", Gauge::<i64>::default());
        let admin = Admin::listen(([127, 0, 0, 1], 0).into(), Arc::new(registry)).await.unwrap();
        let admin = admin.with_state(Some(Arc::new(|| "{}".to_owned())));
        let (address, shutdown) = (admin.address().unwrap(), Shutdown::new());
        let readiness = admin.readiness();
        let asks = async {
            assert!(get(address, "/healthz").await.ends_with("ok"));
            assert!(get(address, "/livez").await.ends_with("ok"));
            assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 503"));
            readiness.set_ready();
            assert!(get(address, "/readyz").await.ends_with("ok"));
            let metrics = get(address, "/metrics").await;
            assert!(metrics.contains("# TYPE up gauge"), "{metrics}");
            assert!(metrics.contains("application/openmetrics-text"), "{metrics}");
            assert!(get(address, "/else").await.starts_with("HTTP/1.1 404"));
            assert!(get(address, "/state").await.ends_with("{}"));
            shutdown.request();
        };
        tokio::join!(admin.serve(&shutdown), asks);
    }

    #[test]
    fn the_checks_name_stale_watches_and_stuck_queues() {
        let (readiness, health) = (Readiness::default(), Health::default());
        readiness.set_ready();
        let pages = Pages {
            registry: Arc::new(Registry::default()),
            readiness,
            health: health.clone(),
            state: None,
        };
        let ask = |path| pages.answer(path).status();
        assert_eq!((ask("/readyz"), ask("/livez")), (StatusCode::OK, StatusCode::OK));
        let watch = health.watch("Node", crate::health::Presence::Required);
        assert_eq!(
            (ask("/readyz"), ask("/livez")),
            (StatusCode::SERVICE_UNAVAILABLE, StatusCode::OK)
        );
        assert_eq!(health.stale_watches(), ["watch of Node has not listed its objects yet"]);
        watch.synced();
        health.set_idle(Some("waiting".to_owned()));
        assert_eq!(ask("/readyz"), StatusCode::OK);
    }
}
