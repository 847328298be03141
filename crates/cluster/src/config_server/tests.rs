//! The client against a small server with certificates of its own.

use std::{net::SocketAddr, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use ring::digest::{SHA256, digest};
use rustls::{ServerConfig, pki_types::PrivateKeyDer};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

use super::*;

struct Authority {
    pem: String,
    der: Vec<u8>,
    server: Arc<ServerConfig>,
    leaf: Vec<u8>,
}

fn authority(name: &str) -> Authority {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let own = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let server_key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let leaf = leaf.signed_by(&server_key, &issuer).unwrap();
    let chain = vec![leaf.der().clone(), own.der().clone()];
    let key = PrivateKeyDer::Pkcs8(server_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    Authority {
        pem: own.pem(),
        der: own.der().to_vec(),
        server: Arc::new(server),
        leaf: leaf.der().to_vec(),
    }
}

fn hex(certificate: &[u8]) -> String {
    let bytes = digest(&SHA256, certificate);
    let digits: Vec<String> = bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    digits.concat()
}

/// Answers every request with this text; returns the address and the last request.
async fn serve(
    tls: Arc<ServerConfig>,
    answer: &'static str,
) -> (SocketAddr, tokio::sync::watch::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, seen) = tokio::sync::watch::channel(String::new());
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = TlsAcceptor::from(tls.clone()).accept(stream).await else {
                continue;
            };
            let mut bytes = vec![0; 8192];
            let length = stream.read(&mut bytes).await.unwrap();
            tell.send_replace(String::from_utf8_lossy(&bytes[..length]).into_owned());
            stream.write_all(answer.as_bytes()).await.unwrap();
            drop(stream.shutdown().await);
        }
    });
    (address, seen)
}

fn machine() -> JoiningMachine {
    JoiningMachine {
        token: Some(JoinToken::new(" abcdefgh.secret\n")),
        join_id: "id-1".to_owned(),
        node: "m4".to_owned(),
        macs: vec!["02:00:00:00:00:04".to_owned()],
        tpm_ek: "ab".repeat(32),
        ..JoiningMachine::default()
    }
}

async fn fetch(url: &str, trust: &Trust) -> Result<Vec<u8>, ConfigServerError> {
    ConfigServer::new(url, trust).unwrap().fetch("worker", &machine()).await
}

const DOCUMENT: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";

#[tokio::test]
async fn a_server_is_trusted_by_its_authority_or_by_a_hash() {
    let (ours, other) = (authority("127.0.0.1"), authority("127.0.0.1"));
    let (address, seen) = serve(ours.server.clone(), DOCUMENT).await;
    let url = format!("https://{address}");
    let colons = hex(&ours.der)
        .as_bytes()
        .chunks(2)
        .map(|pair| String::from_utf8_lossy(pair).to_uppercase())
        .collect::<Vec<_>>()
        .join(":");
    for trust in [
        Trust::authorities(ours.pem.as_bytes()).unwrap(),
        Trust::hash(&hex(&ours.der)).unwrap(),
        Trust::hash(&hex(&ours.leaf)).unwrap(),
        Trust::hash(&colons).unwrap(),
        Trust::hash(&format!("sha256 Fingerprint={}", colons.to_uppercase())).unwrap(),
    ] {
        assert_eq!(fetch(&url, &trust).await.unwrap(), b"{}", "{trust:?}");
    }
    let request = seen.borrow().to_lowercase();
    let tpm = format!("mco-tpm-ek: {}", "ab".repeat(32));
    for part in [
        tpm.as_str(),
        "get /config/worker http/1.1",
        "authorization: bearer abcdefgh.secret",
        "mco-join-id: id-1",
        "mco-node-name: m4",
        "mco-mac: 02:00:00:00:00:04",
        "version=3.5.0",
    ] {
        assert!(request.contains(part), "{part}: {request}");
    }
    for trust in
        [Trust::authorities(other.pem.as_bytes()).unwrap(), Trust::hash(&hex(&other.der)).unwrap()]
    {
        let error = fetch(&url, &trust).await.unwrap_err();
        assert!(matches!(error, ConfigServerError::Untrusted { .. }), "{error:?}");
        assert!(error.is_final());
    }
}

#[tokio::test]
async fn an_authority_by_hash_does_not_excuse_the_name() {
    let ours = authority("other.test");
    let (address, _seen) = serve(ours.server.clone(), DOCUMENT).await;
    let trust = Trust::hash(&hex(&ours.der)).unwrap();
    let error = fetch(&format!("https://{address}"), &trust).await.unwrap_err();
    assert!(matches!(error, ConfigServerError::Untrusted { .. }), "{error:?}");
}

#[tokio::test]
async fn an_answer_is_final_or_worth_a_retry() {
    let rows: [(&str, bool, &str); 4] = [
        (
            "HTTP/1.1 403 Forbidden\r\nMco-Reason: the token is used up\r\nContent-Length: 0\r\n\r\n",
            true,
            "the config server refused the request (403 Forbidden): the token is used up",
        ),
        (
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
            true,
            "the config server refused the request (404 Not Found)",
        ),
        (
            "HTTP/1.1 503 Service Unavailable\r\nMco-Reason: a\u{1b}b\r\nContent-Length: 0\r\n\r\n",
            false,
            "",
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", false, "the connection to "),
    ];
    for (answer, is_final, text) in rows {
        let ours = authority("127.0.0.1");
        let trust = Trust::authorities(ours.pem.as_bytes()).unwrap();
        let (address, _seen) = serve(ours.server.clone(), answer).await;
        let error = fetch(&format!("https://{address}"), &trust).await.unwrap_err();
        assert_eq!(error.is_final(), is_final, "{error:?}");
        assert!(error.to_string().starts_with(text), "{error}");
    }
}

#[test]
fn urls_and_hashes_are_checked() {
    let trust = Trust::hash(&"0".repeat(64)).unwrap();
    for url in ["http://a:1", "a", "https://a/config/worker", "https://a?b", "https://"] {
        assert!(ConfigServer::new(url, &trust).is_err(), "{url}");
    }
    for (url, address) in [
        ("https://a", "a:22623"),
        ("https://10.0.0.1:1/", "10.0.0.1:1"),
        ("https://[fd00::1]", "[fd00::1]:22623"),
    ] {
        assert_eq!(ConfigServer::new(url, &trust).unwrap().address(), address);
    }
    for hash in ["", "00", &"g".repeat(64), &format!("{}é", "0".repeat(62))] {
        assert!(Trust::hash(hash).is_err(), "{hash}");
    }
    assert!(Trust::authorities(b"").is_err());
    assert!(Trust::authorities(b"-----BEGIN CERTIFICATE-----\nAA\n").is_err());
}

#[test]
fn a_token_is_not_printed() {
    let printed = format!("{:?}", machine());
    assert!(!printed.contains("secret"), "{printed}");
    let mut broken = machine();
    broken.token = Some(JoinToken::new("a\nb"));
    assert!(broken.headers().is_err());
}
