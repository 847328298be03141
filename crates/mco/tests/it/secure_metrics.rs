//! The metrics over HTTPS: versions and cipher suites of TLS are those of the flags, which the operator
//! sets from the TLS profile of the cluster.

use std::{io, net::TcpStream, path::Path, sync::Arc};

use kube::Client;
use mco_testkit::{
    PATIENCE,
    api::{ApiServer as _, Embedded, Process, command, wait},
};
use rustls::{
    AlertDescription, ClientConfig, ClientConnection, Error, RootCertStore, SupportedCipherSuite,
    crypto::ring::{self, cipher_suite as suite},
};
use serde_json::{Value, json};

use crate::processes::stop;

/// Returns the address of the metrics over HTTPS, once the process has logged it.
pub(crate) fn secure_address(process: &Process) -> Option<String> {
    let log = process.log();
    let mut lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let line = lines.find(|line| line["message"] == "Serving metrics over HTTPS")?;
    line["address"].as_str().map(str::to_owned)
}

/// Returns the text of a page, or the status code of a refusal.
pub(crate) async fn get(address: &str, path: &str, token: Option<&str>) -> Result<String, u16> {
    let mut config = kube::Config::new(format!("https://{address}").parse().unwrap());
    config.accept_invalid_certs = true;
    config.auth_info = serde_json::from_value(json!({"token": token})).unwrap();
    let client = Client::try_from(config).unwrap();
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    match client.request_text(request).await {
        Ok(text) => Ok(text),
        Err(kube::Error::Api(status)) => Err(status.code),
        Err(error) => panic!("{path}: {error}"),
    }
}

/// Returns the error that ends a handshake with this suite alone. A client that trusts no certificate
/// refuses that of the server, after both have agreed on version and suite.
fn handshake(address: &str, suite: SupportedCipherSuite) -> Error {
    let mut provider = ring::default_provider();
    provider.cipher_suites = vec![suite];
    let config = ClientConfig::builder_with_provider(Arc::new(provider));
    let config = config.with_protocol_versions(&[suite.version()]).unwrap();
    let config = config.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    let name = "localhost".try_into().unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let failed = client.complete_io(&mut stream).unwrap_err();
    failed.downcast::<Error>().unwrap_or_else(|error: io::Error| panic!("{suite:?}: {error}"))
}

/// Flags, and the error with each suite that the server refuses.
type Row<'a> = (&'a [&'a str], &'a [(SupportedCipherSuite, Error)]);

// covers: O44
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_metrics_have_the_versions_and_suites_of_the_flags() {
    let (old, new) =
        (suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, suite::TLS13_AES_128_GCM_SHA256);
    let other = suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384;
    let refused_version = Error::AlertReceived(AlertDescription::ProtocolVersion);
    let refused_suite = Error::AlertReceived(AlertDescription::HandshakeFailure);
    let rows: [Row<'_>; 3] = [
        (&[], &[]),
        (
            &["--tls-min-version=VersionTLS13"],
            &[(old, refused_version.clone()), (other, refused_version)],
        ),
        (&["--tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"], &[(old, refused_suite)]),
    ];
    let folder = tempfile::tempdir().unwrap();
    let api = Embedded::start(Path::new(env!("CARGO_BIN_EXE_mco")), folder.path()).unwrap();
    for (row, (flags, refused)) in rows.into_iter().enumerate() {
        for process in ["operator", "controller"] {
            let mut start = command(env!("CARGO_BIN_EXE_mco"));
            start.args([process, "start", "--metrics-listen-address", "127.0.0.1:0"]);
            start.args(["--secure-metrics-listen-address", "127.0.0.1:0"]).args(flags);
            start.arg("--kubeconfig").arg(api.kubeconfig()).env_remove("RELEASE_VERSION");
            let log = folder.path().join(format!("{process}-{row}.log"));
            let running = Process::start(process, &mut start, &log).unwrap();
            let address = wait("the address of the metrics", PATIENCE, || secure_address(&running));
            let address = address.unwrap();
            for suite in [old, other, new] {
                let ended = handshake(&address, suite);
                match refused.iter().find(|(it, _)| *it == suite) {
                    Some((_, expected)) => assert_eq!(ended, *expected, "{flags:?} {suite:?}"),
                    None => assert!(
                        matches!(ended, Error::InvalidCertificate(_)),
                        "{flags:?} {suite:?}: {ended}"
                    ),
                }
            }
            assert_eq!(get(&address, "/livez", None).await.unwrap(), "ok");
            assert!(stop(running).success());
        }
    }
}
