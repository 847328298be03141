//! Shutdown requests.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

/// A shutdown request that all tasks of a process share.
#[derive(Clone, Debug, Default)]
pub struct Shutdown(CancellationToken);

impl Shutdown {
    /// Creates a request that has not been made yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a request that SIGTERM or SIGINT makes.
    ///
    /// Must be called inside a tokio runtime, which then listens for the signals.
    pub fn on_signals() -> std::io::Result<Self> {
        let shutdown = Self::new();
        let (mut terminate, mut interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let asked = shutdown.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                () = asked.requested() => return,
            }
            info!("Shutting down");
            asked.request();
        });
        Ok(shutdown)
    }

    /// Requests the shutdown.
    pub fn request(&self) {
        self.0.cancel();
    }

    /// Returns true if the shutdown was requested.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until the shutdown is requested.
    pub async fn requested(&self) {
        self.0.cancelled().await;
    }

    /// Returns a request that is made together with this one, and can be made alone.
    #[must_use]
    pub fn child(&self) -> Self {
        Self(self.0.child_token())
    }
}
