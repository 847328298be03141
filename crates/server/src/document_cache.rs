//! A cache of built documents, as the bytes that are sent.
//!
//! A document is built once for each config and Ignition version, for any number of concurrent
//! requests; all responses share its bytes. Failures are cached likewise: they are the same until
//! an input changes, and machines retry every few seconds.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use mco_ignition::TargetVersion;
use tokio::{sync::OnceCell, task};

use crate::document::{self, BuildError, Inputs};

/// A built document, or the error.
pub(crate) type DocumentResult = Result<Bytes, Arc<BuildError>>;

/// The server is stopping and builds no more documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server is stopping")]
pub struct Stopping;

/// Recently served documents.
#[derive(Debug)]
pub(crate) struct DocumentCache {
    entries: Mutex<Entries>,
    limit: usize,
}

#[derive(Debug, Default)]
struct Entries {
    list: Vec<Entry>,
    /// Number of requests so far.
    requests: u64,
}

#[derive(Debug)]
struct Entry {
    inputs: Inputs,
    version: TargetVersion,
    /// Number of the last request for this document.
    last_request: u64,
    outcome: Arc<OnceCell<DocumentResult>>,
}

impl DocumentCache {
    /// Creates a cache of up to `limit` documents that evicts the least recently requested one.
    #[must_use]
    pub(crate) fn new(limit: usize) -> Self {
        Self { entries: Mutex::default(), limit: limit.max(1) }
    }

    /// Returns the document of `inputs` in `version`; builds it on the first request.
    pub(crate) async fn get(
        &self,
        inputs: Inputs,
        version: TargetVersion,
    ) -> Result<DocumentResult, Stopping> {
        let cell = self.cell(&inputs, version);
        let build = || async {
            // Building takes milliseconds, in which this thread could serve no other request.
            let built = task::spawn_blocking(move || document::build(&inputs, version)).await;
            match built {
                Ok(built) => Ok(built.map(Bytes::from).map_err(Arc::new)),
                Err(stopped) => match stopped.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => Err(Stopping),
                },
            }
        };
        cell.get_or_try_init(build).await.cloned()
    }

    fn cell(&self, inputs: &Inputs, version: TargetVersion) -> Arc<OnceCell<DocumentResult>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.requests += 1;
        let request = entries.requests;
        let known = entries
            .list
            .iter_mut()
            .find(|entry| entry.version == version && entry.inputs.is_same(inputs));
        if let Some(known) = known {
            known.last_request = request;
            return known.outcome.clone();
        }
        // The same config in an earlier state is not requested again.
        entries
            .list
            .retain(|entry| entry.version != version || entry.inputs.name() != inputs.name());
        if entries.list.len() >= self.limit {
            let oldest = entries.list.iter().map(|entry| entry.last_request).min();
            entries.list.retain(|entry| Some(entry.last_request) != oldest);
        }
        let outcome = Arc::<OnceCell<DocumentResult>>::default();
        let entry = Entry {
            inputs: inputs.clone(),
            version,
            last_request: request,
            outcome: outcome.clone(),
        };
        entries.list.push(entry);
        outcome
    }

    /// Returns the number of cached documents.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).list.len()
    }
}

#[cfg(test)]
mod tests;
