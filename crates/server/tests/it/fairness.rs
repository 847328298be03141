//! Tests of the share of connections that one address can have.

use std::{net::SocketAddr, time::Duration};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    time::{Instant, timeout},
};

use crate::{
    client::{request, send, tls},
    fixture::{PATIENCE, Running, source, start},
};

/// Connections of each listener, as many as a server has by default.
const LIMIT: usize = 1024;

/// File descriptors that the tests of this file need together: client and server are one process.
const DESCRIPTORS: u64 = 3 * 2 * 1024 + 512;

/// Time within which a machine is served although another address has every connection it can get.
/// The server closes those connections by itself after [`PATIENCE`], which is longer.
const AT_ONCE: Duration = Duration::from_mins(1);

async fn crowded(per_address: usize) -> Running {
    raise_descriptor_limit();
    start(source(), |settings| {
        settings.limits.connections = LIMIT;
        settings.limits.connections_per_address = per_address;
        // Nothing but a new connection closes one.
        settings.limits.headers = PATIENCE;
        settings.limits.handshake = PATIENCE;
    })
    .await
}

/// Raises the limit of this process, which is 1,024 on most systems.
fn raise_descriptor_limit() {
    let now = getrlimit(Resource::Nofile);
    if now.current.is_some_and(|current| current < DESCRIPTORS) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(DESCRIPTORS), ..now }).unwrap();
    }
}

/// Connects from 127.0.0.`last`.
async fn connect_from(last: u8, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(([127, 0, 0, last], 0).into())?;
    socket.connect(to).await
}

const HEALTH: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n";

/// Sends a request and reads the response; returns false if the server has closed the connection.
async fn ask(stream: &mut TcpStream) -> bool {
    let mut answer = Vec::new();
    if stream.write_all(HEALTH).await.is_err() {
        return false;
    }
    while !answer.ends_with(b"\r\n\r\n") {
        let read =
            timeout(PATIENCE, stream.read_buf(&mut answer)).await.expect("an answer or an end");
        if !read.is_ok_and(|read| read > 0) {
            return false;
        }
    }
    answer.starts_with(b"HTTP/1.1 200")
}

/// Opens connections from one address, each with a response, until the server has `LIMIT` of them.
async fn hold(server: &Running, last: u8) -> Vec<TcpStream> {
    let mut held = Vec::new();
    for _ in 0..LIMIT {
        let mut stream = connect_from(last, server.plain).await.unwrap();
        assert!(ask(&mut stream).await, "a connection within the limit");
        held.push(stream);
    }
    held
}

#[tokio::test]
async fn idle_connections_of_one_address_do_not_keep_a_machine_waiting() {
    let server = crowded(LIMIT).await;
    let mut held = hold(&server, 2).await;
    let start = Instant::now();
    for last in 3..23 {
        let stream = connect_from(last, server.plain).await.unwrap();
        let reply = send(stream, request("GET", "/config/worker", &[])).await;
        assert_eq!(reply.status.as_u16(), 200);
    }
    let taken = start.elapsed();
    assert!(taken < AT_ONCE, "20 machines took {taken:?}");
    let mut open = 0;
    for stream in &mut held {
        open += usize::from(ask(stream).await);
    }
    // A machine's connection ends with its response, so each finds a place or takes one.
    assert!((LIMIT - 20..LIMIT).contains(&open), "{open}");
    server.stop().await;
}

#[tokio::test]
async fn handshakes_that_never_end_do_not_keep_a_machine_waiting() {
    let server = crowded(LIMIT).await;
    let mut held = Vec::new();
    for _ in 0..LIMIT {
        let mut stream = connect_from(2, server.secure).await.unwrap();
        stream.write_all(b"\x16\x03\x01\x02\x00\x01").await.unwrap();
        held.push(stream);
    }
    let start = Instant::now();
    let stream = connect_from(3, server.secure).await.unwrap();
    let stream = tls(server.authority.roots()).over(stream).await.unwrap();
    let reply = send(stream, request("GET", "/config/worker", &[])).await;
    assert_eq!(reply.status.as_u16(), 200);
    let taken = start.elapsed();
    assert!(taken < AT_ONCE, "a machine took {taken:?}");
    server.stop().await;
}

#[tokio::test]
async fn one_address_has_its_own_limit() {
    let server = crowded(4).await;
    let mut held = Vec::new();
    for _ in 0..4 {
        let mut stream = connect_from(2, server.plain).await.unwrap();
        assert!(ask(&mut stream).await);
        held.push(stream);
    }
    // The connections are busy until a moment ago, so none of them gives way.
    let mut fifth = connect_from(2, server.plain).await.unwrap();
    assert!(!ask(&mut fifth).await, "a fifth connection of the address is closed");
    let mut other = connect_from(3, server.plain).await.unwrap();
    assert!(ask(&mut other).await, "another address is served");
    for stream in &mut held {
        assert!(ask(stream).await, "the first connections stay open");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_download_is_not_cut_off_by_idle_connections() {
    let server = crowded(LIMIT).await;
    let mut busy = connect_from(2, server.plain).await.unwrap();
    let mut idle = Vec::new();
    for _ in 1..LIMIT {
        let mut stream = connect_from(2, server.plain).await.unwrap();
        assert!(ask(&mut stream).await);
        idle.push(stream);
    }
    // Of all connections, this one was used last.
    assert!(ask(&mut busy).await);
    for last in 3..43 {
        let mut machine = connect_from(last, server.plain).await.unwrap();
        assert!(ask(&mut machine).await, "machine {last}");
        assert!(ask(&mut busy).await, "the busy connection, after machine {last}");
        idle.push(machine);
    }
    server.stop().await;
}
