//! One operator leads, and its writes end with its Lease.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use http::Method;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, ResourceExt as _, api::DeleteParams, client::Body};
use mco_api::{MachineConfigPool, label};
use mco_cluster::lease::{Fence, Timings};
use mco_operator::Leader;
use tower::ServiceExt as _;

use crate::support::{self, Operator, wait_for};

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

// covers: O01
#[tokio::test]
async fn one_operator_leads_and_another_takes_over() {
    let client = support::cluster().await;
    let timings = Timings {
        lease: support::TIMEOUT * 3,
        renew: support::TIMEOUT * 2,
        retry: Duration::from_millis(200),
    };
    let start = |identity: &str| {
        let mut config = support::config("v1", "4.20.0");
        config.leader = Some(Leader { identity: identity.to_owned(), timings });
        Operator::start(&client, &config)
    };
    let leases = Api::<Lease>::namespaced(client.clone(), label::NAMESPACE);
    let is_held_by = |identity: &'static str| {
        move |found: Option<&Lease>| {
            let spec = found.and_then(|found| found.spec.as_ref());
            spec.and_then(|spec| spec.holder_identity.as_deref()) == Some(identity)
        }
    };
    let first = start("first");
    support::wait(&client, "a status", |operator| operator.status.is_some()).await;
    wait_for(&leases, "machine-config", "the first leads", is_held_by("first")).await;
    let second = start("second");
    let pools = Api::<MachineConfigPool>::all(client.clone());
    let worker = wait_for(&pools, "worker", "a pool", |found| found.is_some()).await.unwrap();

    first.stop().await;
    wait_for(&leases, "machine-config", "the second leads", is_held_by("second")).await;
    pools.delete("worker", &DeleteParams::default()).await.unwrap();
    let is_new =
        |found: Option<&MachineConfigPool>| found.is_some_and(|found| found.uid() != worker.uid());
    wait_for(&pools, "worker", "the second operator works", is_new).await;
    second.stop().await;
}
