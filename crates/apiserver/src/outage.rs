//! Outages on request: the server is unreachable for a while, as after the loss of a control plane.

use std::io;

use tokio::sync::watch;

/// The state of an outage.
#[derive(Debug)]
pub(crate) struct Outage(watch::Sender<bool>);

impl Default for Outage {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Outage {
    /// Begins or ends the outage.
    pub(crate) fn set(&self, lasts: bool) {
        self.0.send_replace(lasts);
    }

    /// Returns true during an outage.
    pub(crate) fn lasts(&self) -> bool {
        *self.0.borrow()
    }

    /// Completes at the beginning of an outage, or at once during one.
    pub(crate) async fn begun(&self) {
        // The sender outlives the receiver, so that the wait ends only with an outage.
        drop(self.0.subscribe().wait_for(|lasts| *lasts).await);
    }

    /// Returns the error of a request during an outage.
    pub(crate) fn error() -> io::Error {
        io::Error::new(io::ErrorKind::ConnectionRefused, "the API server is stopped")
    }
}
