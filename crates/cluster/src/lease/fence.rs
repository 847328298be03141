//! A fence that lets writes through only while this process leads.

use std::sync::{Arc, Mutex, PoisonError};

use http::{Method, Request};
use kube::{Client, client::Body};
use tokio::time::Instant;
use tower::{BoxError, ServiceExt as _};

use crate::client;

/// Open while no other process can lead. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Fence(Arc<Mutex<Option<Instant>>>);

/// A rejected write: another process may lead.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("this process does not hold the lease, so its write was rejected")]
pub struct NotLeading;

impl Fence {
    /// Fails if writes are rejected.
    pub fn check(&self) -> Result<(), NotLeading> {
        let until = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if until.is_some_and(|until| Instant::now() < until) { Ok(()) } else { Err(NotLeading) }
    }

    /// Waits until writes are rejected. Returns at once if they already are.
    pub(crate) async fn shut_down(&self) -> NotLeading {
        loop {
            let until = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match until {
                // The lease may have been renewed meanwhile.
                Some(until) if Instant::now() < until => tokio::time::sleep_until(until).await,
                Some(_) | None => return NotLeading,
            }
        }
    }

    /// Returns a client whose writes are rejected while the fence is shut. The client of this crate
    /// below it rejects each retry too, and drops a write that has no answer when the fence is shut.
    #[must_use]
    pub fn guard(&self, client: Client) -> Client {
        let namespace = client.default_namespace().to_owned();
        let (fence, service) = (self.clone(), client::service(client));
        let guarded = tower::service_fn(move |mut request: Request<Body>| {
            let (fence, service) = (fence.clone(), service.clone());
            async move {
                if request.method() != Method::GET {
                    fence.check()?;
                    request.extensions_mut().insert(fence);
                }
                service.oneshot(request).await.map_err(BoxError::from)
            }
        });
        Client::new(guarded, namespace)
    }

    pub(super) fn open_until(&self, until: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }

    pub(super) fn shut(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
