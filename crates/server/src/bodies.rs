//! Documents that were built, kept as the bytes that go out.
//!
//! A document is built once for each config and Ignition version, whoever asks for it and however
//! many at a time; all answers share its bytes. A failure is kept likewise: what it is about does
//! not change unless an input does, and machines ask again every few seconds.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use mco_ignition::Target;
use tokio::{sync::OnceCell, task};

use crate::document::{self, BuildError, Inputs};

/// A document, or why there is none.
pub type Outcome = Result<Bytes, Arc<BuildError>>;

/// The server stops, and nothing is built any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server is stopping")]
pub struct Stopping;

/// The documents of late.
#[derive(Debug)]
pub struct Bodies {
    kept: Mutex<Kept>,
    limit: usize,
}

#[derive(Debug, Default)]
struct Kept {
    entries: Vec<Entry>,
    asked: u64,
}

#[derive(Debug)]
struct Entry {
    inputs: Inputs,
    version: Target,
    /// Number of the last request for it.
    asked: u64,
    outcome: Arc<OnceCell<Outcome>>,
}

impl Bodies {
    /// Keeps up to `limit` documents, and forgets those first that nobody has asked for longest.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { kept: Mutex::default(), limit: limit.max(1) }
    }

    /// The document of `inputs` in `version`; built if this is the first to ask.
    pub async fn get(&self, inputs: Inputs, version: Target) -> Result<Outcome, Stopping> {
        let cell = self.cell(&inputs, version);
        let build = || async {
            // Building takes milliseconds, in which this thread would serve nobody else.
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

    fn cell(&self, inputs: &Inputs, version: Target) -> Arc<OnceCell<Outcome>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.asked += 1;
        let asked = kept.asked;
        let known = kept
            .entries
            .iter_mut()
            .find(|entry| entry.version == version && entry.inputs.is_same(inputs));
        if let Some(known) = known {
            known.asked = asked;
            return known.outcome.clone();
        }
        // The same config in an earlier state is not asked for again.
        kept.entries
            .retain(|entry| entry.version != version || entry.inputs.name() != inputs.name());
        if kept.entries.len() >= self.limit {
            let oldest = kept.entries.iter().map(|entry| entry.asked).min();
            kept.entries.retain(|entry| Some(entry.asked) != oldest);
        }
        let outcome = Arc::<OnceCell<Outcome>>::default();
        let entry = Entry { inputs: inputs.clone(), version, asked, outcome: outcome.clone() };
        kept.entries.push(entry);
        outcome
    }

    /// How many documents are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).entries.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests;
