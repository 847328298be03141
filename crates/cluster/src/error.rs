//! What a failed call to the API server comes to.

use std::{fmt, time::Duration};

/// A call to the API server that failed, worded by the server where it answered.
#[derive(Debug)]
pub struct CallError(kube::Error);

/// What kind of refusal an answer is, as far as callers act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no such object.
    NotFound,
    /// An object of that name exists.
    AlreadyExists,
    /// The object has changed since it was read.
    Conflict,
    /// Not now; a disruption budget or a limit says so.
    TooManyRequests,
    /// Anything else the server said no to.
    Other(u16),
}

impl CallError {
    /// What the server said, if it answered at all.
    #[must_use]
    pub fn refused(&self) -> Option<Refused> {
        let kube::Error::Api(status) = &self.0 else { return None };
        Some(match (status.code, status.reason.as_str()) {
            (404, _) => Refused::NotFound,
            (409, "AlreadyExists") => Refused::AlreadyExists,
            (409, _) => Refused::Conflict,
            (429, _) => Refused::TooManyRequests,
            (code, _) => Refused::Other(code),
        })
    }

    /// How long the server wants to be left in peace, if it said so.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let kube::Error::Api(status) = &self.0 else { return None };
        let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }

    /// Whether the object does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.refused() == Some(Refused::NotFound)
    }
}

impl From<kube::Error> for CallError {
    fn from(error: kube::Error) -> Self {
        Self(error)
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The library adds its own rendering of the whole status, which helps nobody.
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
