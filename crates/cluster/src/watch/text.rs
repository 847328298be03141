//! The text of lists and watches as it arrives, with limits on its size.

use bytes::{Bytes, BytesMut};
use http::Response;
use http_body_util::BodyExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::{client::Body, core::Status};
use serde::Deserialize;
use serde_json::{json, value::RawValue};

use super::WatchError;
use crate::CallError;

/// Maximum size of an event. etcd limits an object to 1.5 MiB by default and to 8 MiB in practice;
/// JSON is a few times larger at most.
pub(super) const MAX_LINE: usize = 32 << 20;

/// Maximum size of a page of a list.
pub(super) const MAX_PAGE: usize = 256 << 20;

/// Maximum size of an error answer.
const MAX_STATUS: usize = 1 << 20;

/// Returns the body of a successful answer as a whole.
pub(super) async fn read_page(response: Response<Body>, limit: usize) -> Result<Bytes, WatchError> {
    read(response.into_body(), limit).await
}

/// Returns the answer if it is a success, and the error of the API server otherwise.
pub(super) async fn check(response: Response<Body>) -> Result<Response<Body>, WatchError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let text = read(response.into_body(), MAX_STATUS).await.unwrap_or_default();
    let refusal = serde_json::from_slice::<Status>(&text).ok().filter(|found| found.code != 0);
    // Another server on the way may answer with any text, which must not reach a log.
    let refusal = refusal.unwrap_or_else(|| unnamed(status));
    Err(WatchError::Refused(CallError::from(kube::Error::Api(Box::new(refusal)))))
}

fn unnamed(status: http::StatusCode) -> Status {
    let reason = status.canonical_reason().unwrap_or("unknown status");
    let status = json!({"status": "Failure", "code": status.as_u16(), "reason": reason,
        "message": format!("{} {reason}", status.as_u16())});
    serde_json::from_value(status).expect("a Status needs no other member")
}

async fn read(mut body: Body, limit: usize) -> Result<Bytes, WatchError> {
    let mut text = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| WatchError::Connection(error.into()))?;
        let Ok(data) = frame.into_data() else { continue };
        if text.len().saturating_add(data.len()) > limit {
            return Err(WatchError::TooLong { limit });
        }
        text.extend_from_slice(&data);
    }
    Ok(text.freeze())
}

/// The lines of a watch.
pub(super) struct Lines {
    body: Body,
    text: BytesMut,
    /// Number of bytes of `text` that have no line break.
    searched: usize,
    limit: usize,
}

impl Lines {
    /// Returns the lines of an answer, none of them longer than `limit`.
    pub(super) fn new(response: Response<Body>, limit: usize) -> Self {
        Self { body: response.into_body(), text: BytesMut::new(), searched: 0, limit }
    }

    /// Returns the next line, or `None` at the end. An incomplete last line is dropped. Nothing is
    /// lost if the future is dropped.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, WatchError> {
        loop {
            let unread = self.text.get(self.searched..).unwrap_or_default();
            if let Some(at) = unread.iter().position(|byte| *byte == b'\n') {
                let line = self.text.split_to(self.searched + at + 1);
                self.searched = 0;
                if line.trim_ascii().is_empty() {
                    continue;
                }
                return Ok(Some(line.freeze()));
            }
            self.searched = self.text.len();
            if self.searched > self.limit {
                return Err(WatchError::TooLong { limit: self.limit });
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            let frame = frame.map_err(|error| WatchError::Connection(error.into()))?;
            if let Ok(data) = frame.into_data() {
                self.text.extend_from_slice(&data);
            }
        }
    }
}

/// The type of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum LineKind {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

/// One line of a watch.
#[derive(Deserialize)]
pub(super) struct Line<'a> {
    #[serde(rename = "type")]
    pub(super) kind: LineKind,
    #[serde(borrow)]
    pub(super) object: &'a RawValue,
}

/// The members that a watch needs of any object.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    metadata: Version,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    resource_version: Option<String>,
}

/// Returns the resource version of an object.
pub(super) fn version(object: &str) -> Option<String> {
    let head: Head = serde_json::from_str(object).ok()?;
    head.metadata.resource_version.filter(|version| !version.is_empty())
}

/// A page of a list: the text of its objects.
#[derive(Clone, Debug)]
pub(crate) struct Page(Bytes);

#[derive(Deserialize)]
struct ItemsOf<'a> {
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
struct MetadataOf {
    #[serde(default)]
    metadata: ListMeta,
}

impl Page {
    /// Reads a page; also returns its metadata.
    pub(super) fn read(text: Bytes) -> Result<(Self, ListMeta), WatchError> {
        let MetadataOf { metadata } =
            serde_json::from_slice(&text).map_err(|error| WatchError::unreadable(&error))?;
        serde_json::from_slice::<ItemsOf<'_>>(&text)
            .map_err(|error| WatchError::unreadable(&error))?;
        Ok((Self(text), metadata))
    }

    /// Returns a page of objects.
    #[cfg(test)]
    pub(crate) fn of(objects: &[serde_json::Value]) -> Self {
        Self(json!({"items": objects}).to_string().into())
    }

    /// Returns the text of each object.
    pub(crate) fn items(&self) -> Vec<&str> {
        let page = serde_json::from_slice::<ItemsOf<'_>>(&self.0);
        let items = page.ok().and_then(|page| page.items).unwrap_or_default();
        items.into_iter().map(RawValue::get).collect()
    }
}

/// The text of an object in an event.
#[derive(Clone, Debug)]
pub(crate) struct Text(Bytes);

impl Text {
    /// Keeps the text of a line's object.
    pub(super) fn of(line: &Bytes, object: &RawValue) -> Self {
        Self(line.slice_ref(object.get().as_bytes()))
    }

    /// Returns the text of an object.
    #[cfg(test)]
    pub(crate) fn from_value(object: &serde_json::Value) -> Self {
        Self(object.to_string().into())
    }

    /// Returns the text.
    pub(crate) fn json(&self) -> &str {
        // It was a str before it was kept.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(text: &str) -> Response<Body> {
        Response::new(Body::from(text.as_bytes().to_vec()))
    }

    #[tokio::test]
    async fn lines_are_complete_and_limited() {
        let mut lines = Lines::new(response("one\n\ntwo\nthr"), 10);
        assert_eq!(lines.next().await.unwrap().unwrap(), "one\n");
        assert_eq!(lines.next().await.unwrap().unwrap(), "two\n");
        assert!(lines.next().await.unwrap().is_none());
        let mut lines = Lines::new(response("a line that never ends"), 10);
        assert!(matches!(lines.next().await, Err(WatchError::TooLong { limit: 10 })));
    }

    #[tokio::test]
    async fn a_page_is_limited() {
        assert_eq!(read_page(response("12345"), 5).await.unwrap(), "12345");
        let error = read_page(response("123456"), 5).await.unwrap_err();
        assert!(matches!(error, WatchError::TooLong { limit: 5 }));
    }

    #[tokio::test]
    async fn a_foreign_error_page_is_not_repeated() {
        let mut answer = response("<html>SECRET</html>");
        *answer.status_mut() = http::StatusCode::BAD_GATEWAY;
        let error = check(answer).await.unwrap_err();
        assert_eq!(error.to_string(), "502 Bad Gateway");
    }

    #[test]
    fn a_page_keeps_the_text_of_objects_that_nothing_can_decode() {
        let text = r#"{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"finalizers":"oops"}},{}]}"#;
        let (page, metadata) = Page::read(Bytes::from_static(text.as_bytes())).unwrap();
        assert_eq!(metadata.resource_version.as_deref(), Some("7"));
        assert_eq!(page.items(), [r#"{"metadata":{"finalizers":"oops"}}"#, "{}"]);
        let (page, _) = Page::read(Bytes::from_static(br#"{"items":null}"#)).unwrap();
        assert!(page.items().is_empty());
        assert!(Page::read(Bytes::from_static(b"<html>")).is_err());
    }
}
