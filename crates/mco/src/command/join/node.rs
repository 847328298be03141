//! Waits until the kubelet has registered its node, and names the certificate request that waits for
//! an approval.

use std::{path::Path, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::api::{certificates::v1::CertificateSigningRequest as Request, core::v1::Node};
use kube::{Api, Client, api::ListParams};
use mco_cluster::client;
use mco_core::served_config::KUBECONFIG;
use mco_host::Root;
use tokio::time::{Instant, sleep};

use crate::print;

/// Credentials of the kubelet, which refer to its certificate even before that is issued.
const OWN_KUBECONFIG: &str = "/var/lib/kubelet/kubeconfig";
const CERTIFICATE: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";
const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The state of the registration.
#[derive(Debug, PartialEq, Eq)]
enum Registration {
    /// The kubelet has requested nothing yet.
    NotRequested,
    /// The request of this name waits for an approval.
    Pending(String),
    /// The request of this name was denied.
    Denied(String),
    /// The request of this name was approved.
    Approved(String),
    /// The certificate requests cannot be listed.
    Unknown(String),
    /// The kubelet has its certificate, but no node yet.
    Issued,
    /// The node exists.
    Registered,
}

impl Registration {
    /// Returns true if a state that has lasted for `elapsed` is to be reported. A request that waits for
    /// its approval is not: the cluster shows it.
    fn is_overdue(&self, elapsed: Duration, limit: Duration) -> bool {
        match self {
            Self::Denied(_) => true,
            Self::NotRequested | Self::Unknown(_) | Self::Issued | Self::Approved(_) => {
                elapsed >= limit
            }
            Self::Pending(_) | Self::Registered => false,
        }
    }

    fn text(&self, node: &str) -> String {
        let approve = format!("run `mco node approve {node}` where you administer the cluster");
        match self {
            Self::NotRequested => "waiting for the kubelet to request its certificate".to_owned(),
            Self::Pending(name) => {
                format!("certificate request {name} of {node} waits for an approval: {approve}")
            }
            Self::Denied(name) => format!(
                "certificate request {name} of {node} was denied: delete it, and the kubelet \
                 requests another one"
            ),
            Self::Approved(name) => format!("certificate request {name} was approved"),
            Self::Unknown(error) => format!(
                "waiting for the node {node}; its certificate request may wait for an approval: \
                 {approve} ({error})"
            ),
            Self::Issued => format!("the kubelet has its certificate and registers {node}"),
            Self::Registered => format!(
                "{node} is a node; its serving certificate may wait for an approval, too: {approve}"
            ),
        }
    }
}

/// The end of a wait for the node.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Waited {
    /// The node exists.
    Registered,
    /// The node does not exist, for this reason.
    Overdue(String),
}

/// Waits until the node exists; prints each change. With a limit, the wait ends when one state that
/// needs the administrator of the machine has lasted for so long.
pub(super) async fn wait(
    root: &Root,
    node: &str,
    limit: Option<Duration>,
) -> anyhow::Result<Waited> {
    let mut shown = None;
    let mut since = Instant::now();
    loop {
        let now = look(root, node).await?;
        if shown.as_ref() != Some(&now) {
            print::note(&now.text(node));
            since = Instant::now();
        }
        if now == Registration::Registered {
            return Ok(Waited::Registered);
        }
        if limit.is_some_and(|limit| now.is_overdue(since.elapsed(), limit)) {
            return Ok(Waited::Overdue(now.text(node)));
        }
        shown = Some(now);
        sleep(POLL_INTERVAL).await;
    }
}

async fn look(root: &Root, node: &str) -> anyhow::Result<Registration> {
    if root.exists(CERTIFICATE)? {
        let Ok(client) = client::connect(Some(Path::new(OWN_KUBECONFIG))).await else {
            return Ok(Registration::Issued);
        };
        let found = Api::<Node>::all(client).get_opt(node).await;
        let exists = matches!(found, Ok(Some(_)));
        return Ok(if exists { Registration::Registered } else { Registration::Issued });
    }
    let requests = match client::connect(Some(Path::new(KUBECONFIG))).await {
        Ok(client) => list(client).await.map_err(|error| mco_cluster::report::chain(&error)),
        Err(error) => Err(mco_cluster::report::chain(&error)),
    };
    Ok(match requests {
        Ok(requests) => newest(&requests, node),
        Err(error) => Registration::Unknown(error),
    })
}

async fn list(client: Client) -> Result<Vec<Request>, kube::Error> {
    let of_kubelets = ListParams::default().fields(&format!("spec.signerName={SIGNER}"));
    Ok(Api::<Request>::all(client).list(&of_kubelets).await?.items)
}

/// Returns the state of the newest request of a node.
fn newest(requests: &[Request], node: &str) -> Registration {
    let of_node = requests.iter().filter(|request| is_of(&request.spec.request.0, node));
    let newest = of_node
        .max_by_key(|request| request.metadata.creation_timestamp.as_ref().map(|time| time.0));
    let Some(newest) = newest else { return Registration::NotRequested };
    let name = newest.metadata.name.clone().unwrap_or_default();
    let conditions = newest.status.as_ref().and_then(|status| status.conditions.as_ref());
    let has = |kind: &str| conditions.into_iter().flatten().any(|found| found.type_ == kind);
    match (has("Denied"), has("Approved")) {
        (true, _) => Registration::Denied(name),
        (false, true) => Registration::Approved(name),
        (false, false) => Registration::Pending(name),
    }
}

/// Returns true if a request in PEM is for a node: its subject contains the name as text, after a
/// byte with the length of the text.
fn is_of(pem: &[u8], node: &str) -> bool {
    let text = String::from_utf8_lossy(pem);
    let body: String =
        text.lines().filter(|line| !line.starts_with("-----")).map(str::trim).collect();
    let name = format!("system:node:{node}");
    let Ok(der) = STANDARD.decode(body) else { return false };
    let length = u8::try_from(name.len()).unwrap_or_default();
    let wanted: Vec<u8> = std::iter::once(length).chain(name.bytes()).collect();
    der.windows(wanted.len()).any(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use serde_json::json;

    use super::*;

    fn request(name: &str, subject: &str, age: u8, condition: &str) -> Request {
        let conditions: Vec<_> = (!condition.is_empty())
            .then(|| json!({"type": condition, "status": "True"}))
            .into_iter()
            .collect();
        let mut request: Request = serde_json::from_value(json!({
            "metadata": {"name": name, "creationTimestamp": format!("2026-01-01T00:00:{age:02}Z")},
            "spec": {"request": "", "signerName": SIGNER},
            "status": {"conditions": conditions},
        }))
        .unwrap();
        let mut der = vec![0x30, 0x0c, u8::try_from(subject.len()).unwrap()];
        der.extend(subject.bytes());
        der.push(0x30);
        let pem = format!(
            "-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n",
            STANDARD.encode(der)
        );
        request.spec.request = ByteString(pem.into_bytes());
        request
    }

    #[test]
    fn a_state_that_the_cluster_does_not_show_is_overdue() {
        let (limit, name) = (Duration::from_mins(10), || "c".to_owned());
        let rows = [
            (Registration::NotRequested, 599, false),
            (Registration::NotRequested, 600, true),
            (Registration::Unknown(name()), 600, true),
            (Registration::Approved(name()), 600, true),
            (Registration::Issued, 600, true),
            (Registration::Denied(name()), 0, true),
            (Registration::Pending(name()), 9_000, false),
            (Registration::Registered, 9_000, false),
        ];
        for (state, elapsed, want) in rows {
            assert_eq!(state.is_overdue(Duration::from_secs(elapsed), limit), want, "{state:?}");
        }
    }

    #[test]
    fn the_newest_request_of_the_node_counts() {
        let other = request("a", "system:node:m44", 9, "");
        assert_eq!(newest(std::slice::from_ref(&other), "m4"), Registration::NotRequested);
        let old = request("b", "system:node:m4", 1, "Denied");
        let rows = [
            ("", Registration::Pending("c".to_owned())),
            ("Approved", Registration::Approved("c".to_owned())),
            ("Denied", Registration::Denied("c".to_owned())),
        ];
        for (condition, want) in rows {
            let new = request("c", "system:node:m4", 2, condition);
            assert_eq!(newest(&[new, old.clone(), other.clone()], "m4"), want);
        }
        let text = Registration::Pending("c".to_owned()).text("m4");
        assert!(text.contains("certificate request c of m4"), "{text}");
        assert!(text.contains("mco node approve m4"), "{text}");
    }
}
