//! Responses to requests that are not admitted: no body, and one sentence in a header.

use bytes::Bytes;
use http::{
    HeaderValue, Response, StatusCode,
    header::{CONTENT_LENGTH, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE},
};
use http_body_util::Full;
use mco_api::join_token::header;
use mco_core::join::Refusal;

use crate::service::HttpResponse;

/// Returns the response to a refused request.
pub(super) fn refused(refusal: &Refusal) -> HttpResponse {
    let status = match refusal {
        Refusal::NoToken => StatusCode::UNAUTHORIZED,
        Refusal::Malformed(_) => StatusCode::BAD_REQUEST,
        Refusal::Unknown
        | Refusal::Expired(_)
        | Refusal::OtherPool(_)
        | Refusal::OtherMachine(_)
        | Refusal::UsedUp(_)
        | Refusal::Joined(_) => StatusCode::FORBIDDEN,
    };
    let mut response = with_reason(status, &refusal.to_string());
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// Returns the response to a client that was refused too often.
pub(super) fn too_many() -> HttpResponse {
    let text = "too many refused requests from this address; retry in a minute";
    let mut response = with_reason(StatusCode::TOO_MANY_REQUESTS, text);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("60"));
    response
}

/// Returns the response to a machine whose use of a token cannot be recorded now. Ignition retries.
pub(super) fn unavailable() -> HttpResponse {
    let text = "the use of the join token cannot be recorded now; retry";
    with_reason(StatusCode::SERVICE_UNAVAILABLE, text)
}

/// Returns a response without a body.
pub(super) fn with_reason(status: StatusCode, text: &str) -> HttpResponse {
    let mut response = Response::new(Full::new(Bytes::new()));
    *response.status_mut() = status;
    if status != StatusCode::NO_CONTENT {
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(0));
    }
    if let (false, Ok(text)) = (text.is_empty(), HeaderValue::from_str(text)) {
        response.headers_mut().insert(HeaderName::from_static(header::REASON), text);
    }
    response
}
