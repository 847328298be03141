//! Checks the certificate request of a kubelet.
//!
//! A new machine's kubelet requests a certificate with a credential that all new machines share, so
//! the request proves nothing but that credential. With join tokens the evidence is the join: the
//! machine that got the config with the credential did so with a token, and each join is good for
//! one node. The checks never deny a request: one that does not pass stays pending with its faults,
//! for the administrator to decide.

mod claim;
mod fault;
mod subject;

use k8s_openapi::jiff::Timestamp;
use mco_api::join_token;

pub use self::{
    claim::{CLAIM_LIMIT, Claim, RECOVERY_LIMIT},
    fault::ApprovalFault,
    subject::{Names, Subject},
};
use super::token::StoredToken;

/// Signer of the certificates with which kubelets authenticate to the API server.
pub const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Signer of the certificates with which kubelets serve.
pub const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";

/// Prefix of the user name of a node.
pub const NODE_USER: &str = "system:node:";
/// Group of all nodes.
pub const NODES_GROUP: &str = "system:nodes";

/// A certificate request, as the API server and the request itself describe it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateRequest {
    /// Name of the CertificateSigningRequest.
    pub name: String,
    /// Name of the signer.
    pub signer: String,
    /// User that made the request, as the API server authenticated it.
    pub user: String,
    /// Groups of that user.
    pub groups: Vec<String>,
    /// Requested usages.
    pub usages: Vec<String>,
    /// Requested subject.
    pub subject: Subject,
    /// Requested alternative names.
    pub names: Names,
}

/// A node of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Name of the node.
    pub name: String,
    /// Machine id that the kubelet reported; empty if unknown.
    pub machine_id: String,
    /// Host names and addresses in the status.
    pub addresses: Vec<String>,
    /// Time of its creation.
    pub created: Option<Timestamp>,
    /// True if the node is ready.
    pub ready: bool,
}

/// Evidence that is required for the first certificate of a machine.
#[derive(Clone, Copy, Debug)]
pub enum Evidence<'a> {
    /// The credential of new machines suffices.
    Credential,
    /// The credential suffices, but a join with one of these tokens is used up if it fits.
    Optional(&'a [StoredToken]),
    /// A join with one of these tokens.
    Joins(&'a [StoredToken]),
}

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// The first certificate of a machine's kubelet.
    First,
    /// A new certificate of a node that has one.
    Renewal,
    /// A serving certificate.
    Serving,
}

/// The result of the checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Kind of the request.
    pub kind: RequestKind,
    /// Node that the certificate is for; empty if the subject names none.
    pub node: String,
    /// Reasons not to approve the request; empty if it may be approved.
    pub faults: Vec<ApprovalFault>,
    /// Join that the approval uses up.
    pub claim: Option<Claim>,
}

impl Verdict {
    /// Returns true if the request may be approved.
    #[must_use]
    pub fn is_approved(&self) -> bool {
        self.faults.is_empty()
    }

    /// Returns the faults as one line.
    #[must_use]
    pub fn text(&self) -> String {
        self.faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }
}

/// Returns the user name of the credential that new machines share, in an installation's namespace.
#[must_use]
pub fn bootstrapper(namespace: &str) -> String {
    format!("system:serviceaccount:{namespace}:{}", join_token::BOOTSTRAPPER)
}

/// Checks a request; `None` if it is not the request of a kubelet. `node` is the node of the name in
/// the subject, if it exists, and `namespace` that of the installation.
#[must_use]
pub fn approve(
    namespace: &str,
    request: &CertificateRequest,
    node: Option<&NodeFacts>,
    evidence: Evidence<'_>,
    now: Timestamp,
) -> Option<Verdict> {
    let name = request.subject.node().unwrap_or_default();
    let own = !name.is_empty() && request.user == format!("{NODE_USER}{name}");
    let kind = match (request.signer.as_str(), own) {
        (CLIENT_SIGNER, true) => RequestKind::Renewal,
        (CLIENT_SIGNER, false) => RequestKind::First,
        (SERVING_SIGNER, _) => RequestKind::Serving,
        _ => return None,
    };
    let mut faults = request.subject.faults();
    faults.extend(requestor_fault(namespace, request, kind, name));
    faults.extend(usage_fault(request, kind));
    let mut claim = None;
    match kind {
        RequestKind::First => {
            faults.extend(request.names.any().map(ApprovalFault::Names));
            let found = claim::evidence(name, node, evidence, now);
            match found {
                Ok(found) => claim = found,
                Err(fault) => faults.push(fault),
            }
        }
        RequestKind::Renewal => faults.extend(request.names.any().map(ApprovalFault::Names)),
        RequestKind::Serving => faults.extend(request.names.faults(name, node)),
    }
    Some(Verdict { kind, node: name.to_owned(), faults, claim })
}

fn requestor_fault(
    namespace: &str,
    request: &CertificateRequest,
    kind: RequestKind,
    node: &str,
) -> Option<ApprovalFault> {
    let (user, group) = match kind {
        RequestKind::First => {
            (bootstrapper(namespace), format!("system:serviceaccounts:{namespace}"))
        }
        RequestKind::Renewal | RequestKind::Serving => {
            (format!("{NODE_USER}{node}"), NODES_GROUP.to_owned())
        }
    };
    if request.user != user {
        return Some(ApprovalFault::User { found: request.user.clone(), expected: user });
    }
    (!request.groups.contains(&group)).then_some(ApprovalFault::Group(group))
}

/// Checks the usages: those of the kind, exactly; kubelets with an RSA key add key encipherment.
fn usage_fault(request: &CertificateRequest, kind: RequestKind) -> Option<ApprovalFault> {
    let auth = match kind {
        RequestKind::First | RequestKind::Renewal => "client auth",
        RequestKind::Serving => "server auth",
    };
    let required = ["digital signature", auth];
    let has = |usage: &&str| request.usages.iter().any(|found| found == usage);
    let is_known =
        |usage: &String| required.contains(&usage.as_str()) || usage == "key encipherment";
    let fits = required.iter().all(has) && request.usages.iter().all(is_known);
    (!fits).then(|| ApprovalFault::Usages {
        found: request.usages.join(", "),
        expected: required.join(", "),
    })
}

#[cfg(test)]
mod tests;
