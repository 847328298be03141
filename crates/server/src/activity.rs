//! The progress of a connection.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

/// A clock for connections, in milliseconds since the listener started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionClock(Instant);

impl ConnectionClock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now(self) -> u64 {
        u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// The progress of a connection. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Activity(Arc<Progress>);

#[derive(Debug, Default)]
struct Progress {
    /// Time of the last byte.
    last: AtomicU64,
    /// Bytes received so far.
    received: AtomicU64,
    /// Bytes received when the last request began to be handled.
    handled: AtomicU64,
    is_handling: AtomicBool,
    /// Bytes wait to be sent.
    is_blocked: AtomicBool,
}

impl Activity {
    pub(crate) fn at(time: u64) -> Self {
        let activity = Self::default();
        activity.set(time);
        activity
    }

    /// Returns the time of the last byte.
    pub(crate) fn last(&self) -> u64 {
        self.0.last.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, time: u64) {
        self.0.last.store(time, Ordering::Relaxed);
    }

    /// Records that a request is being handled.
    pub(crate) fn begin_request(&self) {
        let received = self.0.received.load(Ordering::Relaxed);
        self.0.handled.store(received, Ordering::Relaxed);
        self.0.is_handling.store(true, Ordering::Relaxed);
    }

    /// Records that the response is known.
    pub(crate) fn end_request(&self) {
        self.0.is_handling.store(false, Ordering::Relaxed);
    }

    /// Returns true if the last response was sent and nothing was received since.
    pub(crate) fn is_between_requests(&self) -> bool {
        let Progress { received, handled, is_handling, is_blocked, .. } = &*self.0;
        let unhandled = received.load(Ordering::Relaxed) != handled.load(Ordering::Relaxed);
        let is_busy = is_handling.load(Ordering::Relaxed) || is_blocked.load(Ordering::Relaxed);
        !unhandled && !is_busy
    }
}

/// A stream that records its activity.
pub(crate) struct Observed<S> {
    stream: S,
    activity: Activity,
    clock: ConnectionClock,
}

impl<S> Observed<S> {
    pub(crate) fn new(stream: S, activity: Activity, clock: ConnectionClock) -> Self {
        Self { stream, activity, clock }
    }

    fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.activity.0.is_blocked.store(written.is_pending(), Ordering::Relaxed);
        if matches!(written, Poll::Ready(Ok(sent)) if sent > 0) {
            self.activity.set(self.clock.now());
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Observed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let received = buffer.filled().len() - before;
        if received > 0 {
            self.activity.0.received.fetch_add(received as u64, Ordering::Relaxed);
            self.activity.set(self.clock.now());
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Observed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
