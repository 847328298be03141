//! Writes of an operator end with its Lease.

use std::sync::{Arc, Mutex};

use http::Method;
use kube::{Client, client::Body};
use mco_cluster::lease::{Fence, Timings};
use mco_operator::Leader;
use tower::ServiceExt as _;

use crate::support::{self, Operator};

#[tokio::test]
async fn every_write_of_a_leader_is_fenced_by_its_lease() {
    let direct = support::cluster().await;
    let unfenced: Arc<Mutex<Vec<String>>> = Arc::default();
    let (log, upstream) = (unfenced.clone(), direct.clone());
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let is_write = request.method() != Method::GET;
        if is_write && request.extensions().get::<Fence>().is_none() {
            let line = format!("{} {}", request.method(), request.uri().path());
            log.lock().unwrap().push(line);
        }
        mco_cluster::client::service(upstream.clone()).oneshot(request)
    });
    let mut config = support::config("v1", "4.20.0");
    let timings = Timings {
        lease: support::TIMEOUT * 3,
        renew: support::TIMEOUT * 2,
        retry: support::TIMEOUT,
    };
    config.leader = Some(Leader { identity: "first".to_owned(), timings });
    let operator = Operator::start(&Client::new(service, "default"), &config);
    support::wait(&direct, "a status", |operator| operator.status.is_some()).await;
    operator.stop().await;
    // The Lease itself, and its namespace before there is a Lease.
    let is_allowed = |line: &String| line.contains("/leases") || line.ends_with("/namespaces");
    unfenced.lock().unwrap().retain(|line| !is_allowed(line));
    assert_eq!(*unfenced.lock().unwrap(), [""; 0]);
}
