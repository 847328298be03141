//! A cache of built documents, as the bytes that are sent.
//!
//! A document is built once for each config and Ignition version, for any number of concurrent
//! requests; all responses share its bytes. It is compressed at the first request for that. Failures
//! are cached likewise: they are the same until an input changes, and machines retry every few
//! seconds.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::HeaderValue;
use mco_ignition::TargetVersion;
use tokio::{sync::OnceCell, task, time::Instant};

use crate::{
    content_coding,
    document::{self, BuildError, Inputs},
    entity_tag,
    metrics::Metrics,
};

/// A built document, or the error.
pub(crate) type DocumentResult = Result<Arc<Document>, Arc<BuildError>>;

/// The server is stopping and builds no more documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server is stopping")]
pub struct Stopping;

/// A document, plain and compressed.
#[derive(Debug)]
pub(crate) struct Document {
    plain: Representation,
    /// `None` if the compressed document would not be smaller.
    gzip: OnceCell<Option<Representation>>,
}

/// The bytes of a response and their tag.
#[derive(Clone, Debug)]
pub(crate) struct Representation {
    pub(crate) body: Bytes,
    pub(crate) tag: HeaderValue,
    pub(crate) is_gzip: bool,
}

impl Representation {
    fn new(body: Vec<u8>, is_gzip: bool) -> Self {
        let tag = entity_tag::of(&body);
        Self { body: body.into(), tag, is_gzip }
    }
}

impl Document {
    fn new(body: Vec<u8>) -> Self {
        Self { plain: Representation::new(body, false), gzip: OnceCell::new() }
    }

    /// Returns the bytes for a client that prefers gzip or not.
    pub(crate) async fn representation(&self, gzip: bool) -> Result<Representation, Stopping> {
        if !gzip {
            return Ok(self.plain.clone());
        }
        let compress = || {
            let body = self.plain.body.clone();
            run(move || {
                let compressed = content_coding::gzip(&body);
                compressed.map(|compressed| Representation::new(compressed, true))
            })
        };
        let compressed = self.gzip.get_or_try_init(compress).await?;
        Ok(compressed.as_ref().unwrap_or(&self.plain).clone())
    }
}

/// Recently served documents.
#[derive(Debug)]
pub(crate) struct DocumentCache {
    entries: Mutex<Entries>,
    limit: usize,
    metrics: Metrics,
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
    pub(crate) fn new(limit: usize, metrics: Metrics) -> Self {
        Self { entries: Mutex::default(), limit: limit.max(1), metrics }
    }

    /// Returns the document of `inputs` in `version`; builds it on the first request.
    pub(crate) async fn get(
        &self,
        inputs: Inputs,
        version: TargetVersion,
    ) -> Result<DocumentResult, Stopping> {
        let cell = self.cell(&inputs, version);
        let build = || async {
            let start = Instant::now();
            let built = run(move || {
                let built = document::build(&inputs, version);
                built.map(|body| Arc::new(Document::new(body))).map_err(Arc::new)
            });
            let built = built.await?;
            self.metrics.document_built(start.elapsed());
            Ok(built)
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

/// Runs `work` on a thread of its own: it takes milliseconds, in which this thread could serve no other
/// request.
async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Stopping> {
    match task::spawn_blocking(work).await {
        Ok(value) => Ok(value),
        Err(stopped) => match stopped.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(Stopping),
        },
    }
}

#[cfg(test)]
mod tests;
