//! Builds responses: whole objects, metadata only, or tables.

use std::collections::HashSet;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::Body;
use crate::{
    admit::defaults::TEMPLATE_GENERATION, failure::Failure, form, object, resource::Resource,
    store::Object, table,
};

/// The format in which a client wants objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Plain,
    Meta,
    Table,
}

/// Media types in which kube-apiserver answers.
const SERVED: [&str; 3] =
    ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

/// Returns the first served format in the `Accept` header. Fails if kube-apiserver serves none of them.
/// `is_list` is known for requests that read.
///
/// Compat: every answer is JSON, also for a client that asks for YAML or protobuf.
pub(super) fn shape(
    headers: &HeaderMap,
    resource: &Resource,
    is_list: Option<bool>,
) -> Result<Shape, Failure> {
    let mut all = accepted(headers).peekable();
    if all.peek().is_none() {
        return Ok(Shape::Plain);
    }
    // Compat: only custom kinds know ranges of subtypes.
    let is_known = |media: &str| {
        let media = media.split(';').next().unwrap_or("").trim();
        media == "*/*" || SERVED.contains(&media)
    };
    if !resource.custom && !accepted(headers).any(is_known) {
        let streams =
            ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
        let streams = if is_list == Some(true) { streams } else { "" };
        return Err(Failure::unproduced(&format!(
            "406: Not Acceptable\n\nAvailable representations: {}{streams}",
            SERVED.join(", ")
        )));
    }
    let package = resource.group.split('.').next().filter(|it| !it.is_empty()).unwrap_or("core");
    let mut is_served = false;
    for media in all {
        let parts: Vec<&str> = media.split(';').map(str::trim).collect();
        let kind = parts.first().copied().unwrap_or_default();
        let of_meta = parts.contains(&"g=meta.k8s.io")
            && (parts.contains(&"v=v1") || parts.contains(&"v=v1beta1"));
        let is_json = matches!(kind, "application/json" | "*/*" | "application/*");
        match parts.iter().find_map(|part| part.strip_prefix("as=")) {
            Some("Table") if of_meta && is_json => return Ok(Shape::Table),
            Some("PartialObjectMetadata") if of_meta && is_json && is_list == Some(true) => {
                let list = &resource.list_kind;
                return Err(Failure::not_acceptable(&format!(
                    "you requested PartialObjectMetadata, but the requested object is a list \
                     (*{package}.{list})"
                )));
            }
            Some("PartialObjectMetadataList") if of_meta && is_json && is_list == Some(false) => {
                let kind = &resource.kind;
                return Err(Failure::not_acceptable(&format!(
                    "you requested PartialObjectMetadataList, but the requested object is not a \
                     list (*{package}.{kind})"
                )));
            }
            Some("PartialObjectMetadata" | "PartialObjectMetadataList") if of_meta && is_json => {
                return Ok(Shape::Meta);
            }
            None if is_json => return Ok(Shape::Plain),
            None => is_served |= SERVED.contains(&kind),
            Some(_) => {}
        }
    }
    if is_served {
        return Ok(Shape::Plain);
    }
    Err(Failure::not_acceptable(&format!(
        "only the following media types are accepted: {}",
        SERVED.join(", ")
    )))
}

/// Returns the media types of the `Accept` header, in order.
pub(super) fn accepted(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(header::ACCEPT)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
}

/// Builds a response from bytes.
pub(super) fn bytes(code: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(body.into()).boxed_unsync());
    *response.status_mut() = code;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// Builds a response from a JSON value.
pub(super) fn json(code: StatusCode, value: &Value) -> Response<Body> {
    bytes(code, serde_json::to_vec(value).expect("a JSON value can be encoded"))
}

/// Builds the response of a failed request.
pub(crate) fn refuse(failure: &Failure) -> Response<Body> {
    if failure.is_plain {
        let mut response = bytes(failure.code, failure.message.clone());
        let text = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, text);
        return response;
    }
    let mut response = json(failure.code, &failure.status());
    if failure.code == StatusCode::UNAUTHORIZED {
        let scheme = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
    }
    response
}

/// Number of characters of the warnings of an answer from which on each is cut off, and its length then.
const MAX_WARNINGS: usize = 4096;
const MAX_WARNING: usize = 256;

/// Adds `Warning` headers, which kubectl prints, with the limits of kube-apiserver.
pub(super) fn warn(response: &mut Response<Body>, texts: &[&str]) {
    let mut seen = HashSet::new();
    let mut texts = texts.to_vec();
    texts.retain(|text| !text.contains(char::is_control) && seen.insert(*text));
    let total: usize = texts.iter().map(|text| text.chars().count()).sum();
    let each = if total > MAX_WARNINGS { MAX_WARNING } else { MAX_WARNINGS };
    let mut written = 0;
    for text in texts {
        if written >= MAX_WARNINGS {
            break;
        }
        let shown: String = text.chars().take(each).collect();
        written += shown.chars().count();
        let quoted = shown.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

/// Returns the object's JSON text in the form of `resource`, without a copy when the stored form is
/// the same.
pub(super) fn text(resource: &Resource, object: &Object) -> Bytes {
    match form::native(resource, &object.bytes) {
        Some(_) => object.bytes.clone(),
        None => encoded(&form::shown(resource, &object.value())),
    }
}

fn encoded(value: &Value) -> Bytes {
    serde_json::to_vec(value).expect("a JSON value can be encoded").into()
}

/// Encodes one object in the requested format.
pub(super) fn object(
    resource: &Resource,
    object: &Object,
    shape: Shape,
    now: Timestamp,
    include: &str,
) -> Bytes {
    let value = match shape {
        Shape::Plain => return text(resource, object),
        Shape::Meta => metadata(&object.value()),
        Shape::Table => {
            let value = object.value();
            let shown = form::shown(resource, &value);
            let rows = vec![table::row(resource, &shown, now, include)];
            let meta = json!({"resourceVersion": object.version.to_string()});
            table::table(resource, &rows, &meta)
        }
    };
    encoded(&value)
}

/// Returns an object's metadata as a `PartialObjectMetadata`.
pub(super) fn metadata(object: &Value) -> Value {
    let mut metadata = object.get("metadata").cloned().unwrap_or_default();
    // Compat: the annotation that counts the templates of a DaemonSet is a part of the whole object.
    let is_counted = object.get("kind").is_some_and(|kind| kind == "DaemonSet");
    if let Some(map) = metadata.as_object_mut().filter(|_| is_counted)
        && let Some(Value::Object(annotations)) = map.get_mut("annotations")
    {
        annotations.remove(TEMPLATE_GENERATION);
        if annotations.is_empty() {
            map.remove("annotations");
        }
    }
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
}

/// Encodes a list in the requested format.
pub(super) fn list(
    resource: &Resource,
    objects: &[std::sync::Arc<Object>],
    meta: Map<String, Value>,
    shape: Shape,
    now: Timestamp,
    include: &str,
) -> Bytes {
    match shape {
        Shape::Table => {
            let rows: Vec<Value> = objects
                .iter()
                .map(|one| {
                    let value = one.value();
                    table::row(resource, &form::shown(resource, &value), now, include)
                })
                .collect();
            encoded(&table::table(resource, &rows, &Value::Object(meta)))
        }
        Shape::Meta => {
            let items = objects.iter().map(|one| Item::plain(encoded(&metadata(&one.value()))));
            joined("PartialObjectMetadataList", "meta.k8s.io/v1", &meta, 0, items)
        }
        Shape::Plain => {
            let items = objects.iter().map(|one| item(resource, one));
            let size = objects.iter().map(|one| one.bytes.len() + 1).sum();
            joined(&resource.list_kind, &resource.api_version(), &meta, size, items)
        }
    }
}

/// The text of a list item.
struct Item {
    /// Start of the text, if it is not a part of `rest`.
    head: &'static str,
    rest: Bytes,
}

impl Item {
    fn plain(rest: Bytes) -> Self {
        Self { head: "", rest }
    }
}

/// Returns a list item. Items of built-in kinds have no kind and version of their own.
fn item(resource: &Resource, object: &Object) -> Item {
    if resource.custom {
        return Item::plain(text(resource, object));
    }
    if let Some(rest) = form::native(resource, &object.bytes) {
        return Item { head: "{", rest };
    }
    let value = object.value();
    let mut shown = form::shown(resource, &value).into_owned();
    let map = object::map_of(&mut shown);
    map.remove("apiVersion");
    map.remove("kind");
    Item::plain(encoded(&shown))
}

/// Space for the fields of a list besides its items.
const MAX_HEAD: usize = 512;

/// Joins the texts of the items, of about this size, to a list, so that no item is copied as a tree.
fn joined(
    kind: &str,
    version: &str,
    meta: &Map<String, Value>,
    size: usize,
    items: impl Iterator<Item = Item>,
) -> Bytes {
    let mut out = BytesMut::with_capacity(size + MAX_HEAD);
    let head = json!({"kind": kind, "apiVersion": version, "metadata": meta}).to_string();
    out.put_slice(head.strip_suffix('}').unwrap_or(&head).as_bytes());
    let mut items = items.peekable();
    // Compat: an empty list of metadata has no items.
    if kind == "PartialObjectMetadataList" && items.peek().is_none() {
        out.put_slice(b",\"items\":null}");
        return out.freeze();
    }
    out.put_slice(b",\"items\":[");
    for (at, item) in items.enumerate() {
        if at > 0 {
            out.put_u8(b',');
        }
        out.put_slice(item.head.as_bytes());
        out.put_slice(&item.rest);
    }
    out.put_slice(b"]}");
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(accept: &str) -> Option<Shape> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        shape(&headers, &crate::resource::builtin::by_plural("pods"), None).ok()
    }

    fn warnings(texts: &[&str]) -> Vec<String> {
        let mut response = bytes(StatusCode::OK, "");
        warn(&mut response, texts);
        let all = response.headers().get_all(header::WARNING).iter();
        all.map(|one| String::from_utf8(one.as_bytes().to_vec()).unwrap()).collect()
    }

    #[test]
    fn warnings_are_limited_and_have_any_characters() {
        let quoted = ["ä", "ä", "a \"b\" \\", "a\nb"];
        assert_eq!(warnings(&quoted), [r#"299 - "ä""#, r#"299 - "a \"b\" \\""#]);
        let long = "ö".repeat(5_000);
        assert_eq!(
            warnings(&[&long, "b"]),
            [format!("299 - \"{}\"", "ö".repeat(256)), "299 - \"b\"".into()]
        );
        let many: Vec<String> =
            (0..1_000).map(|number| format!("{number}{}", "x".repeat(300))).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(warnings(&many).len(), 16);
    }

    #[test]
    fn the_first_served_format_is_used() {
        for (accept, expected) in [
            ("application/json", Some(Shape::Plain)),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Some(Shape::Table)),
            ("application/json;as=Table;v=v2;g=meta.k8s.io,application/json", Some(Shape::Plain)),
            ("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", Some(Shape::Meta)),
            ("application/vnd.kubernetes.protobuf, application/json", Some(Shape::Plain)),
            ("application/yaml", Some(Shape::Plain)),
            ("*/*", Some(Shape::Plain)),
            ("text/html", None),
            ("application/json;as=Table;v=v2;g=meta.k8s.io", None),
        ] {
            assert_eq!(asked(accept), expected, "{accept}");
        }
    }
}
