//! Tests of status, headers and body of every kind of response.

use mco_server::{Source, document::Inputs, source::LookupError};
use tokio::net::TcpStream;

use crate::{
    client::{plain, request, send, tls},
    fixture::{source, start},
};

// covers: S01, S08, S09, S10, S11, S13, S14, S15
#[tokio::test]
async fn both_addresses_give_the_same_responses() {
    let server = start(source(), |_| {}).await;
    let rows = [
        ("GET", "/healthz", 200, None),
        ("HEAD", "/healthz", 200, None),
        ("POST", "/healthz", 405, None),
        ("GET", "/", 404, None),
        ("HEAD", "/", 404, None),
        ("POST", "/", 405, None),
        ("GET", "/config/empty", 200, Some(32)),
        ("HEAD", "/config/empty", 200, Some(32)),
        ("GET", "/config/x/empty?a=b", 200, Some(32)),
        ("POST", "/config/empty", 405, None),
        ("GET", "/config/unknown", 503, None),
        ("GET", "/config/broken", 500, None),
        ("HEAD", "/config/unknown", 503, None),
        ("GET", "/config/Worker", 404, None),
        ("GET", "/config/%zz", 400, None),
        ("GET", "/config", 301, None),
    ];
    for (method, path, status, length) in rows {
        for secure in [true, false] {
            let asked = request(method, path, &["x/vnd.coreos.ignition+json;version=3.5.0"]);
            let reply = if secure {
                let stream = tls(server.authority.roots()).connect(server.secure).await.unwrap();
                send(stream, asked).await
            } else {
                send(TcpStream::connect(server.plain).await.unwrap(), asked).await
            };
            let case = format!("{method} {path}, secure: {secure}: {reply:?}");
            assert_eq!(reply.status.as_u16(), status, "{case}");
            let length = length.unwrap_or(0).to_string();
            assert_eq!(reply.header("content-length"), Some(length.as_str()), "{case}");
            let sent = if method == "HEAD" { "0" } else { &length };
            assert_eq!(reply.body.len().to_string(), sent, "{case}");
            let kind = (length != "0").then_some("application/json");
            assert_eq!(reply.header("content-type"), kind, "{case}");
        }
    }
    server.stop().await;
}

// covers: S12, S16, S17, S18, S19, S20, S21, S22, S23
#[tokio::test]
async fn the_accept_header_selects_the_version() {
    let server = start(source(), |_| {}).await;
    let ign = "application/vnd.coreos.ignition+json";
    let one = |version: &str| format!("{ign};version={version}, */*;q=0.1");
    let rows: Vec<(Vec<String>, Result<&str, u16>)> = vec![
        (vec![], Ok("2.2.0")),
        (vec!["*/*".to_owned()], Ok("2.2.0")),
        (vec![format!("{ign}; version=2.4.0, {ign}; version=1; q=0.5, */*; q=0.1")], Ok("2.2.0")),
        (vec![one("3.1.0")], Ok("3.1.0")),
        (vec![one("3.2.0")], Ok("3.2.0")),
        (vec![one("3.3.0")], Ok("3.3.0")),
        (vec![one("3.4.0")], Ok("3.4.0")),
        (vec![one("3.5.0")], Ok("3.5.0")),
        (vec![one("3.99.0")], Ok("3.5.0")),
        (vec![one("3.0.0")], Err(500)),
        (vec![one("4.0.0")], Err(400)),
        (vec![one("2.1.0")], Err(400)),
        (vec![format!("{ign};version=3.1.0;q=0.5,{ign};version=3.3.0")], Ok("3.3.0")),
        (vec!["text/vnd.coreos.ignition+json;version=3.2.0".to_owned()], Ok("3.2.0")),
        (vec![one("3.2.0"), one("3.4.0")], Ok("3.2.0")),
    ];
    for (accept, expected) in rows {
        let accept: Vec<_> = accept.iter().map(String::as_str).collect();
        let reply = plain(server.plain, request("GET", "/config/empty", &accept)).await;
        match expected {
            Ok(version) => {
                assert_eq!(reply.status.as_u16(), 200, "{accept:?}");
                let body = format!(r#"{{"ignition":{{"version":"{version}"}}}}"#);
                assert_eq!(reply.body, body.as_bytes(), "{accept:?}");
                assert_eq!(reply.body.len(), 32, "{accept:?}");
            }
            Err(status) => {
                assert_eq!(reply.status.as_u16(), status, "{accept:?}");
                assert!(reply.body.is_empty(), "{accept:?}");
            }
        }
    }
    server.stop().await;
}

// covers: S36, S48
#[tokio::test]
async fn a_hundred_machines_get_the_same_document() {
    let server = start(source(), |_| {}).await;
    let accept = ["application/vnd.coreos.ignition+json;version=3.2.0"];
    let ask = || plain(server.plain, request("GET", "/config/worker", &accept));
    let first = ask().await;
    let files = first.json()["storage"]["files"].clone();
    let paths: Vec<_> = files.as_array().unwrap().iter().map(|file| file["path"].clone()).collect();
    assert_eq!(paths[0], "/etc/motd");
    assert_eq!(paths.last().unwrap(), "/etc/ignition-machine-config-encapsulated.json");
    for _ in 0..100 {
        assert_eq!(ask().await.body, first.body);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_refusal_says_why_in_a_header() {
    let server = start(source(), |_| {}).await;
    let v2_2 = "for another one send the header Accept: \
                application/vnd.coreos.ignition+json;version=3.5.0.";
    let rows = [
        ("POST", "/config/empty", 405, "Only GET and HEAD are allowed."),
        ("DELETE", "/nowhere", 405, "Only GET and HEAD are allowed."),
        ("GET", "/nowhere", 404, "Nothing is served at this path."),
        (
            "GET",
            "/config/UPPER",
            404,
            "The name of the pool is not valid: only lower-case letters, digits, '-' and '.' are \
             allowed.",
        ),
        ("GET", "/config/unknown", 503, "Pool \"unknown\" does not exist."),
        (
            "GET",
            "/config/broken",
            500,
            "The config of pool \"broken\" cannot be served as Ignition 2.2.0; the log of the \
             server has the cause.",
        ),
        ("GET", "/config/disk", 500, v2_2),
    ];
    for (method, path, status, reason) in rows {
        let reply = plain(server.plain, request(method, path, &[])).await;
        let found = reply.header("mco-reason").unwrap();
        assert_eq!(reply.status.as_u16(), status, "{method} {path}");
        assert!(found.ends_with(reason), "{method} {path}: {found}");
        assert!(reply.body.is_empty(), "{method} {path}");
        let allow = (status == 405).then_some("GET, HEAD");
        assert_eq!(reply.header("allow"), allow, "{method} {path}");
        let retry = (status == 503).then_some("5");
        assert_eq!(reply.header("retry-after"), retry, "{method} {path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_has_the_document_gets_no_body() {
    let server = start(source(), |_| {}).await;
    let ask = async |method: &str, headers: &[(&str, &str)]| {
        let accept = ["application/vnd.coreos.ignition+json;version=3.2.0"];
        let mut asked = request(method, "/config/worker", &accept);
        for (name, value) in headers {
            let name: http::HeaderName = name.parse().unwrap();
            asked.headers_mut().append(name, value.parse().unwrap());
        }
        plain(server.plain, asked).await
    };
    let first = ask("GET", &[]).await;
    let tag = first.header("etag").unwrap().to_owned();
    assert!(tag.starts_with('"') && tag.ends_with('"') && tag.len() == 34, "{tag}");
    assert_eq!(first.header("cache-control"), Some("private, no-cache"));
    for method in ["GET", "HEAD"] {
        let known = ask(method, &[("if-none-match", &tag)]).await;
        assert_eq!((known.status.as_u16(), known.body.len()), (304, 0), "{method}");
        assert_eq!(known.header("etag"), Some(tag.as_str()), "{method}");
        assert_eq!(known.header("vary"), Some("accept, accept-encoding"), "{method}");
        assert_eq!(known.header("content-length"), None, "{method}");
        let other = ask(method, &[("if-none-match", "\"other\"")]).await;
        assert_eq!(other.status.as_u16(), 200, "{method}");
        assert_eq!(other.header("content-length"), first.header("content-length"), "{method}");
    }

    let gzip = ask("GET", &[("accept-encoding", "gzip")]).await;
    assert_eq!(gzip.header("content-encoding"), Some("gzip"));
    assert_eq!(gzip.header("vary"), Some("accept, accept-encoding"));
    assert_ne!(gzip.header("etag"), Some(tag.as_str()), "other bytes have another tag");
    let unpacked = mco_ignition::gzip::decompress(&gzip.body, first.body.len()).unwrap();
    assert_eq!(unpacked, first.body);
    let head = ask("HEAD", &[("accept-encoding", "gzip")]).await;
    assert_eq!(head.header("content-length"), Some(gzip.body.len().to_string().as_str()));
    let known = [("accept-encoding", "gzip"), ("if-none-match", gzip.header("etag").unwrap())];
    assert_eq!(ask("GET", &known).await.status.as_u16(), 304);
    // Ignition sends this.
    let plain = ask("GET", &[("accept-encoding", "identity")]).await;
    assert_eq!((plain.header("content-encoding"), &plain.body), (None, &first.body));
    server.stop().await;
}

/// A source that has heard nothing for a while.
struct Stale;

impl Source for Stale {
    async fn ready(&self) {}

    fn stale_watches(&self) -> Vec<String> {
        vec!["watch of A is stale".to_owned(), "watch of B is stale".to_owned()]
    }

    async fn inputs(&self, pool: &str) -> Result<Inputs, LookupError> {
        Err(LookupError::Pool(pool.to_owned()))
    }
}

// covers: S08
#[tokio::test]
async fn health_follows_the_watches_and_liveness_does_not() {
    let server = start(Stale, |_| {}).await;
    let lines = "watch of A is stale\nwatch of B is stale\n";
    for (path, status, body) in
        [("/healthz", 503, ""), ("/readyz", 503, lines), ("/livez", 200, "")]
    {
        let reply = plain(server.plain, request("GET", path, &[])).await;
        assert_eq!((reply.status.as_u16(), &*reply.body), (status, body.as_bytes()), "{path}");
        let reason = (status == 503).then_some("Watch of A is stale, watch of B is stale.");
        assert_eq!(reply.header("mco-reason"), reason, "{path}");
    }
    server.stop().await;
}
