//! Shutdown requests.

use std::{io, sync::mpsc, thread, time::Duration};

use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

/// Time after which a process that was asked to shut down exits, whatever it waits for: shorter than
/// the grace period of pods, which is 30 seconds unless they set another.
pub const SHUTDOWN_LIMIT: Duration = Duration::from_secs(20);

/// Time after which a process that still runs logs the work that it waits for.
const FIRST_REPORT: Duration = Duration::from_secs(5);

/// Exit code of a process that did not shut down in time.
pub(crate) const OVERDUE: i32 = 1;

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

    /// Creates a request that SIGTERM or SIGINT makes. The process exits `limit` after the request
    /// at the latest. The result of `unfinished` is logged then, and once before.
    ///
    /// A thread of its own waits for signals, so that they are handled even if every thread of the
    /// process's runtime is blocked.
    pub fn on_signals_within(
        limit: Duration,
        unfinished: impl Fn() -> String + Send + 'static,
    ) -> io::Result<Self> {
        let shutdown = Self::new();
        let asked = shutdown.clone();
        let (installed, result) = mpsc::channel::<io::Result<()>>();
        let wait = move || {
            let listening = || -> io::Result<_> {
                let runtime = Builder::new_current_thread().enable_all().build()?;
                let entered = runtime.enter();
                let signals = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
                drop(entered);
                Ok((runtime, signals))
            };
            let (runtime, (mut terminate, mut interrupt)) = match listening() {
                Ok(listening) => listening,
                Err(error) => return drop(installed.send(Err(error))),
            };
            drop(installed.send(Ok(())));
            runtime.block_on(async {
                tokio::select! {
                    _ = terminate.recv() => info!("Shutting down"),
                    _ = interrupt.recv() => info!("Shutting down"),
                    () = asked.requested() => {}
                }
                asked.request();
                tokio::time::sleep(FIRST_REPORT.min(limit)).await;
                warn!(unfinished = unfinished(), "Still shutting down");
                tokio::time::sleep(limit.saturating_sub(FIRST_REPORT)).await;
            });
            exit(limit, &unfinished());
        };
        thread::Builder::new().name("signals".to_owned()).spawn(wait)?;
        result.recv().map_err(io::Error::other)??;
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

#[expect(clippy::exit, reason = "this is the end of a process whose other threads do not end")]
fn exit(limit: Duration, unfinished: &str) {
    error!(after = ?limit, unfinished, "Failed to shut down in time; exiting");
    std::process::exit(OVERDUE);
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead as _, BufReader, Write as _},
        process::{Command, Stdio},
    };

    use super::*;
    use crate::telemetry::{self, Format};

    const CHILD: &str = "MCO_TEST_CHILD";

    /// Longer than any test waits.
    const PATIENCE: Duration = Duration::from_mins(1);

    #[test]
    #[ignore = "runs as the process of another test"]
    fn hang() {
        if std::env::var_os(CHILD).is_none() {
            return;
        }
        telemetry::start(Format::Text, tracing::Level::INFO).unwrap();
        let limit = Duration::from_millis(200);
        let shutdown = Shutdown::on_signals_within(limit, || "GET /a since 7 s".to_owned());
        writeln!(io::stderr(), "ready").unwrap();
        thread::park_timeout(PATIENCE);
        assert!(!shutdown.unwrap().is_requested(), "it ended by itself");
    }

    #[test]
    fn a_process_that_hangs_exits_in_time_and_says_why() {
        let test = ["--exact", "shutdown::tests::hang", "--ignored", "--nocapture"];
        let mut child = Command::new(std::env::current_exe().unwrap());
        let mut child = child.args(test).env(CHILD, "1").stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.any(|line| line == "ready"));
        let id = child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        let log: Vec<String> = lines.collect();
        assert_eq!(child.wait().unwrap().code(), Some(OVERDUE), "{log:?}");
        let says = |text: &str| log.iter().any(|line| line.contains(text));
        assert!(says("Shutting down") && says("Still shutting down"), "{log:?}");
        assert!(
            says(
                "Failed to shut down in time; exiting after=200ms unfinished=\"GET /a since 7 s\""
            ),
            "{log:?}"
        );
    }
}
