//! `POST /report`: a machine that failed to join says why.

use std::{net::SocketAddr, time::Duration};

use http::{HeaderMap, Method, StatusCode, request::Parts};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Body;
use mco_core::join::{
    Refusal,
    report::{MAX_REPORT, ReceivedReport},
};
use tokio::time::{Instant, timeout};

use super::{Admission, Denied, presented, response};
use crate::service::HttpResponse;

/// Path of reports.
const PATH: &str = "/report";

/// Time in which a report must arrive.
const BODY_LIMIT: Duration = Duration::from_secs(10);

/// Returns true if a request is a report.
pub(crate) fn is_report(parts: &Parts) -> bool {
    parts.method == Method::POST && parts.uri.path() == PATH
}

impl Admission {
    /// Publishes the report of a machine that failed to join.
    pub(crate) async fn report<B>(
        &self,
        headers: &HeaderMap,
        body: B,
        peer: SocketAddr,
    ) -> HttpResponse
    where
        B: Body + Send,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let joined = match self.reporter_pool(headers) {
            Ok(pool) => pool,
            Err(refusal) => return self.refuse("", "", peer, &Denied::Refused(refusal)),
        };
        if !self.reports.allow(peer.ip(), Instant::now()) {
            self.audit.limited();
            return response::too_many();
        }
        let body = match read(body).await {
            Ok(body) => body,
            Err((status, text)) => return response::with_reason(status, text),
        };
        match ReceivedReport::read(&body, joined.as_deref()) {
            Ok(report) => {
                if self.audit.failed_boot(&report.pool, peer, report.text(peer.ip())) {
                    response::with_reason(StatusCode::NO_CONTENT, "")
                } else {
                    response::too_many()
                }
            }
            Err(error) => response::with_reason(StatusCode::BAD_REQUEST, &error.to_string()),
        }
    }

    /// Returns the pool of the client's token. A token that expired or is used up still tells who
    /// reports.
    fn reporter_pool(&self, headers: &HeaderMap) -> Result<Option<String>, Refusal> {
        if !self.is_required() {
            return Ok(None);
        }
        let token = presented(headers)?;
        let stored = self.find(token.id()).map(|(stored, _)| stored.token);
        if !token.matches(stored.as_ref()) {
            return Err(Refusal::Unknown);
        }
        Ok(stored.map(|token| token.pool))
    }
}

/// Reads a body within the limits of size and time.
async fn read<B>(body: B) -> Result<Vec<u8>, (StatusCode, &'static str)>
where
    B: Body + Send,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let limited = Box::pin(Limited::new(body, MAX_REPORT).collect());
    match timeout(BODY_LIMIT, limited).await {
        Ok(Ok(body)) => Ok(body.to_bytes().to_vec()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err((StatusCode::PAYLOAD_TOO_LARGE, "a report has at most 32 KiB"))
        }
        Ok(Err(_)) => Err((StatusCode::BAD_REQUEST, "the report did not arrive in full")),
        Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "the report did not arrive in time")),
    }
}
