//! Tests of the limits on clients.

use std::time::Duration;

use mco_server::FixedSource;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{sleep, timeout},
};

use crate::fixture::{PATIENCE, Running, config, source, start, with_file};

/// Short enough to wait for.
const SOON: Duration = Duration::from_millis(50);

async fn hurried() -> Running {
    start(source(), |settings| {
        settings.limits.handshake = SOON;
        settings.limits.headers = SOON;
    })
    .await
}

/// Sends `bytes`, then nothing, and reads until the server disconnects.
async fn stall(address: std::net::SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let read = timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
    // A reset is a disconnect too.
    drop(read.expect("the server disconnects"));
    answer
}

#[tokio::test]
async fn slow_handshakes_time_out() {
    let server = hurried().await;
    for bytes in [&b""[..], b"\x16\x03\x01\x02\x00"] {
        stall(server.secure, bytes).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn slow_headers_time_out() {
    let server = hurried().await;
    for bytes in [&b""[..], b"GET /config/worker HTTP/1.1\r\nhost: a\r\nx-a: "] {
        let answer = String::from_utf8(stall(server.plain, bytes).await).unwrap();
        assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    server.stop().await;
}

#[tokio::test]
async fn oversized_headers_are_rejected() {
    let server = start(source(), |_| {}).await;
    let long = format!("GET /healthz HTTP/1.1\r\nhost: a\r\nx-a: {}\r\n\r\n", "x".repeat(64 << 10));
    let mut stream = TcpStream::connect(server.plain).await.unwrap();
    // The server may disconnect before it has read everything.
    drop(stream.write_all(long.as_bytes()).await);
    let mut answer = [0; 12];
    let read = timeout(PATIENCE, stream.read_exact(&mut answer)).await.expect("an answer");
    if read.is_ok() {
        assert_eq!(answer, *b"HTTP/1.1 431");
    }
    server.stop().await;
}

#[tokio::test]
async fn the_body_of_a_request_is_not_read() {
    let server = start(source(), |_| {}).await;
    let head = b"POST /config/worker HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000000\r\n\r\n";
    let answer = String::from_utf8(stall(server.plain, head).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
    assert!(answer.contains("content-length: 0"), "{answer}");
    server.stop().await;
}

#[tokio::test]
async fn shutdown_does_not_wait_for_idle_connections() {
    let server = start(source(), |_| {}).await;
    let silent = TcpStream::connect(server.secure).await.unwrap();
    let idle = TcpStream::connect(server.plain).await.unwrap();
    let address = server.plain;
    server.stop().await;
    assert!(TcpStream::connect(address).await.is_err(), "the address is closed");
    drop((silent, idle));
}

/// Sends a request and returns the status line of the response.
async fn ask(stream: &mut TcpStream, path: &str) -> String {
    let text = format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let read = timeout(PATIENCE, stream.read_buf(&mut answer)).await.expect("an answer");
        assert_ne!(read.unwrap(), 0, "the connection stays open");
    }
    String::from_utf8_lossy(&answer).lines().next().unwrap().to_owned()
}

#[tokio::test]
async fn a_connection_that_was_idle_is_served_again() {
    let server = start(source(), |settings| settings.limits.idle = SOON).await;
    let mut stream = TcpStream::connect(server.plain).await.unwrap();
    for (path, expected) in [("/healthz", "HTTP/1.1 200 OK"), ("/", "HTTP/1.1 404 Not Found")] {
        for _ in 0..2 {
            assert_eq!(ask(&mut stream, path).await, expected);
        }
        // The pauses are what the test is about: the connection has no buffers after them.
        sleep(4 * SOON).await;
    }
    // The first bytes of a request, then a pause, then the rest.
    stream.write_all(b"GET /healthz HT").await.unwrap();
    sleep(4 * SOON).await;
    stream.write_all(b"TP/1.1\r\nhost: a\r\n").await.unwrap();
    sleep(4 * SOON).await;
    stream.write_all(b"\r\n").await.unwrap();
    let mut answer = [0; 15];
    timeout(PATIENCE, stream.read_exact(&mut answer)).await.expect("an answer").unwrap();
    assert_eq!(answer, *b"HTTP/1.1 200 OK");
    server.stop().await;
}

#[tokio::test]
async fn a_slow_download_is_complete() {
    let large = config("rendered-large-1", &with_file(20_000_000));
    let server = start(FixedSource::default().with("large", large), |settings| {
        settings.limits.idle = SOON;
    })
    .await;
    let mut stream = TcpStream::connect(server.plain).await.unwrap();
    let accept = "accept: a/vnd.coreos.ignition+json;version=3.5.0";
    let text = format!("GET /config/large HTTP/1.1\r\nhost: a\r\n{accept}\r\n\r\n");
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.windows(4).any(|four| four == b"\r\n\r\n") {
        timeout(PATIENCE, stream.read_buf(&mut answer)).await.expect("headers").unwrap();
    }
    // The client does not read for longer than an idle connection keeps its buffers.
    sleep(4 * SOON).await;
    let length = 20_000_000 + 100;
    while answer.len() < length {
        let read = timeout(PATIENCE, stream.read_buf(&mut answer)).await.expect("the body");
        assert_ne!(read.unwrap(), 0, "after {} bytes", answer.len());
    }
    assert!(answer.ends_with(b"}]}}"), "the end of the document");
    server.stop().await;
}
