//! The requests and responses of one connection.
//!
//! hyper has two buffers of 8 KiB for each connection. A connection that waits for its first request, or
//! has waited for the next one for a while, is taken from hyper and has none.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use hyper::{
    body::Incoming,
    server::conn::http1::{self, Parts},
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use mco_cluster::Shutdown;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf},
    time::{sleep, timeout},
};
use tracing::debug;

use crate::{
    activity::Activity,
    admission,
    service::{HttpResponse, Service},
    settings::Limits,
    source::Source,
};

/// A connection whose handshake is done.
pub(crate) struct Exchange<S> {
    pub(crate) service: Arc<Service<S>>,
    pub(crate) limits: Limits,
    pub(crate) peer: SocketAddr,
    pub(crate) activity: Activity,
    pub(crate) shutdown: Shutdown,
    /// Whether the connection is encrypted.
    pub(crate) is_secure: bool,
}

/// A stream whose first byte was read already.
struct Resumed<I> {
    first: Option<u8>,
    stream: I,
}

impl<S: Source> Exchange<S> {
    /// Serves requests until the client disconnects, breaks a limit, or shutdown is requested.
    pub(crate) async fn run<I>(self, mut stream: I)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        loop {
            let first = tokio::select! {
                () = self.shutdown.requested() => return,
                first = timeout(self.limits.headers, stream.read_u8()) => first,
            };
            let Ok(Ok(first)) = first else {
                debug!(peer = %self.peer, "Connection ended without another request");
                return;
            };
            match self.serve(Resumed { first: Some(first), stream }).await {
                Some(idle) => stream = idle,
                None => return,
            }
        }
    }

    /// Serves requests; returns the stream when no request has come for a while.
    async fn serve<I>(&self, stream: Resumed<I>) -> Option<I>
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (service, peer, activity) = (self.service.clone(), self.peer, self.activity.clone());
        let is_secure = self.is_secure;
        let handler = service_fn(move |request: http::Request<Incoming>| {
            let (service, activity) = (service.clone(), activity.clone());
            async move {
                activity.begin_request();
                let response = respond(&service, request, peer, is_secure).await;
                activity.end_request();
                response
            }
        });
        let mut connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.headers)
            .max_buf_size(self.limits.header_bytes)
            .serve_connection(TokioIo::new(stream), handler);
        let mut is_stopping = false;
        loop {
            tokio::select! {
                ended = &mut connection => {
                    if let Err(error) = ended {
                        debug!(%peer, %error, "Connection failed");
                    }
                    return None;
                }
                () = self.shutdown.requested(), if !is_stopping => {
                    is_stopping = true;
                    Pin::new(&mut connection).graceful_shutdown();
                }
                () = sleep(self.limits.idle) => {
                    if !is_stopping && self.activity.is_between_requests() {
                        break;
                    }
                }
            }
        }
        let Parts { io, read_buf, .. } = connection.into_parts();
        // Bytes of a further request came together with the last one, and its rest did not.
        read_buf.is_empty().then(|| io.into_inner().stream)
    }
}

/// Returns the response to a request. The body of a report is read, and that of any other request
/// dropped: a client that sends one with a rejected method is disconnected.
///
/// Fails, which ends the connection, if plain HTTP was closed after it was opened.
async fn respond<S: Source>(
    service: &Service<S>,
    request: http::Request<Incoming>,
    peer: SocketAddr,
    is_secure: bool,
) -> io::Result<HttpResponse> {
    let (parts, body) = request.into_parts();
    if let Some(admission) = &service.admission {
        if !is_secure && admission.is_required() {
            return Err(io::Error::other("plain HTTP is closed: join tokens are required"));
        }
        if admission::is_report(&parts) {
            return Ok(admission.report(&parts.headers, body, peer).await);
        }
    }
    Ok(service.respond(&parts.method, &parts.uri, &parts.headers, peer).await)
}

impl<I: AsyncRead + Unpin> AsyncRead for Resumed<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() > 0
            && let Some(first) = self.first.take()
        {
            buffer.put_slice(&[first]);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Resumed<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
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
