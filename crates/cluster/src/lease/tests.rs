use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Client,
    api::{Patch, PatchParams},
    client::Body,
};
use serde_json::{Value, json};

use super::*;

/// An API server with one lease that rejects stale writes.
#[derive(Clone, Default)]
struct OneLease {
    lease: Arc<Mutex<Option<Value>>>,
    broken: Arc<Mutex<bool>>,
    /// Identities whose requests never reach the server.
    cut_off: Arc<Mutex<Vec<String>>>,
    /// Delay of the response to a write.
    delay: Arc<Mutex<Duration>>,
    /// Identity and time of each write to another object.
    writes: Arc<Mutex<Vec<(String, Duration)>>>,
}

impl OneLease {
    async fn answer(self, request: Request<Body>) -> Response<Body> {
        let method = request.method().clone();
        if !request.uri().path().contains("/leases") {
            return reply(200, &json!({"metadata": {}}));
        }
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

    /// Returns a client for the process with this identity.
    fn client(&self, identity: &str) -> Client {
        let (server, identity) = (self.clone(), identity.to_owned());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (server, identity) = (server.clone(), identity.clone());
            async move {
                if server.cut_off.lock().unwrap().contains(&identity) {
                    // A lost connection is not reported.
                    std::future::pending::<()>().await;
                }
                let is_write = request.method() != Method::GET;
                let delay = server.delay.lock().unwrap().mul_f64(f64::from(u8::from(is_write)));
                let answer = server.answer(request).await;
                // The write is done; only its response is delayed.
                sleep(delay).await;
                Ok::<_, std::convert::Infallible>(answer)
            }
        });
        Client::new(service, "default")
    }

    /// Writes through the fence repeatedly and records the times of successful writes.
    async fn write_on(&self, candidate: &Candidate, start: Instant) {
        let client = candidate.fence.guard(self.client("anybody"));
        let api = Api::<ConfigMap>::namespaced(client, "default");
        loop {
            let patch = Patch::Merge(json!({}));
            if api.patch("x", &PatchParams::default(), &patch).await.is_ok() {
                let line = (candidate.identity.clone(), start.elapsed());
                self.writes.lock().unwrap().push(line);
            }
            sleep(Duration::from_millis(500)).await;
        }
    }

    fn candidate(&self, identity: &str) -> Candidate {
        Candidate {
            api: Api::namespaced(self.client(identity), "default"),
            name: "machine-config-controller".to_owned(),
            identity: identity.to_owned(),
            timings: Timings::HIGHLY_AVAILABLE,
            clock: Clock::anchored("2026-01-01T00:00:00Z".parse().unwrap()),
            fence: Fence::default(),
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

/// Returns the first and last write of a process.
fn spans(writes: &[(String, Duration)], who: &str) -> (Duration, Duration) {
    let at = || writes.iter().filter(|(by, _)| by == who).map(|(_, at)| *at);
    (at().min().unwrap(), at().max().unwrap())
}

// covers: LE-1
#[tokio::test(start_paused = true)]
async fn a_disconnected_leader_stops_writing_before_another_starts() {
    for timings in [Timings::FAST, Timings::HIGHLY_AVAILABLE] {
        // Shares of the maximum response time with which the lease is still renewed.
        for slow in [0.0, 0.5, 0.95] {
            let server = OneLease::default();
            let longest = timings.renew.saturating_sub(timings.retry) / 2;
            *server.delay.lock().unwrap() = longest.mul_f64(slow);
            let [mut one, mut two] = ["one", "two"].map(|name| server.candidate(name));
            (one.timings, two.timings) = (timings, timings);
            let (start, shutdown) = (Instant::now(), Shutdown::new());
            let first = one.lead(&shutdown, |_| server.write_on(&one, start));
            let second = async {
                sleep(Duration::from_millis(100)).await;
                two.lead(&shutdown, |_| server.write_on(&two, start)).await
            };
            let fault = async {
                sleep(timings.lease * 3).await;
                server.cut_off.lock().unwrap().push("one".to_owned());
                sleep(timings.lease * 3).await;
            };
            let both = async { tokio::join!(first, second) };
            tokio::select! {
                _ = both => panic!("the second leads on"),
                () = fault => {}
            }
            let writes = server.writes.lock().unwrap().clone();
            let ((_, last), (first, _)) = (spans(&writes, "one"), spans(&writes, "two"));
            assert!(last >= timings.lease * 3, "{timings:?} {slow}: it led until then: {last:?}");
            assert!(last < first, "{timings:?} {slow}: {last:?}, {first:?}");
            let gap = first.saturating_sub(timings.lease * 3);
            assert!(gap <= timings.lease + timings.retry * 10, "{timings:?} {slow}: {gap:?}");
        }
    }
}

// covers: LE-1
#[tokio::test(start_paused = true)]
async fn a_suspended_leader_writes_nothing_when_it_resumes() {
    let server = OneLease::default();
    let mut one = server.candidate("one");
    one.timings = Timings::FAST;
    let api = Api::<ConfigMap>::namespaced(one.fence.guard(server.client("one")), "default");
    let write = || async {
        let patch = Patch::Merge(json!({}));
        api.patch("x", &PatchParams::default(), &patch).await.map(drop)
    };
    assert!(write().await.is_err(), "it does not lead yet");
    let shutdown = Shutdown::new();
    let mut leading = Box::pin(one.lead(&shutdown, |_| std::future::pending()));
    tokio::select! {
        _ = &mut leading => panic!("it leads"),
        () = sleep(seconds(30)) => {}
    }
    assert!(write().await.is_ok());
    // Neither the renewal nor the work runs.
    tokio::time::advance(Timings::FAST.renew).await;
    let refused = write().await.unwrap_err();
    assert!(report::chain(&refused).contains("does not hold the lease"), "{refused}");
}

// covers: PROC-3, PROC-4, LE-1
#[tokio::test(start_paused = true)]
async fn a_second_process_leads_after_the_first_has_stopped() {
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
    assert_eq!((one, two), (LeadershipEnd::Released, LeadershipEnd::Released));
    let waited = start.elapsed();
    assert!(waited >= seconds(1000) && waited <= seconds(1000 + 26 * 22 / 10 + 1), "{waited:?}");
    assert_eq!(server.spec("holderIdentity"), "");
    assert_eq!(server.spec("leaseTransitions"), 1);
}

// covers: PROC-3
#[tokio::test(start_paused = true)]
async fn a_dead_leader_is_succeeded_when_its_lease_has_expired_by_the_local_clock() {
    let server = OneLease::default();
    // The timestamps in the lease are far in the past and must not matter.
    *server.lease.lock().unwrap() = Some(json!({"metadata": {"resourceVersion": "7"}, "spec": {
        "holderIdentity": "dead", "leaseDurationSeconds": 137, "leaseTransitions": 3,
        "renewTime": "2020-01-01T00:00:00.000000Z"}}));
    let start = Instant::now();
    let ended = server.candidate("two").lead(&Shutdown::new(), |_| async {}).await;
    assert_eq!(ended, LeadershipEnd::Released);
    let waited = start.elapsed();
    assert!(waited >= seconds(137) && waited <= seconds(137 + 58), "{waited:?}");
    assert_eq!(server.spec("leaseTransitions"), 4);
}

// covers: PROC-4
#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_before_its_lease_expires() {
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
    assert_eq!(ended, LeadershipEnd::Lost);
    let waited = start.elapsed();
    assert!(waited > seconds(300) && waited <= seconds(300 + 137), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn one_of_many_concurrent_candidates_leads() {
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

/// The answer to the first write asks to retry after a second; meanwhile the lease is lost.
#[tokio::test(start_paused = true)]
async fn a_retry_after_the_loss_of_the_lease_is_not_sent() {
    let count = Arc::new(Mutex::new(0));
    let sent = count.clone();
    let busy = tower::service_fn(move |_: Request<Body>| {
        *sent.lock().unwrap() += 1;
        let mut response = reply(503, &json!({}));
        response.headers_mut().insert("retry-after", http::HeaderValue::from_static("1"));
        async { Ok::<_, std::convert::Infallible>(response) }
    });
    let client = crate::client::over(busy, "default", &crate::client::Options::default());
    let fence = Fence::default();
    let api = Api::<ConfigMap>::namespaced(fence.guard(client), "default");
    fence.open_until(Instant::now() + Duration::from_millis(500));
    let (patch, params) = (Patch::Merge(json!({})), PatchParams::default());
    let error = CallError::from(api.patch("x", &params, &patch).await.unwrap_err());
    assert!(report::chain(&error).contains("does not hold the lease"), "{error}");
    assert_eq!(*count.lock().unwrap(), 1, "the second attempt is not sent");
    // While the lease is held, the same request is retried.
    fence.open_until(Instant::now() + seconds(60));
    drop(api.patch("x", &params, &patch).await);
    assert_eq!(*count.lock().unwrap(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_write_without_an_answer_is_dropped_with_the_lease() {
    let silent = tower::service_fn(|_: Request<Body>| {
        std::future::pending::<Result<Response<Body>, std::convert::Infallible>>()
    });
    let client = crate::client::over(silent, "default", &crate::client::Options::default());
    let fence = Fence::default();
    let api = Api::<ConfigMap>::namespaced(fence.guard(client), "default");
    let start = Instant::now();
    fence.open_until(start + seconds(3));
    let renewal = async {
        sleep(seconds(2)).await;
        fence.open_until(start + seconds(5));
    };
    let (patch, params) = (Patch::Merge(json!({})), PatchParams::default());
    let (result, ()) = tokio::join!(api.patch("x", &params, &patch), renewal);
    assert!(report::chain(&CallError::from(result.unwrap_err())).contains("lease"));
    assert_eq!(start.elapsed().as_secs(), 5, "the renewal counts");
}

#[tokio::test(start_paused = true)]
async fn one_lost_answer_does_not_cost_the_lease() {
    for timings in [Timings::FAST, Timings::HIGHLY_AVAILABLE] {
        let server = OneLease::default();
        let mut one = server.candidate("one");
        one.timings = timings;
        let (start, shutdown) = (Instant::now(), Shutdown::new());
        let fault = async {
            // The requests of one attempt are lost, and later ones arrive.
            sleep((timings.retry * 3).saturating_sub(Duration::from_millis(100))).await;
            server.cut_off.lock().unwrap().push("one".to_owned());
            sleep(timings.retry).await;
            server.cut_off.lock().unwrap().clear();
            sleep(timings.lease * 3).await;
            shutdown.request();
        };
        let leading = one.lead(&shutdown, |stop| async move { stop.requested().await });
        let (ended, ()) = tokio::join!(leading, fault);
        assert_eq!(ended, LeadershipEnd::Released, "{timings:?} {:?}", start.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_does_not_end_is_dropped_and_its_lease_expires() {
    let server = OneLease::default();
    let (one, shutdown) = (server.candidate("one"), Shutdown::new());
    let stop = async {
        sleep(seconds(60)).await;
        shutdown.request();
    };
    let start = Instant::now();
    let (ended, ()) = tokio::join!(one.lead(&shutdown, |_| std::future::pending()), stop);
    assert_eq!(ended, LeadershipEnd::Unfinished);
    assert_eq!(start.elapsed(), seconds(60) + WORK_GRACE);
    assert_eq!(server.spec("holderIdentity"), "one", "another process waits until it expires");
    assert!(one.fence.check().is_err());
}

// covers: LE-1
#[tokio::test(start_paused = true)]
async fn a_renewal_in_flight_at_shutdown_does_not_keep_the_lease() {
    let server = OneLease::default();
    *server.delay.lock().unwrap() = seconds(1);
    let candidate = Candidate { timings: Timings::FAST, ..server.candidate("a") };
    // The first renewal is stored after two seconds, and answered after three.
    let ended = candidate.lead(&Shutdown::new(), |_| sleep(Duration::from_millis(2500))).await;
    assert_eq!(ended, LeadershipEnd::Released);
    assert_eq!(server.spec("holderIdentity"), "");
}
