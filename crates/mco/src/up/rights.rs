//! Identities and rights: each component has the service account and the roles of an installation.
//!
//! The roles are written at every start, so that a state directory of an older version gets those of
//! this one.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::{
    Client,
    api::{Patch, PatchParams},
};
use mco_api::label;
use mco_apiserver::{ApiServer, OnDenied};
use mco_cluster::{
    CallError,
    client::{self, Identity},
};
use mco_operator::manifests::{self, ObjectName, Parameters};
use serde_json::{Value, json};
use tracing::error;

use crate::command::install;

/// User of the requests of `mco up` itself: the simulated scheduler and controllers.
const OWN_USER: &str = "mco-up";

/// Group whose members may do everything.
const MASTERS: &str = "system:masters";

/// Group of the kubelets, to which the API server gives the rights of nodes.
const NODES: &str = "system:nodes";

/// Field manager of the objects.
const MANAGER: &str = "mco-up";

const RBAC: &str = "rbac.authorization.k8s.io";

/// Kinds of an installation that grant or limit rights.
const KINDS: [&str; 8] = [
    "Namespace",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
];

/// Number of objects that are written at the same time.
const CONCURRENCY: usize = 16;

/// Maximum number of denied requests that are reported; each is reported once.
const MAX_DENIED: usize = 100;

/// The identities of the cluster.
#[derive(Clone, Debug)]
pub(crate) struct Identities {
    api: ApiServer,
}

impl Identities {
    /// Returns the identities that call `api`.
    pub(crate) fn new(api: &ApiServer) -> Self {
        Self { api: api.clone() }
    }

    /// Returns the client of `mco up` itself.
    pub(crate) fn own(&self) -> Client {
        Client::new(self.api.for_user(OWN_USER, &[MASTERS]), "default")
    }

    /// Returns the client of a component, with its service account.
    pub(crate) fn component(&self, name: &'static str) -> Client {
        with_retries(self.api.for_account(label::NAMESPACE, name), Identity::new(name))
    }

    /// Returns the client of a component of a node, with the service account of its pod.
    pub(crate) fn component_on(&self, name: &'static str, node: &str) -> Client {
        with_retries(self.api.for_account_on(label::NAMESPACE, name, node), Identity::new(name))
    }

    /// Returns the client of a kubelet for a program of its node.
    pub(crate) fn kubelet(&self, program: &'static str, node: &str) -> Client {
        let user = format!("system:node:{node}");
        with_retries(self.api.for_user(&user, &[NODES]), Identity::new(program))
    }
}

/// Returns a client with the deadlines and retries that a process has elsewhere.
fn with_retries(api: ApiServer, identity: Identity) -> Client {
    let options = client::Options { identity, ..client::Options::default() };
    client::over(client::service(Client::new(api, "default")), "default", &options)
}

/// Returns a function that logs each denied request of a component once.
pub(crate) fn report_denied() -> OnDenied {
    let seen = Mutex::new(BTreeSet::new());
    Arc::new(move |reason: &str| {
        if !is_of_component(reason) {
            return;
        }
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() < MAX_DENIED && seen.insert(reason.to_owned()) {
            error!(reason, "A component was denied a request: its role lacks a verb");
        }
    })
}

/// Returns true if a denied request is of a component, and not of a user of the cluster.
fn is_of_component(reason: &str) -> bool {
    let user = reason.strip_prefix("User \"").unwrap_or_default();
    user.starts_with(&format!("system:serviceaccount:{}:machine-config-", label::NAMESPACE))
        || user.starts_with("system:node:")
}

/// Writes the service accounts, roles and policies.
pub(crate) async fn install(client: &Client) -> anyhow::Result<()> {
    let (namespaces, others): (Vec<Value>, Vec<Value>) =
        objects().into_iter().partition(|object| ObjectName::of(object).kind == "Namespace");
    for group in [namespaces, others] {
        let writes = group.iter().map(|object| apply(client, object));
        stream::iter(writes).buffer_unordered(CONCURRENCY).try_collect::<()>().await?;
    }
    Ok(())
}

async fn apply(client: &Client, object: &Value) -> anyhow::Result<()> {
    let name = ObjectName::of(object);
    let params = PatchParams::apply(MANAGER).force();
    let applied =
        install::api(client, &name).patch(&name.name, &params, &Patch::Apply(object)).await;
    applied.map(drop).map_err(CallError::from).with_context(|| format!("failed to apply {name}"))
}

/// Returns the objects that grant or limit rights.
fn objects() -> Vec<Value> {
    let parameters = Parameters::new(manifests::IMAGE);
    let installed = manifests::namespaces(&parameters).into_iter();
    let installed = installed.chain(manifests::operator(&parameters));
    let installed = installed.chain(manifests::all_operands(&parameters));
    let rights = installed.filter(|object| KINDS.contains(&&*ObjectName::of(object).kind));
    rights.chain([of_new_machines()]).collect()
}

/// Returns the role that Kubernetes has for new machines.
fn of_new_machines() -> Value {
    json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole",
        "metadata": {"name": "system:node-bootstrapper"},
        "rules": [{"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"],
            "verbs": ["create", "get", "list", "watch"]}]})
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{
        api::{
            authentication::v1::SelfSubjectReview,
            core::v1::{Node, Secret},
        },
        apimachinery::pkg::apis::meta::v1::ObjectMeta,
    };
    use kube::api::PostParams;
    use mco_apiserver::{Authorization, Settings};
    use mco_cluster::Api;

    use super::*;

    async fn cluster(denied: OnDenied) -> Identities {
        let authorization = Authorization::Roles;
        let settings = Settings { authorization, on_denied: Some(denied), ..Settings::default() };
        let identities = Identities::new(&ApiServer::in_memory(settings).await.unwrap());
        install(&identities.own()).await.unwrap();
        identities
    }

    fn node(name: &str) -> Node {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        Node { metadata, ..Node::default() }
    }

    #[tokio::test]
    async fn each_component_has_the_rights_of_its_role() {
        let denied = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&denied);
        let identities =
            cluster(Arc::new(move |why: &str| seen.lock().unwrap().push(why.to_owned()))).await;
        // A later start writes the same objects again.
        install(&identities.own()).await.unwrap();
        let secrets = |client| Api::<Secret>::namespaced(client, label::NAMESPACE);
        let name = "machine-config-controller";
        let params = kube::api::ListParams::default();
        secrets(identities.component(name)).list(&params).await.unwrap();
        let refused = secrets(identities.component("machine-config-daemon")).list(&params).await;
        let message = refused.unwrap_err().to_string();
        let user = format!("system:serviceaccount:{}:machine-config-daemon", label::NAMESPACE);
        assert!(message.contains(&format!("{user:?}")), "{message}");
        assert!(message.contains("cannot list resource \"secrets\""), "{message}");
        let denied = denied.lock().unwrap();
        assert!(denied.len() == 1 && is_of_component(&denied[0]), "{denied:?}");
        let machine = format!("system:serviceaccount:{}:node-bootstrapper", label::NAMESPACE);
        for user in ["alice", &machine] {
            assert!(!is_of_component(&format!("User {user:?} cannot list resource \"pods\"")));
        }
    }

    #[tokio::test]
    async fn a_kubelet_writes_its_own_node_only() {
        let identities = cluster(Arc::new(|_: &str| {})).await;
        let nodes = Api::<Node>::all(identities.kubelet("kubelet", "a"));
        nodes.create(&PostParams::default(), &node("a")).await.unwrap();
        let refused = nodes.create(&PostParams::default(), &node("b")).await.unwrap_err();
        assert!(refused.to_string().contains("not allowed to modify node \"b\""), "{refused}");
    }

    #[tokio::test]
    async fn the_token_of_a_daemon_names_its_node() {
        let identities = cluster(Arc::new(|_: &str| {})).await;
        let client = identities.component_on("machine-config-daemon", "a");
        let request = http::Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews");
        let request = request.header("content-type", "application/json").body(b"{}".to_vec());
        let review: SelfSubjectReview = client.request(request.unwrap()).await.unwrap();
        let extra = review.status.unwrap().user_info.unwrap().extra.unwrap();
        assert_eq!(extra["authentication.kubernetes.io/node-name"], ["a"]);
    }
}
