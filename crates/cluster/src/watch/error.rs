//! Failures of a watch, and their meaning.

use std::time::Duration;

use kube::core::Status;

use super::progress::{IDLE_LIMIT, Refusal};
use crate::{CallError, error::Rejection};

/// A failure of a watch. The watch continues by itself.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The API server refused the request, or sent an error as an event.
    #[error(transparent)]
    Refused(CallError),
    /// The connection failed.
    #[error(transparent)]
    Connection(CallError),
    /// The API server did not answer in time.
    #[error("the API server did not answer within {limit:?}")]
    NoAnswer {
        /// The time limit.
        limit: Duration,
    },
    /// Neither an event nor a bookmark arrived.
    #[error("the API server sent neither an event nor a bookmark within {IDLE_LIMIT:?}")]
    Idle,
    /// A line or a page exceeds the size limit.
    #[error("the API server sent more than {limit} bytes at once")]
    TooLong {
        /// The size limit, in bytes.
        limit: usize,
    },
    /// A line or a list cannot be read.
    #[error("the API server sent text that is no event or list (line {line}, column {column})")]
    Unreadable {
        /// Line of the fault.
        line: usize,
        /// Column of the fault.
        column: usize,
    },
    /// A list has no resource version.
    #[error("the API server listed objects without a resource version")]
    NoVersion,
    /// The object cannot be decoded.
    #[error("the object cannot be decoded: {fault}")]
    Object {
        /// Position of the fault.
        fault: String,
    },
}

impl WatchError {
    /// Returns the error for a text that cannot be read. serde's own message has parts of the text.
    pub(super) fn unreadable(error: &serde_json::Error) -> Self {
        Self::Unreadable { line: error.line(), column: error.column() }
    }

    /// Returns true if the API server does not serve the kind, or denies access to it.
    #[must_use]
    pub(crate) fn is_no_kind(&self) -> bool {
        self.is_not_found() || self.rejection() == Some(Rejection::Other(403))
    }

    /// Returns true if the API server does not serve the kind.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.rejection() == Some(Rejection::NotFound)
    }

    fn rejection(&self) -> Option<Rejection> {
        let Self::Refused(error) = self else { return None };
        error.rejection()
    }
}

/// Returns the meaning of an error status.
pub(super) fn refusal(status: &Status) -> Refusal {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let is_too_large = causes.into_iter().any(|cause| cause.reason == "ResourceVersionTooLarge")
        || status.message.starts_with("Too large resource version");
    match (status.code, status.reason.as_str()) {
        (410, _) | (_, "Expired" | "Gone") => Refusal::Expired,
        _ if is_too_large => Refusal::TooLarge,
        (429 | 500 | 502 | 503 | 504, _) => Refusal::Temporary,
        _ => Refusal::Other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_status_tells_if_the_version_is_good() {
        let rows = [
            (json!({"code": 410, "reason": "Expired", "message": "too old"}), Refusal::Expired),
            (json!({"code": 410, "reason": "Gone", "message": ""}), Refusal::Expired),
            (
                json!({"code": 504, "reason": "Timeout", "message": "Timeout: Too large",
                    "details": {"causes": [{"reason": "ResourceVersionTooLarge"}]}}),
                Refusal::TooLarge,
            ),
            (
                json!({"code": 504, "message": "Too large resource version: 9, current: 5"}),
                Refusal::TooLarge,
            ),
            (json!({"code": 504, "reason": "Timeout", "message": "slow"}), Refusal::Temporary),
            (json!({"code": 429, "message": "busy"}), Refusal::Temporary),
            (json!({"code": 500, "message": "etcd"}), Refusal::Temporary),
            (json!({"code": 403, "message": "no"}), Refusal::Other),
            (json!({"code": 0, "message": ""}), Refusal::Other),
        ];
        for (status, expected) in rows {
            let text = status.to_string();
            let status = serde_json::from_value(status).unwrap();
            assert_eq!(refusal(&status), expected, "{text}");
        }
    }
}
