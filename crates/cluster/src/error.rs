//! Errors of requests to the API server.

use std::{fmt, time::Duration};

/// A failed request, in the words of the API server if it answered.
#[derive(Debug)]
pub struct CallError(kube::Error);

/// The kind of rejection that a caller may act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The object does not exist.
    NotFound,
    /// An object of that name exists.
    AlreadyExists,
    /// The object was changed since it was read.
    Conflict,
    /// A PodDisruptionBudget or a rate limit forbids it for now.
    TooManyRequests,
    /// Any other status code.
    Other(u16),
}

impl CallError {
    /// Returns the kind of rejection, if the API server answered at all.
    #[must_use]
    pub fn rejection(&self) -> Option<Rejection> {
        let kube::Error::Api(status) = &self.0 else { return None };
        Some(match (status.code, status.reason.as_str()) {
            (404, _) => Rejection::NotFound,
            (409, "AlreadyExists") => Rejection::AlreadyExists,
            (409, _) => Rejection::Conflict,
            (429, _) => Rejection::TooManyRequests,
            (code, _) => Rejection::Other(code),
        })
    }

    /// Returns true if the request names the UID of an object that was replaced by another one.
    #[must_use]
    pub fn is_of_other_uid(&self) -> bool {
        let kube::Error::Api(status) = &self.0 else { return false };
        status.code == 409 && status.message.contains("UID in precondition")
    }

    /// Returns the time after which the API server asks to retry, if it does.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let kube::Error::Api(status) = &self.0 else { return None };
        let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }

    /// Returns true if the object does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.rejection() == Some(Rejection::NotFound)
    }
}

impl From<kube::Error> for CallError {
    fn from(error: kube::Error) -> Self {
        Self(error)
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // kube's text repeats the whole status after the message.
        if let kube::Error::Api(status) = &self.0 {
            return f.write_str(&status.message);
        }
        write!(f, "{}", self.0)
    }
}

impl std::error::Error for CallError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if matches!(self.0, kube::Error::Api(_)) { None } else { self.0.source() }
    }
}
