//! Answers that are changed on their way to the client.

use std::{io, pin::Pin, time::Duration};

use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use kube::client::Body;
use serde_json::json;
use tokio::{sync::mpsc, time::Instant};

type Parts = Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, io::Error>> + Send>>;

/// The body of an answer.
pub type Frames = StreamBody<Parts>;

fn data(body: Body) -> impl Stream<Item = Result<Bytes, io::Error>> + Send {
    body.into_data_stream().map(|part| part.map_err(io::Error::other))
}

fn frames(parts: impl Stream<Item = Result<Bytes, io::Error>> + Send + 'static) -> Frames {
    StreamBody::new(Box::pin(parts.map(|part| part.map(Frame::data))))
}

/// Returns the error of a connection that was reset.
pub(super) fn reset() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the connection was cut")
}

pub(super) fn unchanged(body: Body) -> Frames {
    frames(data(body))
}

/// Returns the first half of the first part, and then the reset of the connection.
pub(super) fn cut(body: Body) -> Frames {
    let first = data(body).take(1).map(|part| part.map(|part| part.slice(..part.len() / 2)));
    frames(first.chain(stream::once(async { Err(reset()) })))
}

/// Returns a body that never delivers a part. The upstream body stays open.
pub(super) fn stalled(body: Body) -> Frames {
    frames(data(body).filter(|_| std::future::ready(false)).chain(stream::pending()))
}

/// Returns a body that ends at once.
pub(super) fn ended(_: Body) -> Frames {
    frames(stream::empty())
}

/// Returns a body whose parts arrive `time` later.
pub(super) fn lagging(body: Body, time: Duration) -> Frames {
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut parts = Box::pin(data(body));
        loop {
            tokio::select! {
                () = sender.closed() => return,
                part = parts.next() => {
                    let Some(part) = part else { return };
                    // Fails if the client is gone; then the channel is closed.
                    drop(sender.send((Instant::now() + time, part)));
                }
            }
        }
    });
    frames(stream::unfold(receiver, |mut receiver| async move {
        let (due, part) = receiver.recv().await?;
        tokio::time::sleep_until(due).await;
        Some((part, receiver))
    }))
}

/// Returns the answer of an API server with this status.
pub(super) fn status(code: u16) -> Response<Frames> {
    let reason = match code {
        410 => "Expired",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "injected", "reason": reason, "code": code,
    });
    let body = Bytes::from(status.to_string());
    let mut response = Response::new(frames(stream::once(async move { Ok(body) })));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_GATEWAY);
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    if code == 429 {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// Returns a copy of a request whose body is not streamed.
pub(super) fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    request.method().clone_into(copy.method_mut());
    request.uri().clone_into(copy.uri_mut());
    request.headers().clone_into(copy.headers_mut());
    Some(copy)
}
