//! Monitors the health endpoint of the machine's kubelet.
//!
//! Plain HTTP from the same machine. Unlike in the reference, only the body `ok` counts as healthy.

use std::{io, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{sleep, timeout},
};
use tracing::warn;

use crate::metrics::Metrics;

/// Pause between two checks.
const INTERVAL: Duration = Duration::from_secs(30);

/// Timeout of a check.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Longest response that is read.
const MAX_RESPONSE: u64 = 4096;

/// Address of the kubelet's health endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthAddress {
    authority: String,
    path: String,
}

/// An address that is no health endpoint.
#[derive(Debug, thiserror::Error)]
#[error("invalid address {0:?}: expected http://HOST:PORT/PATH")]
pub struct BadAddress(String);

impl std::str::FromStr for HealthAddress {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let bad = || BadAddress(text.to_owned());
        let rest = text.strip_prefix("http://").ok_or_else(bad)?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = authority.rsplit_once(':').ok_or_else(bad)?;
        let is_good = !host.is_empty()
            && port.parse::<u16>().is_ok()
            && text.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_good {
            return Err(bad());
        }
        Ok(Self { authority: authority.to_owned(), path: format!("/{path}") })
    }
}

/// Checks the kubelet repeatedly; the metric counts consecutive failures.
pub async fn watch(address: HealthAddress, metrics: Metrics) {
    let mut failures = 0_u32;
    metrics.kubelet(failures);
    loop {
        failures = match check(&address).await {
            Ok(()) => 0,
            Err(error) => {
                let failures = failures.saturating_add(1);
                warn!(
                    "Got an error from auxiliary tools: kubelet health check has failed {failures} \
                     times: {error}"
                );
                failures
            }
        };
        metrics.kubelet(failures);
        sleep(INTERVAL).await;
    }
}

/// Checks the kubelet once.
async fn check(address: &HealthAddress) -> io::Result<()> {
    let timed_out = || io::Error::new(io::ErrorKind::TimedOut, "no answer in 30 seconds");
    timeout(TIMEOUT, request(address)).await.map_err(|_| timed_out())?
}

async fn request(address: &HealthAddress) -> io::Result<()> {
    let mut stream = TcpStream::connect(&address.authority).await?;
    let HealthAddress { authority, path } = address;
    let head = format!("GET {path} HTTP/1.0\r\nhost: {authority}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(MAX_RESPONSE).read_to_end(&mut answer).await?;
    let text = String::from_utf8_lossy(&answer);
    let is_found = text.lines().next().is_some_and(|line| line.contains(" 200"));
    let is_healthy = text.split_once("\r\n\r\n").is_some_and(|(_, body)| body.trim() == "ok");
    if is_found && is_healthy {
        return Ok(());
    }
    let line = text.lines().next().unwrap_or("nothing").to_owned();
    Err(io::Error::other(format!("Kubelet Healthz Endpoint returned: {line}")))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn only_http_addresses_with_a_port_are_valid() {
        let cases = [
            ("http://localhost:10248/healthz", true),
            ("http://[::1]:10248/healthz", true),
            ("http://localhost:10248", true),
            ("https://localhost:10248/healthz", false),
            ("http://localhost/healthz", false),
            ("http://a:1/x\r\ny", false),
            ("", false),
        ];
        for (text, good) in cases {
            assert_eq!(text.parse::<HealthAddress>().is_ok(), good, "{text}");
        }
    }

    // covers: C10
    #[tokio::test]
    async fn only_ok_is_healthy() {
        let cases = [
            ("HTTP/1.1 200 OK\r\n\r\nok", true),
            ("HTTP/1.1 200 OK\r\n\r\nill", false),
            ("HTTP/1.1 500 No\r\n\r\nok", false),
            ("", false),
        ];
        for (answer, healthy) in cases {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = format!("http://{}/healthz", listener.local_addr().unwrap());
            let serving = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 1024];
                assert!(stream.read(&mut request).await.unwrap() > 0);
                stream.write_all(answer.as_bytes()).await.unwrap();
            };
            let address = address.parse().unwrap();
            let (result, ()) = tokio::join!(check(&address), serving);
            assert_eq!(result.is_ok(), healthy, "{answer:?}");
        }
    }
}
