//! The faults that a network or an API server can show to a client.

use std::{fmt, time::Duration};

use http::Method;

/// A fault of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The request never reaches the server, and no answer arrives.
    SwallowRequest,
    /// The server carries out the request, and the answer never arrives.
    SwallowAnswer,
    /// The request reaches the server later.
    Delay(Duration),
    /// The connection is reset before the request reaches the server.
    CutBefore,
    /// The connection is reset after the server carried out the request.
    CutAfter,
    /// The connection is reset in the middle of the answer's body.
    CutBody,
    /// The client gets this status, and the server no request.
    Answer(u16),
    /// The server carries out the request, and the client gets this status.
    AnswerAfter(u16),
    /// The server gets the request twice; the client gets the second answer.
    Duplicate,
    /// The watch is accepted and never delivers an event; its connection stays open.
    StallWatch,
    /// Every event of the watch arrives this much later.
    LagWatch(Duration),
    /// The watch ends at once, without an event.
    EndWatch,
}

/// The parts of a request that decide which faults apply to it.
#[derive(Clone, Copy, Debug)]
pub struct Call<'c> {
    /// Method of the request.
    pub method: &'c Method,
    /// True if the request opens a watch.
    pub watch: bool,
}

impl Fault {
    /// All faults of the enumeration.
    pub const ALL: [Self; 17] = [
        Self::SwallowRequest,
        Self::SwallowAnswer,
        Self::Delay(Duration::from_secs(3)),
        Self::CutBefore,
        Self::CutAfter,
        Self::CutBody,
        Self::Answer(429),
        Self::Answer(500),
        Self::Answer(503),
        Self::Answer(504),
        Self::Answer(410),
        Self::AnswerAfter(500),
        Self::AnswerAfter(504),
        Self::Duplicate,
        Self::StallWatch,
        Self::LagWatch(Duration::from_mins(2)),
        Self::EndWatch,
    ];

    /// Returns true if the fault makes a difference to this request. For a read, a lost request is
    /// the same as a lost answer.
    #[must_use]
    pub fn applies_to(self, call: &Call<'_>) -> bool {
        match self {
            Self::SwallowRequest | Self::CutAfter | Self::AnswerAfter(_) | Self::Duplicate => {
                *call.method != Method::GET
            }
            Self::StallWatch | Self::LagWatch(_) | Self::EndWatch => call.watch,
            Self::SwallowAnswer
            | Self::Delay(_)
            | Self::CutBefore
            | Self::CutBody
            | Self::Answer(_) => true,
        }
    }

    /// Returns true if the client gets a failure that it must log and count. A short delay, a
    /// duplicate, a late event and the regular end of a watch are none.
    #[must_use]
    pub fn is_failure(self) -> bool {
        !matches!(self, Self::Delay(_) | Self::Duplicate | Self::LagWatch(_) | Self::EndWatch)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SwallowRequest => f.write_str("swallow-request"),
            Self::SwallowAnswer => f.write_str("swallow-answer"),
            Self::Delay(time) => write!(f, "delay-{}", time.as_secs()),
            Self::CutBefore => f.write_str("cut-before"),
            Self::CutAfter => f.write_str("cut-after"),
            Self::CutBody => f.write_str("cut-body"),
            Self::Answer(code) => write!(f, "answer-{code}"),
            Self::AnswerAfter(code) => write!(f, "carry-out-and-answer-{code}"),
            Self::Duplicate => f.write_str("duplicate"),
            Self::StallWatch => f.write_str("stall-watch"),
            Self::LagWatch(time) => write!(f, "lag-watch-{}", time.as_secs()),
            Self::EndWatch => f.write_str("end-watch"),
        }
    }
}
