//! A small web server whose responses a test defines and whose requests it inspects.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use mco_testkit::pki::Pair;
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

type Answer = Arc<dyn Fn(&str) -> Vec<u8> + Send + Sync>;

/// A server on the loopback address that stops with the test.
pub(crate) struct Web {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    running: JoinHandle<()>,
}

impl Web {
    /// Starts a server that responds with `answer` of the request's head.
    pub(crate) async fn start(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::open(None, Arc::new(answer), None).await
    }

    /// Starts such a server over TLS.
    pub(crate) async fn secure(
        pair: &Pair,
        answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes());
        let chain = chain.map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let tls = TlsAcceptor::from(Arc::new(config));
        Self::open(Some(tls), Arc::new(answer), None).await
    }

    /// Starts a proxy that connects every client to `to`, regardless of the requested host.
    pub(crate) async fn proxy(to: SocketAddr) -> Self {
        let answer = |_: &str| b"HTTP/1.1 200 Connected\r\n\r\n".to_vec();
        Self::open(None, Arc::new(answer), Some(to)).await
    }

    async fn open(tls: Option<TlsAcceptor>, answer: Answer, to: Option<SocketAddr>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = asked.clone();
        let running = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, answer, seen) = (tls.clone(), answer.clone(), seen.clone());
                tokio::spawn(async move {
                    match tls {
                        // A client that does not trust the certificate disconnects.
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                speak(stream, &answer, &seen, to).await;
                            }
                        }
                        None => speak(stream, &answer, &seen, to).await,
                    }
                });
            }
        });
        Self { address, asked, running }
    }

    /// Closes the address.
    pub(crate) async fn close(mut self) {
        self.running.abort();
        // The task was aborted.
        drop((&mut self.running).await);
    }

    /// Returns the heads of all requests so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.running.abort();
    }
}

async fn speak(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: &Answer,
    seen: &Mutex<Vec<String>>,
    to: Option<SocketAddr>,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let said = answer(&head);
    seen.lock().unwrap().push(head);
    drop(stream.write_all(&said).await);
    if let Some(to) = to {
        let mut behind = TcpStream::connect(to).await.unwrap();
        drop(copy_bidirectional(&mut stream, &mut behind).await);
    } else {
        drop(stream.shutdown().await);
    }
}

/// Returns a response with these contents.
pub(crate) fn ok(contents: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", contents.len());
    [head.as_bytes(), contents].concat()
}

/// Returns a redirect to `location`.
pub(crate) fn redirect_to(location: &str) -> Vec<u8> {
    format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n").into_bytes()
}

/// Returns a response with this status and no contents.
pub(crate) fn status(status: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").into_bytes()
}
