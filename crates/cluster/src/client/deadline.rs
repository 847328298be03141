//! Deadlines of requests: a lost answer costs seconds instead of stopping the process.

use std::{
    error::Error,
    fmt, io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures::FutureExt as _;
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::{Frame, SizeHint};
use kube::client::Body;
use tokio::time::{Instant, Sleep, timeout, timeout_at};
use tower::{BoxError, Service, ServiceExt as _};

use super::RequestMetrics;

/// Time limits of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// Time to connect, TLS handshake included.
    pub connect: Duration,
    /// Time until the answer starts, the connection included.
    pub first_byte: Duration,
    /// Time until the answer is complete. A watch has none.
    pub answer: Duration,
    /// Time without an event or a bookmark after which a watch has failed.
    pub idle: Duration,
}

impl Deadlines {
    /// The limits of all processes.
    ///
    /// kube-apiserver queues a request for up to 15 seconds (a quarter of its request timeout of one
    /// minute) before it answers 429, so that a first byte may take longer than that. It sends a
    /// bookmark on each watch about once a minute, so that a watch without any for two and a half
    /// minutes has lost its connection.
    pub const DEFAULT: Self = Self {
        connect: Duration::from_secs(5),
        first_byte: Duration::from_secs(20),
        answer: Duration::from_mins(1),
        idle: Duration::from_secs(150),
    };

    /// Returns the limits for answers that start within `first_byte`, in the proportions of
    /// [`Self::DEFAULT`]. A watch that is idle fails after `idle`.
    #[must_use]
    pub fn new(first_byte: Duration, idle: Duration) -> Self {
        Self { connect: first_byte / 4, first_byte, answer: first_byte.saturating_mul(3), idle }
    }
}

impl Default for Deadlines {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// One of the time limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Deadline {
    /// [`Deadlines::connect`].
    Connect,
    /// [`Deadlines::first_byte`].
    FirstByte,
    /// [`Deadlines::answer`].
    Answer,
    /// [`Deadlines::idle`].
    Idle,
}

impl Deadline {
    /// Returns the name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::FirstByte => "first_byte",
            Self::Answer => "answer",
            Self::Idle => "idle",
        }
    }
}

/// A request that timed out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct TimedOut {
    /// The deadline that passed.
    pub deadline: Deadline,
    /// Method of the request.
    pub method: Method,
    /// Path of the request, without its query.
    pub path: String,
    /// Length of the deadline.
    pub after: Duration,
}

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { deadline, method, path, after } = self;
        let missing = match deadline {
            Deadline::Connect => "no connection",
            Deadline::FirstByte => "no answer",
            Deadline::Answer => "no complete answer",
            Deadline::Idle => "no event",
        };
        write!(f, "{method} {path} timed out: {missing} within {after:?}")
    }
}

/// Method and path of a request, for errors and logs.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) method: Method,
    pub(super) path: String,
}

impl Target {
    pub(super) fn of(request: &Request<Body>) -> Self {
        Self { method: request.method().clone(), path: request.uri().path().to_owned() }
    }

    fn timed_out(&self, deadline: Deadline, after: Duration) -> TimedOut {
        TimedOut { deadline, method: self.method.clone(), path: self.path.clone(), after }
    }
}

/// Returns true if the answer is a stream of events that does not end by itself.
pub(super) fn is_watch(query: Option<&str>) -> bool {
    query.unwrap_or_default().split('&').any(|pair| matches!(pair, "watch=true" | "watch=1"))
}

/// Returns true if the answer is a log whose new lines follow.
fn follows_log(query: Option<&str>) -> bool {
    query.unwrap_or_default().split('&').any(|pair| pair == "follow=true")
}

/// Sends a request once, within the deadlines.
///
/// The answer is read here in full, so that a retry covers its body; callers read it whole anyway.
/// Only the events of a watch and the lines of a log are passed on as they arrive. A request that is
/// dropped closes its connection, so that no later request waits on it.
pub(super) async fn send<S>(
    transport: S,
    request: Request<Body>,
    deadlines: &Deadlines,
    metrics: &RequestMetrics,
) -> Result<Response<AnswerBody>, BoxError>
where
    S: Service<Request<Body>, Response = Response<Body>, Error: Into<BoxError>>,
{
    let (target, watches) = (Target::of(&request), is_watch(request.uri().query()));
    let follows = follows_log(request.uri().query());
    let start = Instant::now();
    let answer = match timeout(deadlines.first_byte, transport.oneshot(request)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            let error = error.into();
            return Err(if is_connect_timeout(&*error) {
                target.timed_out(Deadline::Connect, deadlines.connect).into()
            } else {
                error
            });
        }
        Err(_) => return Err(target.timed_out(Deadline::FirstByte, deadlines.first_byte).into()),
    };
    let (head, body) = answer.into_parts();
    if watches && head.status.is_success() {
        let failure = target.timed_out(Deadline::Idle, deadlines.idle);
        let idle = IdleTimer {
            sleep: Box::pin(tokio::time::sleep(deadlines.idle)),
            failure,
            metrics: metrics.clone(),
        };
        return Ok(Response::from_parts(head, AnswerBody { body, idle: Some(idle) }));
    }
    if follows && head.status.is_success() {
        // A log may be silent for any time.
        return Ok(Response::from_parts(head, AnswerBody { body, idle: None }));
    }
    match timeout_at(start + deadlines.answer, body.collect()).await {
        Ok(body) => {
            let body = Body::from(body?.to_bytes());
            Ok(Response::from_parts(head, AnswerBody { body, idle: None }))
        }
        Err(_) => Err(target.timed_out(Deadline::Answer, deadlines.answer).into()),
    }
}

/// Returns the error and its causes.
pub(super) fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

/// Returns true if the connection was not made in time.
fn is_connect_timeout(error: &(dyn Error + 'static)) -> bool {
    let timed_out = |error: &(dyn Error + 'static)| {
        error.downcast_ref::<io::Error>().is_some_and(|it| it.kind() == io::ErrorKind::TimedOut)
    };
    is_connect_error(error) && causes(error).any(timed_out)
}

/// Returns true if the request was not sent, because there was no connection.
pub(super) fn is_connect_error(error: &(dyn Error + 'static)) -> bool {
    causes(error)
        .filter_map(|error| error.downcast_ref::<hyper_util::client::legacy::Error>())
        .any(hyper_util::client::legacy::Error::is_connect)
}

/// The body of an answer: complete, or the events of a watch.
#[derive(Debug)]
pub(super) struct AnswerBody {
    body: Body,
    idle: Option<IdleTimer>,
}

/// The time that a watch may still be idle.
#[derive(Debug)]
struct IdleTimer {
    sleep: Pin<Box<Sleep>>,
    failure: TimedOut,
    metrics: RequestMetrics,
}

impl hyper::body::Body for AnswerBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let frame = Pin::new(&mut this.body).poll_frame(context).map_err(BoxError::from);
        let Some(idle) = &mut this.idle else { return frame };
        if frame.is_ready() {
            idle.sleep.as_mut().reset(Instant::now() + idle.failure.after);
            return frame;
        }
        ready!(idle.sleep.poll_unpin(context));
        idle.metrics.count_timeout(Deadline::Idle);
        let failure = idle.failure.clone();
        // The connection ends with the body.
        (this.body, this.idle) = (Body::empty(), None);
        Poll::Ready(Some(Err(failure.into())))
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests;
