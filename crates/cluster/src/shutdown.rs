//! How a process is told to stop.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

/// A request to stop that everything in a process shares.
#[derive(Clone, Debug, Default)]
pub struct Shutdown(CancellationToken);

impl Shutdown {
    /// One that nobody has asked for yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One that SIGTERM or Ctrl-C asks for.
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
            info!("Stopping");
            asked.request();
        });
        Ok(shutdown)
    }

    /// Asks for it.
    pub fn request(&self) {
        self.0.cancel();
    }

    /// Whether somebody has asked for it.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until somebody asks for it.
    pub async fn requested(&self) {
        self.0.cancelled().await;
    }

    /// One that ends with this one, and can be asked for alone.
    #[must_use]
    pub fn child(&self) -> Self {
        Self(self.0.child_token())
    }
}
