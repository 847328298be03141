//! A machine that several tasks share, one at a time.

use std::sync::{Arc, Mutex, PoisonError};

use mco_host::Host;
use tokio::task::JoinError;
use tracing::Span;

/// A shared machine; clones refer to the same machine.
#[derive(Debug)]
pub struct SharedHost<S>(Arc<Mutex<Host<S>>>);

impl<S> Clone for SharedHost<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Send + 'static> SharedHost<S> {
    /// Shares a machine.
    pub fn new(host: Host<S>) -> Self {
        Self(Arc::new(Mutex::new(host)))
    }

    /// Runs blocking work on the machine. Work that has started is never cancelled.
    pub async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Host<S>) -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let (host, span) = (Arc::clone(&self.0), Span::current());
        let work = move || {
            span.in_scope(|| work(&mut host.lock().unwrap_or_else(PoisonError::into_inner)))
        };
        tokio::task::spawn_blocking(work).await
    }
}
