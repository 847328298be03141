//! Tests of fetches over real sockets: the request, redirects, and errors.

use mco_api::{ControllerConfig, MachineConfig, controller_config::ProxyStatus, label};
use mco_cluster::report::chain;
use mco_controller::remote::Fetcher;
use mco_core::render::{
    self, BaseImages,
    remote::{MAX_CONTENTS, Source, address::AddressPolicy},
};
use mco_testkit::pki::Authority;
use serde_json::json;

use crate::web::{Web, ok, redirect_to, status};

/// Returns the source of a config that has a file with these contents.
fn source(contents: &serde_json::Value) -> Source {
    let config: MachineConfig = serde_json::from_value(json!({
        "metadata": {"name": "50-a", "labels": {label::ROLE: "worker"}},
        "spec": {"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": [
            {"path": "/etc/a", "contents": contents},
        ]}}},
    }))
    .unwrap();
    let draft = render::draft(&"worker".parse().unwrap(), &[&config], &BaseImages::default());
    draft.unwrap().remote().remove(0)
}

async fn fetch(
    cluster: &ControllerConfig,
    reach: AddressPolicy,
    source: &Source,
) -> Result<String, String> {
    let fetched = Fetcher::for_cluster(cluster, reach).await.fetch(source).await;
    fetched.map(|bytes| String::from_utf8(bytes).unwrap()).map_err(|error| chain(&error))
}

async fn get(url: &str) -> Result<String, String> {
    fetch(&ControllerConfig::default(), AddressPolicy::AllowLocal, &source(&json!({"source": url})))
        .await
}

#[tokio::test]
async fn headers_of_the_config_are_sent_to_no_other_host() {
    let other = Web::start(|_| ok(b"there")).await;
    let port = other.address.port();
    let web = Web::start(move |head| match head.split(' ').nth(1) {
        Some("/on") => redirect_to("/here"),
        Some("/away") => redirect_to(&format!("http://localhost:{port}/x")),
        _ => ok(b"here"),
    })
    .await;
    let ask = |path: &str| {
        source(&json!({
            "source": format!("http://user:pass@{}{path}", web.address),
            "httpHeaders": [{"name": "X-Token", "value": "t0ken"}, {"name": "Accept", "value": "text/plain"}],
        }))
    };
    let cluster = ControllerConfig::default();
    assert_eq!(fetch(&cluster, AddressPolicy::AllowLocal, &ask("/on")).await.unwrap(), "here");
    for head in web.asked() {
        assert!(head.contains("x-token: t0ken\r\n"), "{head}");
        assert!(head.contains("accept: text/plain\r\n") && !head.contains("*/*"), "{head}");
        assert!(head.contains("accept-encoding: identity\r\n"), "{head}");
        assert!(head.contains(&format!("host: {}\r\n", web.address)), "{head}");
        // base64 of "user:pass"
        assert!(head.contains("authorization: Basic dXNlcjpwYXNz\r\n"), "{head}");
    }
    assert_eq!(fetch(&cluster, AddressPolicy::AllowLocal, &ask("/away")).await.unwrap(), "there");
    let head = other.asked().remove(0);
    assert!(!head.contains("t0ken") && !head.contains("authorization"), "{head}");
}

#[tokio::test]
async fn failed_fetches_are_explained() {
    let large = vec![b'x'; MAX_CONTENTS + 1];
    let web = Web::start(move |head| match head.split(' ').nth(1) {
        Some("/404") => status("404 Not Found"),
        Some("/206") => status("206 Partial Content"),
        Some("/loop") => redirect_to("/loop"),
        Some("/nowhere") => redirect_to("ftp://h.test/"),
        Some("/large") => ok(&large),
        Some("/endless") => {
            let mut answer = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
            answer.extend_from_slice(&large);
            answer
        }
        Some("/packed") => {
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx".to_vec()
        }
        Some("/short") => b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx".to_vec(),
        _ => b"hello".to_vec(),
    })
    .await;
    let cases = [
        ("/404", "the server responded 404 Not Found"),
        ("/206", "the server responded 206 Partial Content"),
        ("/loop", "more than 5 redirects"),
        ("/nowhere", "the server redirected to an invalid location"),
        ("/large", "the contents exceed 1048576 bytes"),
        ("/endless", "the contents exceed 1048576 bytes"),
        ("/packed", "the server sent the contents in encoding \"gzip\""),
        ("/short", "failed to read the response body"),
        ("/nonsense", "the connection broke or the response is not HTTP"),
    ];
    for (path, expected) in cases {
        let said = get(&format!("http://{}{path}", web.address)).await.unwrap_err();
        assert!(said.starts_with(expected), "{path}: {said}");
    }
    let gone = web.address;
    web.close().await;
    let said = get(&format!("http://{gone}/")).await.unwrap_err();
    assert!(said.starts_with(&format!("failed to connect to {gone}")), "{said}");
}

#[tokio::test]
async fn the_controllers_own_machine_is_refused_unless_allowed() {
    let web = Web::start(|_| ok(b"secret")).await;
    let port = web.address.port();
    let cluster = ControllerConfig::default();
    let urls = [
        format!("http://127.0.0.1:{port}/"),
        format!("http://localhost:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        "http://169.254.169.254/latest/meta-data".to_owned(),
        "http://[fe80::1]/".to_owned(),
        "http://168.63.129.16/machine".to_owned(),
        "http://10.96.0.1/".to_owned(),
    ];
    for url in urls {
        let asked = source(&json!({ "source": url }));
        let said = fetch(&cluster, AddressPolicy::RemoteOnly, &asked).await.unwrap_err();
        assert!(said.contains("is not public"), "{url}: {said}");
    }
    // Nor through a proxy, which may be on the same link.
    let proxied = cluster_with_proxy(&web, "");
    let asked = source(&json!({"source": "http://169.254.169.254/"}));
    let said = fetch(&proxied, AddressPolicy::RemoteOnly, &asked).await.unwrap_err();
    assert!(said.starts_with("169.254.169.254 is not public"), "{said}");
    assert_eq!(web.asked(), Vec::<String>::new());
}

fn cluster_with_proxy(proxy: &Web, no_proxy: &str) -> ControllerConfig {
    let url = format!("http://who:what@{}", proxy.address);
    let mut cluster = ControllerConfig::default();
    cluster.spec.proxy = Some(ProxyStatus {
        http_proxy: url.clone(),
        https_proxy: url,
        no_proxy: no_proxy.to_owned(),
    });
    cluster
}

#[tokio::test]
async fn the_clusters_proxy_is_used_for_external_hosts() {
    let proxy = Web::start(|_| ok(b"by proxy")).await;
    let asked = source(&json!({"source": "http://files.test/a?b"}));
    let cluster = cluster_with_proxy(&proxy, "");
    assert_eq!(fetch(&cluster, AddressPolicy::RemoteOnly, &asked).await.unwrap(), "by proxy");
    let head = proxy.asked().remove(0);
    assert!(head.starts_with("GET http://files.test/a?b HTTP/1.1\r\n"), "{head}");
    // base64 of "who:what"
    assert!(head.contains("proxy-authorization: Basic d2hvOndoYXQ=\r\n"), "{head}");
    // Hosts in noProxy are resolved directly. The name is longer than DNS allows, so no lookup is
    // needed.
    let cluster = cluster_with_proxy(&proxy, ".test");
    let host = format!("{}.test", "x".repeat(64));
    let asked = source(&json!({"source": format!("http://{host}/a")}));
    let said = fetch(&cluster, AddressPolicy::RemoteOnly, &asked).await.unwrap_err();
    assert!(said.starts_with(&format!("failed to resolve {host}:80")), "{said}");
    assert_eq!(proxy.asked().len(), 1);
}

#[tokio::test]
async fn a_server_is_trusted_by_the_clusters_bundle_and_reached_through_a_tunnel() {
    let authority = Authority::new("clusters-own").unwrap();
    let pair = authority.server("files.test", &["files.test".to_owned()]).unwrap();
    let web = Web::secure(&pair, |head| match head.split(' ').nth(1) {
        Some("/down") => redirect_to("http://files.test/a"),
        _ => ok(b"secured"),
    })
    .await;
    let proxy = Web::proxy(web.address).await;
    let mut cluster = cluster_with_proxy(&proxy, "");
    let asked = source(&json!({"source": "https://files.test/a"}));

    let said = fetch(&cluster, AddressPolicy::RemoteOnly, &asked).await.unwrap_err();
    assert!(said.starts_with("TLS handshake with files.test:443 failed"), "{said}");

    let bundle = authority.pair().certificate.clone().into_bytes();
    cluster.spec.additional_trust_bundle = Some(bundle.into());
    assert_eq!(fetch(&cluster, AddressPolicy::RemoteOnly, &asked).await.unwrap(), "secured");
    let head = proxy.asked().remove(0);
    assert!(head.starts_with("CONNECT files.test:443 HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("Proxy-Authorization: Basic d2hvOndoYXQ=\r\n"), "{head}");

    // The certificate is not valid for another host.
    let other = source(&json!({"source": "https://other.test/a"}));
    let said = fetch(&cluster, AddressPolicy::RemoteOnly, &other).await.unwrap_err();
    assert!(said.starts_with("TLS handshake with other.test:443 failed"), "{said}");
    let down = source(&json!({"source": "https://files.test/down"}));
    let said = fetch(&cluster, AddressPolicy::RemoteOnly, &down).await.unwrap_err();
    assert_eq!(said, "the server redirected from HTTPS to plain HTTP");
}
