//! Reads certificate requests of kubelets, checks and approves them; for the controller and for
//! `mco node approve`.
//!
//! observe (request, node, join tokens, all fetched anew) -> `mco_core::join::approve` (pure) -> mark
//! the join as used, then approve. If the second write is lost, the next check finds the join marked
//! for the same node.

mod request;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use k8s_openapi::{
    api::{
        certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition},
        core::v1::{Node, Secret},
    },
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use kube::{
    Client, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
};
use mco_api::{
    ControllerConfig, annotation,
    join_token::{self, JOINS_MEMBER},
    label,
};
use mco_cluster::{
    Api, CallError,
    apply::{self, Precondition},
    client::namespace,
    report::chain,
};
use mco_core::join::{
    StoredToken,
    approval::{Evidence, NodeFacts, Verdict, approve as decide},
    token::{joins_member, secret_name},
};
use serde_json::json;
use tracing::warn;

pub use self::request::{ReadRequestError, is_pending, read};

/// Reason of the condition Approved.
const REASON: &str = "MachineConfigJoin";

/// A request with the result of its checks.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The request.
    pub request: CertificateSigningRequest,
    /// The result.
    pub verdict: Verdict,
    /// Version of the token's Secret that the decision was made on.
    token_version: Option<String>,
}

/// Tokens with the versions of their Secrets.
type Tokens = (Vec<StoredToken>, Vec<String>);

/// Checks a request. `None` if it is not the request of a kubelet.
pub async fn check(
    client: &Client,
    request: &CertificateSigningRequest,
    now: Timestamp,
) -> Result<Option<Checked>, CallError> {
    let view = match read(request) {
        Ok(view) => view,
        Err(error) => {
            warn!(
                name = request.name_any(),
                error = chain(&error),
                "Ignored a certificate request"
            );
            return Ok(None);
        }
    };
    let name = view.subject.node().unwrap_or_default();
    let nodes = Api::<Node>::all(client.clone());
    let node = if name.is_empty() { None } else { nodes.get_opt(name).await? };
    let node = node.as_ref().map(node_facts);
    let (tokens, versions) = fetch_tokens(client).await?;
    let evidence = if fetch_required(client).await? {
        Evidence::Joins(&tokens)
    } else {
        Evidence::Optional(&tokens)
    };
    let Some(verdict) = decide(namespace(client), &view, node.as_ref(), evidence, now) else {
        return Ok(None);
    };
    let claimed = verdict.claim.as_ref().map(|claim| &claim.token);
    let index = claimed.and_then(|id| tokens.iter().position(|token| token.id == *id));
    let token_version = index.and_then(|index| versions.get(index).cloned());
    Ok(Some(Checked { request: request.clone(), verdict, token_version }))
}

/// Approves a request: marks the join as used, then approves. A conflict means that the request or
/// the token changed, and is to be checked again.
pub async fn approve(
    client: &Client,
    checked: &Checked,
    message: &str,
    now: Timestamp,
) -> Result<CertificateSigningRequest, CallError> {
    if let (Some(claim), Some(version)) = (&checked.verdict.claim, &checked.token_version) {
        let secrets = Api::<Secret>::namespaced(client.clone(), join_token::NAMESPACE);
        let joins = BASE64_STANDARD.encode(joins_member(&claim.joins));
        let members = json!({"data": {(JOINS_MEMBER): joins}});
        let guard = Precondition::Unchanged(version);
        apply::merge(&secrets, &secret_name(&claim.token), members, guard).await?;
    }
    let request = &checked.request;
    let condition = CertificateSigningRequestCondition {
        type_: "Approved".to_owned(),
        status: "True".to_owned(),
        reason: Some(REASON.to_owned()),
        message: Some(message.to_owned()),
        last_update_time: Some(Time(now)),
        last_transition_time: None,
    };
    let known = request.status.as_ref().and_then(|status| status.conditions.clone());
    let conditions: Vec<_> = known.into_iter().flatten().chain([condition]).collect();
    let patch = json!({
        "metadata": {"resourceVersion": request.resource_version()},
        "status": {"conditions": conditions},
    });
    let api = Api::<CertificateSigningRequest>::all(client.clone());
    let params = PatchParams::default();
    Ok(api.patch_approval(&request.name_any(), &params, &Patch::Merge(patch)).await?)
}

/// Fetches all certificate requests.
pub async fn fetch_requests(client: &Client) -> Result<Vec<CertificateSigningRequest>, CallError> {
    let api = Api::<CertificateSigningRequest>::all(client.clone());
    Ok(api.list(&ListParams::default()).await?.items)
}

/// Fetches all tokens, with the versions of their Secrets.
async fn fetch_tokens(client: &Client) -> Result<Tokens, CallError> {
    let api = Api::<Secret>::namespaced(client.clone(), join_token::NAMESPACE);
    let of_type = format!("type={}", join_token::SECRET_TYPE);
    let secrets = api.list(&ListParams::default().fields(&of_type)).await?;
    let tokens = secrets.items.iter().filter_map(|secret| {
        Some((StoredToken::read(secret).ok()?, secret.resource_version().unwrap_or_default()))
    });
    Ok(tokens.unzip())
}

/// Returns true if new machines need a token.
async fn fetch_required(client: &Client) -> Result<bool, CallError> {
    let api = Api::<ControllerConfig>::all(client.clone());
    let config = api.get_opt(label::CONTROLLER_CONFIG).await?;
    let mode = config.and_then(|config| annotation::JOIN_TOKENS.get(config.annotations()).ok()?);
    Ok(mode.is_some_and(|mode| mode.are_required()))
}

fn node_facts(node: &Node) -> NodeFacts {
    let status = node.status.as_ref();
    let addresses = status.and_then(|status| status.addresses.as_ref()).into_iter().flatten();
    let info = status.and_then(|status| status.node_info.as_ref());
    let conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    let mut ready = conditions.filter(|it| it.type_ == "Ready" && it.status == "True");
    NodeFacts {
        name: node.name_any(),
        machine_id: info.map(|info| info.machine_id.clone()).unwrap_or_default(),
        addresses: addresses.map(|address| address.address.clone()).collect(),
        created: node.metadata.creation_timestamp.as_ref().map(|time| time.0),
        ready: ready.next().is_some(),
    }
}
