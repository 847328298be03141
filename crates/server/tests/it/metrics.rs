//! Tests of the metrics after real requests.

use mco_server::Metrics;
use prometheus_client::{encoding::text::encode, registry::Registry};

use crate::{
    client::{plain, request},
    fixture::{source, start},
};

#[tokio::test]
async fn requests_are_counted_and_clients_cannot_add_pools() {
    let metrics = Metrics::default();
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    let server = start(source(), |settings| settings.metrics = metrics.clone()).await;
    let accept = ["a/vnd.coreos.ignition+json;version=3.5.0"];
    let ask =
        |method: &'static str, path: String| plain(server.plain, request(method, &path, &accept));
    let mut bytes = 0;
    for _ in 0..3 {
        bytes += ask("GET", "/config/worker".to_owned()).await.body.len();
    }
    ask("HEAD", "/config/worker".to_owned()).await;
    for number in 0..50 {
        ask("GET", format!("/config/none-{number}")).await;
        ask("GET", format!("/other/{number}")).await;
    }
    ask("GET", "/config/Not_A_Name".to_owned()).await;
    server.stop().await;

    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    let mut found: Vec<&str> =
        text.lines().filter(|line| line.starts_with("mco_server_requests_total")).collect();
    found.sort_unstable();
    let expected = [
        "mco_server_requests_total{pool=\"\",code=\"404\",version=\"\"} 50",
        "mco_server_requests_total{pool=\"unknown\",code=\"404\",version=\"\"} 1",
        "mco_server_requests_total{pool=\"unknown\",code=\"503\",version=\"3.5.0\"} 50",
        "mco_server_requests_total{pool=\"worker\",code=\"200\",version=\"3.5.0\"} 4",
    ];
    assert_eq!(found, expected);
    for line in [
        &format!("mco_server_response_bytes_total {bytes}"),
        "mco_server_document_build_seconds_count 1",
        "mco_server_connections{listener=\"http\"} 0",
    ] {
        assert!(text.contains(&format!("{line}\n")), "{line} in {text}");
    }
}
