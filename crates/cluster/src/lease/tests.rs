use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use kube::{Client, client::Body};
use serde_json::{Value, json};

use super::*;

/// An API server that knows one lease and refuses writes that are not up to date.
#[derive(Clone, Default)]
struct OneLease {
    lease: Arc<Mutex<Option<Value>>>,
    broken: Arc<Mutex<bool>>,
}

impl OneLease {
    async fn answer(self, request: Request<Body>) -> Response<Body> {
        let method = request.method().clone();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let refusal = |code: u16, reason: &str| {
            let status = json!({"kind": "Status", "status": "Failure", "message": reason,
                "reason": reason, "code": code});
            reply(code, &status)
        };
        if *self.broken.lock().unwrap() {
            return refusal(503, "ServiceUnavailable");
        }
        let mut lease = self.lease.lock().unwrap();
        let version = |value: &Value| value["metadata"]["resourceVersion"].clone();
        let next = match (method, &*lease) {
            (Method::GET, Some(lease)) => return reply(200, lease),
            (Method::GET | Method::PUT, None) => return refusal(404, "NotFound"),
            (Method::POST, Some(_)) => return refusal(409, "AlreadyExists"),
            (Method::POST, None) => 1,
            (_, Some(lease)) => {
                let sent: Value = serde_json::from_slice(&body).unwrap();
                if version(&sent) != version(lease) {
                    return refusal(409, "Conflict");
                }
                version(lease).as_str().unwrap().parse::<u64>().unwrap() + 1
            }
            (method, None) => panic!("{method}"),
        };
        let mut new: Value = serde_json::from_slice(&body).unwrap();
        new["metadata"]["resourceVersion"] = json!(next.to_string());
        *lease = Some(new.clone());
        reply(200, &new)
    }

    fn candidate(&self, identity: &str) -> Candidate {
        let server = self.clone();
        let service = tower::service_fn(move |request| {
            let server = server.clone();
            async move { Ok::<_, std::convert::Infallible>(server.answer(request).await) }
        });
        Candidate {
            api: Api::namespaced(Client::new(service, "default"), "default"),
            name: "machine-config-controller".to_owned(),
            identity: identity.to_owned(),
            timings: Timings::HIGHLY_AVAILABLE,
            clock: Clock::anchored("2026-01-01T00:00:00Z".parse().unwrap()),
        }
    }

    fn spec(&self, member: &str) -> Value {
        self.lease.lock().unwrap().as_ref().map_or(Value::Null, |l| l["spec"][member].clone())
    }
}

fn reply(code: u16, body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(serde_json::to_vec(body).unwrap()));
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap();
    response
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

// covers: PROC-3, PROC-4, LE-1
#[tokio::test(start_paused = true)]
async fn a_second_process_leads_once_the_first_has_stopped() {
    let server = OneLease::default();
    let (first, second) = (Shutdown::new(), Shutdown::new());
    let start = Instant::now();
    let one = server.candidate("one");
    let two = server.candidate("two");
    let one = one.lead(&first, |stop| async move { stop.requested().await });
    let two = async {
        sleep(seconds(1)).await;
        two.lead(&second, |_| async {}).await
    };
    let stop = async {
        sleep(seconds(1000)).await;
        assert_eq!(server.spec("holderIdentity"), "one");
        assert_eq!(server.spec("leaseDurationSeconds"), 137);
        assert_eq!(server.spec("leaseTransitions"), 0);
        first.request();
    };
    let (one, two, ()) = tokio::join!(one, two, stop);
    assert_eq!((one, two), (Ended::Released, Ended::Released));
    let waited = start.elapsed();
    assert!(waited >= seconds(1000) && waited <= seconds(1000 + 26 * 22 / 10 + 1), "{waited:?}");
    assert_eq!(server.spec("holderIdentity"), "");
    assert_eq!(server.spec("leaseTransitions"), 1);
}

// covers: PROC-3
#[tokio::test(start_paused = true)]
async fn a_dead_leader_is_followed_when_its_lease_has_run_out_by_our_own_clock() {
    let server = OneLease::default();
    // Its own times are far in the past: they must not matter.
    *server.lease.lock().unwrap() = Some(json!({"metadata": {"resourceVersion": "7"}, "spec": {
        "holderIdentity": "dead", "leaseDurationSeconds": 137, "leaseTransitions": 3,
        "renewTime": "2020-01-01T00:00:00.000000Z"}}));
    let start = Instant::now();
    let ended = server.candidate("two").lead(&Shutdown::new(), |_| async {}).await;
    assert_eq!(ended, Ended::Released);
    let waited = start.elapsed();
    assert!(waited >= seconds(137) && waited <= seconds(137 + 58), "{waited:?}");
    assert_eq!(server.spec("leaseTransitions"), 4);
}

// covers: PROC-4
#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_before_its_lease_runs_out() {
    let server = OneLease::default();
    let breaking = async {
        sleep(seconds(300)).await;
        *server.broken.lock().unwrap() = true;
    };
    let start = Instant::now();
    let shutdown = Shutdown::new();
    let one = server.candidate("one");
    let leading = one.lead(&shutdown, |stop| async move { stop.requested().await });
    let (ended, ()) = tokio::join!(leading, breaking);
    assert_eq!(ended, Ended::Lost);
    let waited = start.elapsed();
    assert!(waited > seconds(300) && waited <= seconds(300 + 137), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn of_many_that_try_at_once_one_leads() {
    let server = OneLease::default();
    let shutdown = Shutdown::new();
    let leaders = Arc::new(Mutex::new(Vec::new()));
    let all = (0..5).map(|number| {
        let candidate = server.candidate(&format!("p{number}"));
        let (leaders, shutdown) = (leaders.clone(), shutdown.clone());
        async move {
            candidate
                .lead(&shutdown, |stop| async move {
                    leaders.lock().unwrap().push(number);
                    stop.requested().await;
                })
                .await
        }
    });
    let stop = async {
        sleep(seconds(2000)).await;
        assert_eq!(leaders.lock().unwrap().len(), 1);
        shutdown.request();
    };
    tokio::join!(futures::future::join_all(all), stop);
}
