//! The time at which a connection last made progress.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
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

/// The time at which a connection last received or sent a byte. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Activity(Arc<AtomicU64>);

impl Activity {
    pub(crate) fn at(time: u64) -> Self {
        Self(Arc::new(AtomicU64::new(time)))
    }

    pub(crate) fn last(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, time: u64) {
        self.0.store(time, Ordering::Relaxed);
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

    fn record(&self, moved: usize) {
        if moved > 0 {
            self.activity.set(self.clock.now());
        }
    }

    fn recorded(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(moved)) = written {
            self.record(moved);
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
        self.record(buffer.filled().len() - before);
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
        self.recorded(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.recorded(written)
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
