//! Fetches the facts that a cluster is examined by. Nothing is written.

use std::{collections::BTreeSet, path::Path};

use http::{Request, header};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::authorization::v1::{
        ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Client, ResourceExt as _,
    api::{ListParams, PostParams},
    client::Body,
};
use mco_api::{GROUP, label};
use mco_cluster::{Api, CallError, Clock, Object, client::namespace, report};
use mco_core::{
    doctor::{Certificate, Definition, DefinitionState, Facts, Fetched, Right},
    lint::{self, Fault},
};
use mco_operator::ExaminedDefinition;
use serde_json::{Value, json};

use crate::{load, process, remote::runner};

/// Annotation of a certificate's Secret with the end of its validity. Compat: the key is that of the
/// reference's library.
const NOT_AFTER: &str = "auth.openshift.io/certificate-not-after";

/// Rights that an installation needs: verb, group and resource.
const RIGHTS: [(&str, &str, &str); 6] = [
    ("create", "", "namespaces"),
    ("create", "apiextensions.k8s.io", "customresourcedefinitions"),
    ("create", "rbac.authorization.k8s.io", "clusterroles"),
    ("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
    ("create", "apps", "deployments"),
    ("create", "apps", "daemonsets"),
];

/// Fetches the facts about versions.
pub(crate) async fn versions(client: &Client) -> Facts {
    let (kubernetes, clock_difference) = api_server(client).await;
    let is_up = kubernetes.is_ok();
    let mut facts = Facts::new(Clock::System.now(), &process::build().version, kubernetes);
    facts.clock_difference = clock_difference;
    facts.installed_in = namespace(client).to_owned();
    if is_up {
        facts.operator = get(&Api::all(client.clone()), label::CLUSTER_OPERATOR).await;
        let configs = Api::all(client.clone());
        facts.controller_config = get(&configs, label::CONTROLLER_CONFIG).await;
        facts.pods = list(&Api::own(client.clone())).await;
        facts.nodes = list(&Api::all(client.clone())).await;
    }
    facts
}

/// Fetches all facts.
pub(crate) async fn facts(client: &Client) -> Facts {
    let mut facts = versions(client).await;
    if facts.kubernetes.is_err() {
        return facts;
    }
    facts.rights = rights(client).await;
    // A failure is one of the ControllerConfig, which is reported.
    let other = runner::other(client).await.ok().flatten();
    facts.other_operator = other.map(|evidence| evidence.to_string());
    facts.definitions = definitions(client).await;
    facts.namespace = get(&Api::all(client.clone()), namespace(client)).await;
    facts.deployments = list(&Api::own(client.clone())).await;
    facts.daemon_sets = list(&Api::own(client.clone())).await;
    facts.leases = list(&Api::own(client.clone())).await;
    facts.machine_config_nodes = list(&Api::all(client.clone())).await;
    facts.pools = list(&Api::all(client.clone())).await;
    (facts.configs, facts.faults) = configs(client).await;
    facts.certificates = certificates(client).await;
    facts
}

/// Returns the version of the API server, and the difference of its clock.
async fn api_server(client: &Client) -> (Result<String, String>, Option<SignedDuration>) {
    let version = match client.apiserver_version().await {
        Ok(version) => version.git_version,
        Err(error) => return (Err(report::chain(&CallError::from(error))), None),
    };
    (Ok(version), clock_difference(client).await)
}

/// Returns the time of the API server less that of this machine, from the header `Date`, which has
/// whole seconds.
async fn clock_difference(client: &Client) -> Option<SignedDuration> {
    let request = Request::get("/version").body(Body::empty()).ok()?;
    let before = Clock::System.now();
    let response = client.send(request).await.ok()?;
    let date = response.headers().get(header::DATE)?.to_str().ok()?;
    let date: Timestamp = jiff::fmt::rfc2822::parse(date).ok()?.timestamp();
    Some(date.duration_since(before))
}

/// Returns why a request failed, or that its object does not exist.
fn failed<T>(error: kube::Error) -> Fetched<T> {
    if matches!(&error, kube::Error::Api(status) if status.code == 404) {
        return Fetched::Absent;
    }
    Fetched::Failed(report::chain(&CallError::from(error)))
}

async fn get<K: Object>(api: &Api<K>, name: &str) -> Fetched<K> {
    match api.get_opt(name).await {
        Ok(Some(found)) => Fetched::Found(found),
        Ok(None) => Fetched::Absent,
        Err(error) => failed(error),
    }
}

async fn list<K: Object>(api: &Api<K>) -> Fetched<Vec<K>> {
    match api.list(&ListParams::default()).await {
        Ok(found) => Fetched::Found(found.items),
        Err(error) => failed(error),
    }
}

/// Returns the answers to reviews of the user's rights. The API server stores no reviews.
async fn rights(client: &Client) -> Vec<Right> {
    let api = kube::Api::<SelfSubjectAccessReview>::all(client.clone());
    let mut rights = Vec::new();
    for (verb, group, resource) in RIGHTS {
        let attributes = ResourceAttributes {
            verb: Some(verb.to_owned()),
            group: Some(group.to_owned()),
            resource: Some(resource.to_owned()),
            ..ResourceAttributes::default()
        };
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..SelfSubjectAccessReviewSpec::default()
        };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let answer = api.create(&PostParams::default(), &review).await;
        let allowed = answer.ok().and_then(|answer| answer.status).map(|status| status.allowed);
        rights.push(Right { name: format!("{verb} {resource}"), allowed });
    }
    rights
}

async fn definitions(client: &Client) -> Fetched<Vec<Definition>> {
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    let mut all = Vec::new();
    for wanted in mco_api::crds() {
        match api.get_opt(&wanted.name_any()).await {
            Ok(found) => all.push(definition(&wanted, found.as_ref())),
            Err(error) => return failed(error),
        }
    }
    Fetched::Found(all)
}

fn definition(
    wanted: &CustomResourceDefinition,
    found: Option<&CustomResourceDefinition>,
) -> Definition {
    let name = wanted.name_any();
    let Some(found) = found else { return Definition { name, ..Definition::default() } };
    let ExaminedDefinition { owner, usable, is_served } = mco_operator::examine(found, wanted);
    let (state, lacks) = match (usable, is_served) {
        (Err(why), _) => (DefinitionState::Unusable(why), Vec::new()),
        (Ok(_), false) => {
            (DefinitionState::Unusable("it is not established".to_owned()), Vec::new())
        }
        (Ok(lacks), true) => (DefinitionState::Served, lacks),
    };
    Definition { name, state, owner, lacks }
}

/// Fetches the names of all `MachineConfigs`, and checks those that are not rendered.
async fn configs(client: &Client) -> (Fetched<BTreeSet<String>>, Vec<Fault>) {
    let mut checked = Vec::new();
    let mut names = BTreeSet::new();
    for (plural, kind) in
        [("machineconfigs", "MachineConfig"), ("machineconfigpools", "MachineConfigPool")]
    {
        let path = format!("/apis/{GROUP}/v1/{plural}");
        let items = match items(client, &path).await {
            Ok(items) => items,
            Err(error) if kind == "MachineConfig" => return (failed(error), Vec::new()),
            Err(_) => continue,
        };
        for mut item in items {
            let name = item.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
            let is_rendered = name.starts_with("rendered-");
            if kind == "MachineConfig" {
                names.insert(name.to_owned());
            }
            if !is_rendered {
                if let Some(members) = item.as_object_mut() {
                    members.insert("apiVersion".to_owned(), json!(format!("{GROUP}/v1")));
                    members.insert("kind".to_owned(), json!(kind));
                }
                checked.push(item);
            }
        }
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": checked});
    let loaded = load::text(Path::new("cluster.json"), list.to_string().into_bytes());
    (Fetched::Found(names), lint::check(&loaded.into_manifests()))
}

async fn items(client: &Client, path: &str) -> Result<Vec<Value>, kube::Error> {
    let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    let mut found: Value = client.request(request).await?;
    let items = found.get_mut("items").and_then(Value::as_array_mut);
    Ok(items.map(std::mem::take).unwrap_or_default())
}

/// Fetches the ends of the config server's certificates. The metadata of their Secrets has them, so
/// that no key is read.
async fn certificates(client: &Client) -> Fetched<Vec<Certificate>> {
    let mut all = Vec::new();
    for name in [label::SERVER_CA, label::SERVER_TLS] {
        let namespace = namespace(client);
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
        let accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        let request = Request::get(path).header(header::ACCEPT, accept).body(Vec::new());
        let Ok(request) = request else { continue };
        match client.request::<Value>(request).await {
            Ok(found) => {
                let annotations = found.pointer("/metadata/annotations");
                let end = annotations.and_then(|it| it.get(NOT_AFTER)).and_then(Value::as_str);
                all.push(Certificate {
                    object: format!("Secret {namespace}/{name}"),
                    not_after: end.and_then(|end| end.parse().ok()),
                });
            }
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return failed(error),
        }
    }
    Fetched::Found(all)
}
