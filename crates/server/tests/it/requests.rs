//! Tests of the log line of each request.

use mco_testkit::log::Lines;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::{
    client::{plain, request},
    fixture::{source, start},
};

// covers: S46
#[tokio::test]
async fn each_config_request_is_logged_with_client_and_result() {
    let lines = Lines::default();
    let layer = tracing_subscriber::fmt::layer().json().flatten_event(true);
    let registry = tracing_subscriber::registry().with(layer.with_writer(lines.clone()));
    // With a single subscriber, tracing lets the thread that reaches a log line first decide for all
    // threads, and other tests have no subscriber.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let _log = tracing::subscriber::set_default(registry);

    let server = start(source(), |_| {}).await;
    let accept = ["a/vnd.coreos.ignition+json;version=3.3.0\", forged=\"1"];
    plain(server.plain, request("GET", "/config/empty", &accept)).await;
    plain(server.plain, request("GET", "/config/missing", &[])).await;
    let flood = format!("/config/{}", "x".repeat(10_000));
    plain(server.plain, request("GET", &flood, &["y".repeat(5_000).as_str()])).await;
    let version = format!("a/vnd.coreos.ignition+json;version=4.0.0;{}", "z".repeat(5_000));
    plain(server.plain, request("GET", "/config/worker", &[&version])).await;
    server.stop().await;

    let text = lines.text();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let longest = text.lines().map(str::len).max();
    assert!(longest < Some(1_500), "a client's text is shortened: {longest:?}");
    let of = |pool: &str| {
        let found: Vec<_> = lines.iter().filter(|line| line["pool"] == pool).collect();
        assert_eq!(found.len(), 1, "{text}");
        found[0].clone()
    };
    let (answered, refused) = (of("empty"), of("missing"));
    assert_eq!(answered["message"], "Served the config of a pool");
    assert_eq!(answered["user_agent"], "Ignition/2.20.0");
    assert_eq!(answered["accept"], accept[0]);
    assert!(answered["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{answered}");
    assert_eq!(refused["message"], "Refused a request for a config");
    assert_eq!(refused["reason"], "pool \"missing\" does not exist");
    assert_eq!((&answered["status"], &refused["status"]), (&200.into(), &503.into()));
    assert_eq!(answered["version"], "2.2.0", "what follows is no version");
}
