//! Answers requests for `OpenAPI` documents.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header, request::Parts};

use super::{Body, Server, answer};
use crate::failure::Failure;

/// Media type of v2 documents in protobuf.
const OLD_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

impl Server {
    /// Returns the document at a path below `/openapi`.
    pub(super) fn openapi(&self, path: &str, parts: &Parts) -> Result<Response<Body>, Failure> {
        let headers = &parts.headers;
        if path == "/openapi/v2" && prefers_protobuf(headers) {
            // kubectl asks for it in protobuf alone, and takes zero bytes for an empty document.
            return Ok(with(answer::bytes(StatusCode::OK, Bytes::new()), OLD_PROTOBUF));
        }
        let served = self.catalog.served();
        let found = self.openapi.find(&served, path).ok_or_else(Failure::unknown_path)?;
        if !accepts_json(headers) {
            return Ok(empty(StatusCode::NOT_ACCEPTABLE));
        }
        let tag = format!("\"{}\"", found.hash);
        let query = parts.uri.query().unwrap_or("");
        let asked = query.split('&').find_map(|part| part.strip_prefix("hash="));
        let mut response = match asked {
            Some(hash) if hash != found.hash => {
                let mut response = empty(StatusCode::MOVED_PERMANENTLY);
                let place = format!("{path}?hash={}", found.hash);
                insert(&mut response, header::LOCATION, &place);
                response
            }
            _ if is_known(headers, &tag) => empty(StatusCode::NOT_MODIFIED),
            _ => answer::bytes(StatusCode::OK, found.body),
        };
        insert(&mut response, header::ETAG, &tag);
        insert(&mut response, header::VARY, "Accept");
        if asked.is_some_and(|hash| hash == found.hash) {
            insert(&mut response, header::CACHE_CONTROL, "public, immutable");
        }
        Ok(response)
    }
}

fn empty(code: StatusCode) -> Response<Body> {
    let mut response = answer::bytes(code, Bytes::new());
    response.headers_mut().remove(header::CONTENT_TYPE);
    response
}

fn with(mut response: Response<Body>, media: &str) -> Response<Body> {
    insert(&mut response, header::CONTENT_TYPE, media);
    response
}

fn insert(response: &mut Response<Body>, name: header::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

fn prefers_protobuf(headers: &HeaderMap) -> bool {
    answer::accepted(headers).next().is_some_and(|media| media.contains("protobuf"))
}

fn accepts_json(headers: &HeaderMap) -> bool {
    let mut all = answer::accepted(headers).peekable();
    let is_json = |media: &str| {
        let media = media.split(';').next().unwrap_or("").trim();
        matches!(media, "application/json" | "application/*" | "*/*" | "")
    };
    all.peek().is_none() || all.any(is_json)
}

/// Returns true if the client has the document with this tag.
fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let values = headers.get_all(header::IF_NONE_MATCH).into_iter();
    let mut tags = values.filter_map(|value| value.to_str().ok()).flat_map(|it| it.split(','));
    tags.any(|one| one.trim() == tag || one.trim() == "*")
}
