//! Tests of TLS: versions, protocols, and certificates that change.

use std::time::Duration;

use mco_cluster::{Shutdown, tls::Policy};
use mco_server::{Certificate, Server, StartError};
use rustls::version::{TLS12, TLS13};
use tokio::{io::AsyncReadExt as _, io::AsyncWriteExt as _, net::TcpStream, time::timeout};

use crate::{
    authority::Authority,
    client::{Tls, leaf, tls},
    fixture::{PATIENCE, settings, source, start},
};

// covers: S04
#[tokio::test]
async fn only_http_1_1_is_spoken() {
    let server = start(source(), |_| {}).await;
    let rows: [(&[&str], bool); 4] =
        [(&[], true), (&["http/1.1"], true), (&["h2", "http/1.1"], true), (&["h2"], false)];
    for (protocols, accepted) in rows {
        let wish = Tls { protocols, ..tls(server.authority.roots()) };
        let stream = wish.connect(server.secure).await;
        assert_eq!(stream.is_ok(), accepted, "{protocols:?}");
        let spoken =
            stream.ok().and_then(|stream| stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec));
        let expected = (accepted && !protocols.is_empty()).then(|| b"http/1.1".to_vec());
        assert_eq!(spoken, expected, "{protocols:?}");
    }
    server.stop().await;
}

// covers: S05
#[tokio::test]
async fn tls_1_2_is_the_default_minimum_and_1_3_can_be_required() {
    for (floor, old_is_fine) in [("VersionTLS12", true), ("VersionTLS13", false)] {
        let policy = Policy::parse(floor, &[]).unwrap();
        let server = start(source(), |settings| settings.policy = policy).await;
        let versions = [(&TLS12, old_is_fine), (&TLS13, true)];
        for (version, accepted) in versions {
            let wish = Tls { versions: vec![version], ..tls(server.authority.roots()) };
            let stream = wish.connect(server.secure).await;
            assert_eq!(stream.is_ok(), accepted, "{floor}: {version:?}");
        }
        server.stop().await;
    }
}

/// Returns a client hello of a version before 1.3: 2 for TLS 1.1, 3 for TLS 1.2.
fn hello(minor: u8) -> Vec<u8> {
    // Elliptic curves: X25519; points: uncompressed; signatures: ECDSA with P-256 and SHA-256.
    let extensions =
        [&[0, 10, 0, 4, 0, 2, 0, 0x1d][..], &[0, 11, 0, 2, 1, 0], &[0, 13, 0, 4, 0, 2, 4, 3]]
            .concat();
    let length = u8::try_from(extensions.len()).unwrap();
    let mut body = vec![3, minor];
    body.extend([7; 32]);
    // No session; one suite, ECDHE with ECDSA and AES-128-GCM; no compression.
    body.extend([0, 0, 2, 0xc0, 0x2b, 1, 0, 0, length]);
    body.extend(extensions);
    let length = u8::try_from(body.len()).unwrap();
    let mut record = vec![22, 3, 1, 0, length + 4, 1, 0, 0, length];
    record.extend(body);
    record
}

// covers: S05
#[tokio::test]
async fn tls_1_1_is_rejected() {
    let server = start(source(), |_| {}).await;
    // The record's type, then a server hello of TLS 1.2 or an alert: fatal, protocol version.
    let rows = [(3, 22, [2, 0]), (2, 21, [2, 70])];
    for (minor, kind, start) in rows {
        let mut stream = TcpStream::connect(server.secure).await.unwrap();
        stream.write_all(&hello(minor)).await.unwrap();
        let mut answer = [0; 7];
        timeout(PATIENCE, stream.read_exact(&mut answer)).await.expect("an answer").unwrap();
        assert_eq!((answer[0], &answer[5..]), (kind, &start[..]), "{answer:?}");
    }
    server.stop().await;
}

// covers: S07
#[tokio::test]
async fn a_new_certificate_is_reloaded() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let (chain, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    let write = |pair: &crate::authority::Pair| {
        std::fs::write(&chain, &pair.chain).unwrap();
        std::fs::write(&key, &pair.key).unwrap();
    };
    let (old, new) = (authority.pair(), authority.pair());
    write(&old);
    let poll = Duration::from_millis(5);
    let files = Certificate::Files { chain: chain.clone(), key: key.clone(), poll };
    let server = Server::open(settings(files), source()).await.unwrap();
    let address = server.secure_address().unwrap();
    let shutdown = Shutdown::new();
    let asks = async {
        assert_eq!(leaf(address, authority.roots()).await, old.leaf);
        write(&new);
        let changed = async { while leaf(address, authority.roots()).await != new.leaf {} };
        timeout(PATIENCE, changed).await.expect("the new certificate is shown");
        shutdown.request();
    };
    tokio::join!(server.serve(&shutdown), asks);
}

// covers: S02
#[tokio::test]
async fn an_invalid_certificate_at_the_start_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let missing = Certificate::files(folder.path().join("a"), folder.path().join("b"));
    let refused = Server::open(settings(missing), source()).await.unwrap_err();
    assert!(matches!(refused, StartError::Certificate(_)), "{refused:?}");
    assert_eq!(refused.to_string(), "failed to load serving cert");
}

#[tokio::test]
async fn a_taken_address_is_an_error_that_names_it() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let pair = Authority::new().pair();
    let mut settings = settings(Certificate::Inline { chain: pair.chain, key: pair.key });
    settings.plain = Some(address);
    let refused = Server::open(settings, source()).await.unwrap_err();
    assert_eq!(refused.to_string(), format!("failed to listen on {address}"));
}
