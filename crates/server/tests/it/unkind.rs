//! Tests of clients that are broken or hostile.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::{
    client::{plain, request},
    fixture::{PATIENCE, source, start},
};

/// Sends `text` and returns everything that the server sends until it disconnects.
async fn raw(address: SocketAddr, text: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The server may disconnect before it has read everything.
    drop(stream.write_all(text).await);
    let mut answer = Vec::new();
    let read = timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    drop(read.expect("the server disconnects"));
    String::from_utf8_lossy(&answer).into_owned()
}

/// Returns the status of the first response, or 0 if there is none.
fn status(answer: &str) -> u16 {
    answer.get(9..12).and_then(|code| code.parse().ok()).unwrap_or_default()
}

#[tokio::test]
async fn odd_requests_get_a_response_and_no_config() {
    let server = start(source(), |_| {}).await;
    let end = "host: a\r\nconnection: close\r\n\r\n";
    let rows = [
        ("TRACE /config/worker HTTP/1.1", 405),
        ("PROPFIND /config/worker HTTP/1.1", 405),
        ("get /config/worker HTTP/1.1", 405),
        ("G\u{e9}T /config/worker HTTP/1.1", 400),
        ("OPTIONS * HTTP/1.1", 405),
        ("CONNECT a:1 HTTP/1.1", 405),
        ("PUT /config/worker HTTP/1.1", 405),
        ("GET /config/worker HTTP/2.0", 400),
        ("GET /config/worker HTTP/0.9", 400),
        ("GET /config/worker", 400),
        ("GET  /config/worker HTTP/1.1", 400),
        ("GET /config/wor ker HTTP/1.1", 400),
        ("GET /config/worker%00 HTTP/1.1", 404),
        ("GET /config/worker%0a HTTP/1.1", 404),
        ("GET /config/%2e%2e/%2e%2e/etc/passwd HTTP/1.1", 301),
        ("GET /config/..%2f..%2fetc%2fpasswd HTTP/1.1", 301),
        ("GET /config/%252e%252e/worker HTTP/1.1", 200),
        ("GET http://other.example.com/config/worker HTTP/1.1", 200),
        ("GET /config/worker;a=b HTTP/1.1", 404),
        ("GET /config/worker\\..\\x HTTP/1.1", 404),
        ("GET /CONFIG/worker HTTP/1.1", 404),
        ("GET ../config/worker HTTP/1.1", 400),
    ];
    for (line, expected) in rows {
        let answer = raw(server.plain, format!("{line}\r\n{end}").as_bytes()).await;
        assert_eq!(status(&answer), expected, "{line}: {answer}");
        let has_config = answer.contains("\"ignition\"");
        assert_eq!(has_config, expected == 200, "{line}: {answer}");
    }
    server.stop().await;
}

#[tokio::test]
async fn header_floods_are_rejected() {
    let server = start(source(), |_| {}).await;
    let many = "x: a\r\n".repeat(500);
    let long = format!("x: {}\r\n", "y".repeat(1 << 20));
    let no_end = "x: ".repeat(1 << 19);
    for flood in [many, long, no_end] {
        let text = format!("GET /config/worker HTTP/1.1\r\nhost: a\r\n{flood}\r\n");
        let answer = raw(server.plain, text.as_bytes()).await;
        // A client that still sends may see a reset instead of the response.
        assert!(matches!(status(&answer), 431 | 0), "{answer}");
    }
    let line = format!("GET /config/{} HTTP/1.1\r\nhost: a\r\n\r\n", "y".repeat(1 << 20));
    let answer = raw(server.plain, line.as_bytes()).await;
    assert!(matches!(status(&answer), 414 | 431 | 0), "{answer}");
    let reply = plain(server.plain, request("GET", "/config/worker", &[])).await;
    assert_eq!(reply.status.as_u16(), 200, "the server still serves");
    server.stop().await;
}

#[tokio::test]
async fn bodies_that_hide_a_second_request_are_not_served() {
    let server = start(source(), |_| {}).await;
    let hidden = "GET /config/worker HTTP/1.1\r\nhost: a\r\n\r\n";
    let rows = [
        // Two lengths: a proxy and the server could see different ends of the body.
        format!("content-length: 0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"),
        format!("content-length: 1\r\ncontent-length: 2\r\n\r\n{hidden}"),
        format!("content-length: -1\r\n\r\n{hidden}"),
        format!("transfer-encoding: chunked, identity\r\n\r\n{hidden}"),
    ];
    for body in rows {
        let text = format!("POST /config/worker HTTP/1.1\r\nhost: a\r\n{body}");
        let answer = raw(server.plain, text.as_bytes()).await;
        assert!(matches!(status(&answer), 400 | 405 | 0), "{text}: {answer}");
        assert!(!answer.contains("\"ignition\""), "{text}: {answer}");
    }
    server.stop().await;
}

// covers: S11
#[tokio::test]
async fn head_has_the_headers_of_get_for_every_outcome() {
    let server = start(source(), |_| {}).await;
    let accept = ["application/vnd.coreos.ignition+json;version=3.5.0"];
    for path in [
        "/config/worker",
        "/config/none",
        "/config/A",
        "/config/broken",
        "/config",
        "/",
        "/healthz",
    ] {
        let get = plain(server.plain, request("GET", path, &accept)).await;
        let head = plain(server.plain, request("HEAD", path, &accept)).await;
        let headers = |reply: &crate::client::Reply| {
            let mut headers = reply.headers.clone();
            headers.remove("date");
            headers
        };
        assert_eq!(head.status, get.status, "{path}");
        assert_eq!(headers(&head), headers(&get), "{path}");
        assert!(head.body.is_empty(), "{path}");
    }
    server.stop().await;
}
