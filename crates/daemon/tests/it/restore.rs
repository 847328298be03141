//! A node follows an API server that fails, or was restored from a backup.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use kube::{
    Client,
    api::{Patch, PatchParams},
    client::Body,
};
use mco_testkit::switch::switching;
use serde_json::json;
use tokio::sync::watch;

use crate::fleet::{Drains, Fleet};

/// Nothing else changes the node, so that no event of its watch starts another attempt.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_could_not_be_read_at_the_start_is_read_again() {
    let mut fleet = Fleet::new(&[], Drains::Answered).await;
    let (upstream, refusals) = (fleet.client.clone(), Arc::new(AtomicUsize::new(0)));
    let count = refusals.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let is_read = request.method() == http::Method::GET
            && request.uri().path() == "/api/v1/nodes/worker-0";
        let is_refused = is_read && count.fetch_add(1, Ordering::Relaxed) == 0;
        let upstream = upstream.clone();
        async move {
            if is_refused {
                let status = json!({"kind": "Status", "status": "Failure", "code": 503});
                let body = Body::from(status.to_string().into_bytes());
                return Ok(http::Response::builder().status(503).body(body).unwrap());
            }
            upstream.send(request).await
        }
    });
    fleet.client = Client::new(service, "default");
    fleet.start();
    fleet.wait("currentConfig=rendered-worker-1, state=Done").await;
    assert!(refusals.load(Ordering::Relaxed) > 1, "the first read was refused");
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_desired_config_is_heard_after_a_restore_without_a_restart() {
    let mut fleet = Fleet::new(&[], Drains::Answered).await;
    let restored = Fleet::new(&[], Drains::Answered).await;
    let (switch, switched) = watch::channel(false);
    fleet.client = switching([fleet.client.clone(), restored.client.clone()], &switched);
    fleet.start();
    fleet.wait("currentConfig=rendered-worker-1, state=Done").await;
    // The versions that the daemon has seen are far above those of the restored server.
    for number in 0..300 {
        let mark = json!({"metadata": {"annotations": {"example.com/mark": number.to_string()}}});
        let patch = Patch::Merge(mark);
        fleet.nodes.patch("worker-0", &PatchParams::default(), &patch).await.unwrap();
    }
    for (key, value) in [
        ("currentConfig", "rendered-worker-1"),
        ("desiredConfig", "rendered-worker-1"),
        ("state", "Done"),
    ] {
        restored.annotate(key, value).await;
    }
    let files = [("/etc/containers/policy.json", "1")];
    restored.render("rendered-worker-2", &files, &json!({})).await;
    switch.send_replace(true);
    restored.desire("rendered-worker-2").await;
    restored.wait("currentConfig=rendered-worker-2, state=Done").await;
    assert_eq!(fleet.text("/etc/containers/policy.json").as_deref(), Some("1"));
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_with_a_silent_watch_is_not_ready() {
    let mut fleet = Fleet::new(&[], Drains::Answered).await;
    let upstream = fleet.client.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let upstream = upstream.clone();
        async move {
            if request.uri().path().ends_with("/controllerconfigs") {
                std::future::pending::<()>().await;
            }
            upstream.send(request).await
        }
    });
    fleet.client = Client::new(service, "default");
    fleet.start();
    fleet.wait("currentConfig=rendered-worker-1, state=Done").await;
    let stale = fleet.health.stale_watches();
    assert!(stale.iter().any(|line| line.contains("ControllerConfig")), "{stale:?}");
    fleet.stop().await;
}
