//! Checks the tokens of clients: the API server authenticates a token and authorizes its user to get
//! the URL of a page.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::{HeaderMap, header};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};
use ring::digest::{Digest, SHA256, SHA256_OUTPUT_LEN, digest};
use tokio::{sync::Semaphore, time::Instant};

/// Time for which a verdict is valid.
const VALIDITY: Duration = Duration::from_secs(30);

/// Largest number of remembered verdicts. A client that sends many tokens takes no more memory.
const MAX_VERDICTS: usize = 128;

/// Largest number of tokens that are checked at once.
const MAX_REVIEWS: usize = 4;

/// Answer to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The user may get the page.
    Granted,
    /// The request has no valid token.
    Unauthenticated,
    /// The user may not get the page.
    Forbidden,
}

/// Digest of a token and path; tokens are not kept.
type Key = [u8; SHA256_OUTPUT_LEN];

/// The check of clients, with the verdicts of the last seconds.
pub(super) struct Access {
    client: Client,
    verdicts: Mutex<HashMap<Key, (Verdict, Instant)>>,
    reviews: Semaphore,
}

impl Access {
    pub(super) fn new(client: Client) -> Self {
        Self { client, verdicts: Mutex::default(), reviews: Semaphore::new(MAX_REVIEWS) }
    }

    /// Decides if a client with these headers may get `path`. Fails if the API server does not answer.
    pub(super) async fn check(
        &self,
        headers: &HeaderMap,
        path: &str,
    ) -> Result<Verdict, kube::Error> {
        let Some(token) = bearer(headers) else { return Ok(Verdict::Unauthenticated) };
        let key = key(token, path);
        if let Some(verdict) = self.remembered(&key) {
            return Ok(verdict);
        }
        let permit = self.reviews.acquire().await;
        let verdict = review(&self.client, token, path).await?;
        drop(permit);
        self.remember(key, verdict);
        Ok(verdict)
    }

    fn remembered(&self, key: &Key) -> Option<Verdict> {
        let verdicts = self.lock();
        let (verdict, at) = verdicts.get(key)?;
        (at.elapsed() < VALIDITY).then_some(*verdict)
    }

    fn remember(&self, key: Key, verdict: Verdict) {
        let mut verdicts = self.lock();
        if verdicts.len() >= MAX_VERDICTS {
            verdicts.retain(|_, (_, at)| at.elapsed() < VALIDITY);
        }
        if verdicts.len() < MAX_VERDICTS {
            verdicts.insert(key, (verdict, Instant::now()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, (Verdict, Instant)>> {
        self.verdicts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the bearer token of a request.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn key(token: &str, path: &str) -> Key {
    // No path contains a zero byte.
    let found: Digest = digest(&SHA256, format!("{path}\0{token}").as_bytes());
    let mut key = Key::default();
    key.copy_from_slice(found.as_ref());
    key
}

async fn review(client: &Client, token: &str, path: &str) -> Result<Verdict, kube::Error> {
    let asked = TokenReview {
        spec: TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() },
        ..TokenReview::default()
    };
    let tokens = Api::<TokenReview>::all(client.clone());
    let answer = tokens.create(&PostParams::default(), &asked).await?;
    let status = answer.status.unwrap_or_default();
    let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
        return Ok(Verdict::Unauthenticated);
    };
    let asked =
        SubjectAccessReview { spec: question(user, path), ..SubjectAccessReview::default() };
    let accesses = Api::<SubjectAccessReview>::all(client.clone());
    let answer = accesses.create(&PostParams::default(), &asked).await?;
    let is_allowed = answer.status.is_some_and(|status| status.allowed);
    Ok(if is_allowed { Verdict::Granted } else { Verdict::Forbidden })
}

/// Returns the question if a user may get `path`.
fn question(user: UserInfo, path: &str) -> SubjectAccessReviewSpec {
    SubjectAccessReviewSpec {
        user: user.username,
        groups: user.groups,
        uid: user.uid,
        extra: user.extra,
        non_resource_attributes: Some(NonResourceAttributes {
            path: Some(path.to_owned()),
            verb: Some("get".to_owned()),
        }),
        ..SubjectAccessReviewSpec::default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use http::{HeaderValue, Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    fn headers(value: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, HeaderValue::from_static(value));
        headers
    }

    /// Returns a client of an API server that knows the users reader and other, and allows the first.
    fn reviewer(calls: &Arc<AtomicUsize>) -> Client {
        let calls = calls.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            calls.fetch_add(1, Ordering::Relaxed);
            async move {
                let path = request.uri().path().to_owned();
                let body = request.into_body().collect_bytes().await.unwrap();
                let mut object: Value = serde_json::from_slice(&body).unwrap();
                object["status"] = if path.ends_with("/tokenreviews") {
                    let token = object["spec"]["token"].as_str().unwrap();
                    let is_known = ["reader", "other"].contains(&token);
                    json!({"authenticated": is_known, "user": {"username": token, "groups": ["g"]}})
                } else {
                    let spec = &object["spec"];
                    let asked = json!({"path": "/metrics", "verb": "get"});
                    assert_eq!(spec["nonResourceAttributes"], asked);
                    json!({"allowed": spec["user"] == "reader" && spec["groups"] == json!(["g"])})
                };
                Ok::<_, tower::BoxError>(Response::new(Body::from(object.to_string().into_bytes())))
            }
        });
        Client::new(service, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn a_verdict_is_asked_for_once_and_again_after_its_time() {
        let calls = Arc::new(AtomicUsize::new(0));
        let access = Access::new(reviewer(&calls));
        let rows = [
            ("Bearer reader", Verdict::Granted, 2),
            ("bearer reader", Verdict::Granted, 0),
            ("Bearer other", Verdict::Forbidden, 2),
            ("Bearer unknown", Verdict::Unauthenticated, 1),
            ("Bearer unknown", Verdict::Unauthenticated, 0),
            ("Bearer ", Verdict::Unauthenticated, 0),
            ("Basic reader", Verdict::Unauthenticated, 0),
        ];
        for (value, verdict, requests) in rows {
            let before = calls.load(Ordering::Relaxed);
            assert_eq!(
                access.check(&headers(value), "/metrics").await.unwrap(),
                verdict,
                "{value}"
            );
            assert_eq!(calls.load(Ordering::Relaxed) - before, requests, "{value}");
        }
        let none = access.check(&HeaderMap::new(), "/metrics").await.unwrap();
        assert_eq!(none, Verdict::Unauthenticated);
        tokio::time::advance(VALIDITY).await;
        let before = calls.load(Ordering::Relaxed);
        access.check(&headers("Bearer reader"), "/metrics").await.unwrap();
        assert_eq!(calls.load(Ordering::Relaxed) - before, 2, "the verdict was asked for again");
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_without_end_take_no_memory_without_end() {
        let access = Access::new(reviewer(&Arc::default()));
        for number in 0..2 * MAX_VERDICTS {
            access.remember(key(&number.to_string(), "/metrics"), Verdict::Unauthenticated);
        }
        assert_eq!(access.lock().len(), MAX_VERDICTS);
        tokio::time::advance(VALIDITY).await;
        access.remember(key("a", "/metrics"), Verdict::Granted);
        assert_eq!(access.lock().len(), 1);
    }
}
