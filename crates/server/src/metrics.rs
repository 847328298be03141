//! Metrics of the server. Their names are a public contract.

use std::{sync::Arc, time::Duration};

use http::StatusCode;
use mco_ignition::TargetVersion;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

/// Label of requests for a pool that does not exist. Clients choose the names of such pools, so these
/// are no labels.
const UNKNOWN_POOL: &str = "unknown";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    pool: Arc<str>,
    code: u16,
    version: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ListenerLabel {
    listener: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RejectionLabels {
    listener: &'static str,
    reason: &'static str,
}

/// Metrics of the server. There is no global registry: each process, and each test, has its own.
#[derive(Clone, Debug)]
pub struct Metrics {
    requests: Family<RequestLabels, Counter>,
    response_bytes: Counter,
    document_build: Histogram,
    connections: Family<ListenerLabel, Gauge>,
    rejected: Family<RejectionLabels, Counter>,
    replaced: Family<ListenerLabel, Counter>,
}

/// The pool that a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestedPool<'a> {
    /// The request is not for a config.
    None,
    /// The server has no such pool.
    Unknown,
    /// A pool.
    Known(&'a str),
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            response_bytes: Counter::default(),
            // From a millisecond to four seconds.
            document_build: Histogram::new(exponential_buckets(0.001, 2.0, 13)),
            connections: Family::default(),
            rejected: Family::default(),
            replaced: Family::default(),
        }
    }
}

impl Metrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        // The encoder appends `_total` to counters.
        registry.register(
            "mco_server_requests",
            "Requests by pool, status code and Ignition version; other requests have no pool, and \
             pools that do not exist are unknown",
            self.requests.clone(),
        );
        registry.register(
            "mco_server_response_bytes",
            "Bytes of all response bodies",
            self.response_bytes.clone(),
        );
        registry.register(
            "mco_server_document_build_seconds",
            "Time to build a document, which is then cached",
            self.document_build.clone(),
        );
        registry.register(
            "mco_server_connections",
            "Open connections of a listener",
            self.connections.clone(),
        );
        registry.register(
            "mco_server_connections_rejected",
            "Connections closed at once, because their address or the listener has too many",
            self.rejected.clone(),
        );
        registry.register(
            "mco_server_connections_replaced",
            "Connections closed to make room for a new one",
            self.replaced.clone(),
        );
    }

    pub(crate) fn responded(
        &self,
        pool: RequestedPool<'_>,
        code: StatusCode,
        version: Option<TargetVersion>,
        bytes: u64,
    ) {
        let pool = match pool {
            RequestedPool::None => "",
            RequestedPool::Unknown => UNKNOWN_POOL,
            RequestedPool::Known(pool) => pool,
        };
        let version = version.map_or("", TargetVersion::as_str);
        let labels = RequestLabels { pool: pool.into(), code: code.as_u16(), version };
        self.requests.get_or_create(&labels).inc();
        self.response_bytes.inc_by(bytes);
    }

    pub(crate) fn document_built(&self, duration: Duration) {
        self.document_build.observe(duration.as_secs_f64());
    }

    pub(crate) fn connection_opened(&self, listener: &'static str) {
        self.connections.get_or_create(&ListenerLabel { listener }).inc();
    }

    pub(crate) fn connection_closed(&self, listener: &'static str) {
        self.connections.get_or_create(&ListenerLabel { listener }).dec();
    }

    pub(crate) fn connection_rejected(&self, listener: &'static str, reason: &'static str) {
        self.rejected.get_or_create(&RejectionLabels { listener, reason }).inc();
    }

    pub(crate) fn connection_replaced(&self, listener: &'static str) {
        self.replaced.get_or_create(&ListenerLabel { listener }).inc();
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn the_names_of_the_metrics() {
        let (metrics, mut registry) = (Metrics::default(), Registry::default());
        metrics.register(&mut registry);
        let version = "3.5.0".parse().ok();
        metrics.responded(RequestedPool::Known("worker"), StatusCode::OK, version, 32);
        metrics.responded(RequestedPool::Unknown, StatusCode::SERVICE_UNAVAILABLE, version, 0);
        metrics.responded(RequestedPool::None, StatusCode::NOT_FOUND, None, 0);
        metrics.document_built(Duration::from_millis(3));
        metrics.connection_opened("https");
        metrics.connection_rejected("https", "address_limit");
        metrics.connection_replaced("https");
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let series = text.lines().filter(|line| !line.starts_with('#'));
        let series = series.filter(|line| !line.contains("_bucket"));
        let mut series: Vec<&str> = series.collect();
        series.sort_unstable();
        let expected = [
            "mco_server_connections_rejected_total{listener=\"https\",reason=\"address_limit\"} 1",
            "mco_server_connections_replaced_total{listener=\"https\"} 1",
            "mco_server_connections{listener=\"https\"} 1",
            "mco_server_document_build_seconds_count 1",
            "mco_server_document_build_seconds_sum 0.003",
            "mco_server_requests_total{pool=\"\",code=\"404\",version=\"\"} 1",
            "mco_server_requests_total{pool=\"unknown\",code=\"503\",version=\"3.5.0\"} 1",
            "mco_server_requests_total{pool=\"worker\",code=\"200\",version=\"3.5.0\"} 1",
            "mco_server_response_bytes_total 32",
        ];
        assert_eq!(series, expected, "{text}");
    }
}
