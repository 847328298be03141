//! Tests of new nodes: the labels of their pool, and the approval of their certificates.

use http::HeaderValue;
use k8s_openapi::{
    ByteString,
    api::{
        certificates::v1::CertificateSigningRequest,
        core::v1::{Namespace, Node, Secret},
        rbac::v1::ClusterRoleBinding,
    },
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::{SignedDuration, Timestamp},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, PostParams},
};
use mco_api::{
    ControllerConfig, annotation,
    join_token::{Binding, Join, JoinToken, NAMESPACE},
    label,
};
use mco_cluster::apply;
use mco_core::join::{
    StoredToken,
    approval::{CLIENT_SIGNER, SERVING_SIGNER, bootstrapper},
    token::secret_name,
};
use mco_testkit::objects;
use rcgen::{CertificateParams, DnType, KeyPair, SanType};
use serde_json::{Value, json};

use crate::{
    fleet::{Fleet, INFRA, awaited},
    server::{Server, on_both},
};

on_both! {
    a_new_node_joins_the_pool_that_it_asks_for,
    the_pool_of_a_token_wins_and_is_the_only_way_to_the_control_plane,
}

const WORKER: &str = "node-role.kubernetes.io/worker";
const MASTER: &str = "node-role.kubernetes.io/master";

fn asking(name: &str, pool: &str) -> Node {
    let node = json!({"metadata": {"name": name, "labels": {(label::NODE_POOL): pool}},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}});
    serde_json::from_value(node).unwrap()
}

/// Stores a token of a pool that a machine used which becomes `node`.
async fn store_token(client: &Client, id: &str, pool: &str, node: &str, approved: &str) {
    let namespace: Namespace =
        serde_json::from_value(json!({"metadata": {"name": NAMESPACE}})).unwrap();
    apply::create(&mco_cluster::Api::all(client.clone()), &namespace).await.unwrap();
    let now = Timestamp::now();
    let token = JoinToken {
        pool: pool.to_owned(),
        secret_sha256: "0".repeat(64),
        created: Time(now),
        expires: Time(now + SignedDuration::from_hours(1)),
        uses: 1,
        binding: Binding::default(),
        description: String::new(),
    };
    let join = Join {
        id: "1".to_owned(),
        address: "10.0.0.9".to_owned(),
        node: node.to_owned(),
        machine_id: String::new(),
        first: Time(now),
        last: Time(now),
        approved: approved.to_owned(),
    };
    let stored = StoredToken { id: id.to_owned(), token, joins: vec![join] };
    let api = Api::<Secret>::namespaced(client.clone(), NAMESPACE);
    drop(api.delete(&secret_name(id), &DeleteParams::default()).await);
    api.create(&PostParams::default(), &stored.secret()).await.unwrap();
}

async fn a_new_node_joins_the_pool_that_it_asks_for(server: Server) {
    let fleet = Fleet::on(server, 1).await;
    fleet.create(&objects::pool("infra")).await;
    fleet.create(&asking("new-0", "worker")).await;
    fleet.create(&asking("new-1", "infra")).await;
    fleet.create(&asking("new-2", "gone")).await;
    for (node, key) in [("new-0", WORKER), ("new-1", INFRA)] {
        let found =
            fleet.wait::<Node>(node, "has its role", |node| node.labels().contains_key(key));
        let marker = annotation::CUSTOM_POOL_LABELS_APPLIED;
        assert!(marker.is_present(found.await.annotations()));
    }
    let is_about = |name: &'static str| {
        move |event: &k8s_openapi::api::events::v1::Event| {
            let about = event.regarding.as_ref().and_then(|object| object.name.as_deref());
            about == Some(name) && event.reason.as_deref() == Some("NoPool")
        }
    };
    let text = fleet.event_that("new-2 has no pool", is_about("new-2")).await;
    assert_eq!(text, "Node new-2 belongs to no pool: pool gone does not exist");
    // The pool is created later.
    fleet.create(&objects::pool("gone")).await;
    let key = "node-role.kubernetes.io/gone";
    fleet.wait::<Node>("new-2", "has its role", |node| node.labels().contains_key(key)).await;

    // An administrator who removes a node from its pool wins.
    fleet.patch::<Node>("new-1", json!({"metadata": {"labels": {INFRA: null, "a": "b"}}})).await;
    fleet.create(&asking("new-3", "infra")).await;
    fleet.wait::<Node>("new-3", "has its role", |node| node.labels().contains_key(INFRA)).await;
    let node = fleet.all::<Node>().get("new-1").await.unwrap();
    assert!(!node.labels().contains_key(INFRA), "{:?}", node.labels());
    fleet.stop().await;
}

async fn the_pool_of_a_token_wins_and_is_the_only_way_to_the_control_plane(server: Server) {
    let fleet = Fleet::on(server, 1).await;
    fleet.create(&objects::pool("master")).await;
    store_token(&fleet.client, "tokenaaa", "master", "new-5", "new-5").await;
    fleet.create(&asking("new-4", "master")).await;
    let text = fleet.event("NoPool").await;
    assert!(text.contains("mco token create --pool master"), "{text}");
    fleet.create(&asking("new-5", "worker")).await;
    let node = fleet.wait::<Node>("new-5", "has a role", |node| node.labels().contains_key(MASTER));
    assert!(!node.await.labels().contains_key(WORKER));
    // A join that is recorded after the node exists.
    fleet.create(&asking("new-6", "")).await;
    store_token(&fleet.client, "tokenbbb", "worker", "new-6", "new-6").await;
    fleet.wait::<Node>("new-6", "has a role", |node| node.labels().contains_key(WORKER)).await;
    assert!(!fleet.all::<Node>().get("new-4").await.unwrap().labels().contains_key(MASTER));
    fleet.stop().await;
}

/// Returns a client that acts as another user.
async fn acting(server: &Server, user: &str, group: &str) -> Client {
    let (user, group) =
        (HeaderValue::from_str(user).unwrap(), HeaderValue::from_str(group).unwrap());
    let act = move |mut request: http::Request<_>| {
        request.headers_mut().insert("impersonate-user", user.clone());
        request.headers_mut().append("impersonate-group", group.clone());
        request.headers_mut().append("impersonate-group", "system:authenticated".parse().unwrap());
        request
    };
    server.altered(act).await
}

async fn request(client: &Client, name: &str, node: &str, signer: &str, addresses: &[&str]) {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, format!("system:node:{node}"));
    params.subject_alt_names =
        addresses.iter().map(|address| SanType::IpAddress(address.parse().unwrap())).collect();
    let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    let usage = if signer == SERVING_SIGNER { "server auth" } else { "client auth" };
    let object = json!({"metadata": {"name": name}, "spec": {
        "request": ByteString(pem.into_bytes()), "signerName": signer,
        "usages": ["digital signature", usage]}});
    let object: CertificateSigningRequest = serde_json::from_value(object).unwrap();
    let api = Api::<CertificateSigningRequest>::all(client.clone());
    api.create(&PostParams::default(), &object).await.unwrap();
}

fn is_approved(request: &CertificateSigningRequest) -> bool {
    let conditions = request.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Approved")
}

async fn bind_bootstrapper(client: &Client) {
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "system-bootstrap-node-bootstrapper"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": "system:node-bootstrapper"},
        "subjects": [{"kind": "ServiceAccount", "name": "node-bootstrapper",
            "namespace": label::NAMESPACE}],
    }))
    .unwrap();
    apply::create(&mco_cluster::Api::all(client.clone()), &binding).await.unwrap();
    let requests = Api::<CertificateSigningRequest>::all(client.clone());
    for request in requests.list(&ListParams::default()).await.unwrap() {
        requests.delete(&request.name_any(), &DeleteParams::default()).await.unwrap();
    }
}

/// Waits for the event about a request that stays pending.
async fn pending(fleet: &Fleet, name: &'static str) -> String {
    let is_it = move |event: &k8s_openapi::api::events::v1::Event| {
        let about = event.regarding.as_ref().and_then(|object| object.name.as_deref());
        about == Some(name) && event.reason.as_deref() == Some("JoinNotApproved")
    };
    let text = fleet.event_that(name, is_it).await;
    let found = fleet.all::<CertificateSigningRequest>().get(name).await.unwrap();
    assert!(!is_approved(&found) && found.status.unwrap_or_default().conditions.is_none());
    text
}

fn annotated(key: &str, value: &str) -> Value {
    json!({"metadata": {"annotations": {key: value}}})
}

/// Only the real API server has certificate requests.
#[tokio::test]
async fn certificates_of_machines_that_joined_are_approved_and_no_others() {
    let Some(server) = Server::real().await else { return };
    let fleet = Fleet::on(server.clone(), 1).await;
    let client = fleet.client.clone();
    bind_bootstrapper(&client).await;
    let group = format!("system:serviceaccounts:{}", label::NAMESPACE);
    let bootstrap = acting(&server, &bootstrapper(label::NAMESPACE), &group).await;
    let requests = Api::<CertificateSigningRequest>::all(client.clone());
    let approved =
        async |name: &str| awaited(requests.clone(), name, "is approved", is_approved).await;
    store_token(&client, "tokenccc", "worker", "join-1", "").await;
    request(&bootstrap, "csr-1", "join-1", CLIENT_SIGNER, &[]).await;

    // The approver is off until the administrator turns it on; it does not need a restart.
    fleet
        .patch::<ControllerConfig>(
            label::CONTROLLER_CONFIG,
            annotated(annotation::JOIN_TOKENS.name(), "required"),
        )
        .await;
    assert!(!is_approved(&requests.get("csr-1").await.unwrap()));
    fleet
        .patch::<ControllerConfig>(
            label::CONTROLLER_CONFIG,
            annotated(annotation::APPROVE_JOINS.name(), "true"),
        )
        .await;
    let found = approved("csr-1").await;
    let conditions = found.status.unwrap().conditions.unwrap();
    let message = conditions[0].message.clone().unwrap();
    assert_eq!(
        message,
        "Approved for node join-1, which joined pool worker with join token tokenccc"
    );
    let secrets = Api::<Secret>::namespaced(client.clone(), NAMESPACE);
    let stored = StoredToken::read(&secrets.get(&secret_name("tokenccc")).await.unwrap()).unwrap();
    assert_eq!(stored.joins[0].approved, "join-1");

    // The join is used up, and a machine without one waits.
    request(&bootstrap, "csr-2", "join-2", CLIENT_SIGNER, &[]).await;
    let text = pending(&fleet, "csr-2").await;
    assert!(text.contains("waits to become node join-2"), "{text}");
    // The name of a node that exists is not given away.
    request(&bootstrap, "csr-3", "n0", CLIENT_SIGNER, &[]).await;
    let text = pending(&fleet, "csr-3").await;
    assert!(text.contains("node n0 exists"), "{text}");
    // A request of the administrator is not one of a machine.
    request(&client, "csr-4", "join-1", CLIENT_SIGNER, &[]).await;
    let text = pending(&fleet, "csr-4").await;
    assert!(text.contains("requested by admin"), "{text}");
    // A token that is used later lets the waiting machine join.
    store_token(&client, "tokenddd", "worker", "join-2", "").await;
    approved("csr-2").await;

    // A serving certificate for the node's own address, and for another one.
    fleet.create(&asking("join-1", "worker")).await;
    let status = json!({"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]});
    fleet.patch_status::<Node>("join-1", status).await;
    let node = acting(&server, "system:node:join-1", "system:nodes").await;
    request(&node, "csr-5", "join-1", SERVING_SIGNER, &["10.0.0.9"]).await;
    approved("csr-5").await;
    request(&node, "csr-6", "join-1", SERVING_SIGNER, &["10.0.0.1"]).await;
    let text = pending(&fleet, "csr-6").await;
    assert!(text.contains("10.0.0.1 is neither a name nor an address of the node"), "{text}");
    fleet.stop().await;
}
