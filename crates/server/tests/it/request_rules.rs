//! Rules for every request line and every header, whatever a client sends. Shared with the fuzz target
//! `request`.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use mco_ignition::{TargetVersion, negotiate};
use mco_server::{
    content_coding::prefers_gzip,
    entity_tag,
    route::{Route, route},
};

/// Checks the decisions about a request of this method, target and header value.
///
/// Texts that no HTTP parser accepts are skipped.
pub(crate) fn check(method: &[u8], target: &[u8], header: &[u8]) {
    if let (Ok(method), Ok(target)) = (Method::from_bytes(method), Uri::try_from(target)) {
        check_route(&method, &target);
    }
    let Ok(value) = HeaderValue::from_bytes(header) else { return };
    if let Ok(version) = negotiate(&String::from_utf8_lossy(value.as_bytes())) {
        assert!(TargetVersion::ALL.contains(&version), "{version}");
    }
    let with = |name: HeaderName| {
        let mut headers = HeaderMap::new();
        headers.insert(name, value.clone());
        headers
    };
    let names_gzip = header.to_ascii_lowercase().windows(4).any(|four| four == b"gzip");
    if prefers_gzip(&with(http::header::ACCEPT_ENCODING)) {
        assert!(names_gzip || header.contains(&b'*'), "{value:?}");
    }
    let tag = HeaderValue::from_static("\"a-tag\"");
    if entity_tag::is_known(&with(http::header::IF_NONE_MATCH), &tag) {
        let names_tag = header.windows(tag.len()).any(|part| part == tag.as_bytes());
        assert!(names_tag || header.trim_ascii() == b"*", "{value:?}");
    }
}

fn check_route(method: &Method, target: &Uri) {
    let readable = method == Method::GET || method == Method::HEAD;
    match route(method, target) {
        Route::Config { pool } => {
            assert!(readable && !pool.is_empty() && !pool.contains('/'), "{target}: {pool:?}");
        }
        Route::Health | Route::Live | Route::Ready => assert!(readable, "{method} {target}"),
        Route::Redirect { location } => {
            // Never to another host.
            assert!(location.starts_with('/') && !location.starts_with("//"), "{location}");
            assert!(HeaderValue::from_str(&location).is_ok(), "{location}");
            let next: Uri = location.parse().expect("a location is a valid target");
            let again = route(method, &next);
            assert!(!matches!(again, Route::Redirect { .. }), "{target} -> {next} -> {again:?}");
        }
        Route::Reject(status) => assert!(status.is_client_error(), "{method} {target}"),
    }
}
