//! Everyday requests through `kube::Client`, without a socket.

use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Node, Pod};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::{Value, json};

use crate::fixture::{client, client_of, refusal};

fn of<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

async fn make(api: &Api<ConfigMap>, name: &str, labels: Value) -> ConfigMap {
    let object = of(json!({"metadata": {"name": name, "labels": labels}, "data": {"k": "v"}}));
    api.create(&PostParams::default(), &object).await.unwrap()
}

fn config_maps(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), "default")
}

#[tokio::test]
async fn objects_are_created_read_replaced_and_deleted() {
    let api = config_maps(&client().await);
    let made = make(&api, "a", json!({})).await;
    assert_eq!(made.uid().unwrap().len(), 36);
    let mut read = api.get("a").await.unwrap();
    assert_eq!(read, made);
    read.data.as_mut().unwrap().insert("k2".into(), "v2".into());
    let replaced = api.replace("a", &PostParams::default(), &read).await.unwrap();
    assert!(replaced.resource_version().unwrap() != made.resource_version().unwrap());
    let (code, message) = refusal(api.replace("a", &PostParams::default(), &read).await);
    assert_eq!(code, 409);
    assert!(message.contains("the object has been modified"), "{message}");
    assert!(api.delete("a", &DeleteParams::default()).await.unwrap().is_right());
    assert_eq!(refusal(api.get("a").await), (404, "configmaps \"a\" not found".to_owned()));
}

#[tokio::test]
async fn a_second_object_of_the_same_name_is_rejected() {
    let api = config_maps(&client().await);
    make(&api, "a", json!({})).await;
    let again = of::<ConfigMap>(json!({"metadata": {"name": "a"}}));
    let (code, message) = refusal(api.create(&PostParams::default(), &again).await);
    assert_eq!((code, message.as_str()), (409, "configmaps \"a\" already exists"));
}

#[tokio::test]
async fn names_are_generated_and_namespaces_must_exist() {
    let client = client().await;
    let object = of::<ConfigMap>(json!({"metadata": {"generateName": "x-"}}));
    let made = config_maps(&client).create(&PostParams::default(), &object).await.unwrap();
    assert_eq!(made.name_any().len(), 7);
    let nowhere: Api<ConfigMap> = Api::namespaced(client, "nowhere");
    let refused = refusal(nowhere.create(&PostParams::default(), &object).await);
    assert_eq!(refused, (404, "namespaces \"nowhere\" not found".to_owned()));
}

#[tokio::test]
async fn lists_are_selected_and_paged() {
    let api = config_maps(&client().await);
    for (name, role) in [("a", "x"), ("b", "y"), ("c", "x"), ("d", "x")] {
        make(&api, name, json!({"role": role})).await;
    }
    let names = |list: kube::api::ObjectList<ConfigMap>| -> Vec<String> {
        list.items.iter().map(kube::ResourceExt::name_any).collect()
    };
    let chosen = api.list(&ListParams::default().labels("role=x")).await.unwrap();
    assert_eq!(names(chosen), ["a", "c", "d"]);
    let one = api.list(&ListParams::default().fields("metadata.name=b")).await.unwrap();
    assert_eq!(names(one), ["b"]);
    let mut params = ListParams::default().limit(3);
    let first = api.list(&params).await.unwrap();
    assert_eq!(first.metadata.remaining_item_count, Some(1));
    params.continue_token = first.metadata.continue_.clone();
    assert_eq!(names(first), ["a", "b", "c"]);
    let second = api.list(&params).await.unwrap();
    assert_eq!(second.metadata.continue_, None);
    assert_eq!(names(second), ["d"]);
}

#[tokio::test]
async fn patches_of_every_format_are_applied() {
    let client = client().await;
    let nodes: Api<Node> = Api::all(client);
    let node = of::<Node>(json!({"metadata": {"name": "n"}}));
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let params = PatchParams::default();
    let merge = json!({"metadata": {"annotations": {"a": "1", "b": "2"}}});
    nodes.patch("n", &params, &Patch::Merge(&merge)).await.unwrap();
    let strategic = json!({"metadata": {"annotations": {"a": null}}});
    nodes.patch("n", &params, &Patch::Strategic(&strategic)).await.unwrap();
    let ops: json_patch::Patch =
        of(json!([{"op": "add", "path": "/spec/unschedulable", "value": true}]));
    let node = nodes.patch("n", &params, &Patch::<Node>::Json(ops)).await.unwrap();
    assert_eq!(node.annotations().len(), 1);
    assert_eq!(node.spec.clone().unwrap().unschedulable, Some(true));
    // A patch without a change creates no new version.
    let same = nodes.patch("n", &params, &Patch::Merge(&json!({}))).await.unwrap();
    assert_eq!(same.resource_version(), node.resource_version());
}

#[tokio::test]
async fn an_apply_creates_owns_and_conflicts() {
    let api = config_maps(&client().await);
    let wish = |value: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"},
               "data": {"k": value}})
    };
    let apply = async |manager: &str, value: &str, force: bool| {
        let mut params = PatchParams::apply(manager);
        params.force = force;
        api.patch("a", &params, &Patch::Apply(wish(value))).await
    };
    let made = apply("one", "1", false).await.unwrap();
    assert_eq!(made.managed_fields().len(), 1);
    let (code, message) = refusal(apply("two", "2", false).await);
    assert_eq!(
        (code, message.as_str()),
        (409, "Apply failed with 1 conflict: conflict with \"one\": .data.k")
    );
    let forced = apply("two", "2", true).await.unwrap();
    assert_eq!(forced.data.unwrap()["k"], "2");
}

#[tokio::test]
async fn finalizers_hold_an_object_until_they_are_gone() {
    let api = config_maps(&client().await);
    let object = of(json!({"metadata": {"name": "a", "finalizers": ["mco.io/hold"]}}));
    api.create(&PostParams::default(), &object).await.unwrap();
    let held = api.delete("a", &DeleteParams::default()).await.unwrap().left().unwrap();
    assert!(held.metadata.deletion_timestamp.is_some());
    let release = json!({"metadata": {"finalizers": null}});
    api.patch("a", &PatchParams::default(), &Patch::Merge(&release)).await.unwrap();
    assert_eq!(refusal(api.get("a").await).0, 404);
}

#[tokio::test]
async fn deletes_check_their_preconditions() {
    let api = config_maps(&client().await);
    let made = make(&api, "a", json!({})).await;
    let mut params = DeleteParams::default()
        .preconditions(Preconditions { uid: Some("another".into()), resource_version: None });
    assert_eq!(refusal(api.delete("a", &params).await).0, 409);
    params.preconditions =
        Some(Preconditions { uid: made.uid(), resource_version: made.resource_version() });
    api.delete("a", &params).await.unwrap();
    make(&api, "b", json!({"x": "y"})).await;
    make(&api, "c", json!({})).await;
    let chosen = ListParams::default().labels("x=y");
    api.delete_collection(&DeleteParams::default(), &chosen).await.unwrap();
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), 1);
}

#[tokio::test]
async fn deleting_a_namespace_deletes_its_objects() {
    let client = client().await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = of::<Namespace>(json!({"metadata": {"name": "x"}}));
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let inside: Api<ConfigMap> = Api::namespaced(client, "x");
    make(&inside, "a", json!({})).await;
    namespaces.delete("x", &DeleteParams::default()).await.unwrap();
    assert_eq!(refusal(inside.get("a").await).0, 404);
    assert_eq!(refusal(namespaces.get("x").await).0, 404);
}

#[tokio::test]
async fn status_is_written_through_its_subresource() {
    let client = client().await;
    let pods: Api<Pod> = Api::namespaced(client, "default");
    let pod = json!({"metadata": {"name": "p"}, "status": {"phase": "Running"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let made = pods.create(&PostParams::default(), &of(pod)).await.unwrap();
    assert_eq!(made.status.unwrap().phase.unwrap(), "Pending");
    let status = json!({"status": {"phase": "Running"}, "spec": {"nodeName": "n"}});
    let patched =
        pods.patch_status("p", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    assert_eq!(patched.status.as_ref().unwrap().phase.as_deref(), Some("Running"));
    assert_eq!(patched.spec.unwrap().node_name, None);
    let failed = Patch::Merge(json!({"status": {"phase": "Failed"}}));
    let main = pods.patch("p", &PatchParams::default(), &failed).await;
    assert_eq!(main.unwrap().status.unwrap().phase.unwrap(), "Running");
}

#[tokio::test]
async fn an_event_is_visible_in_both_groups() {
    let client = client().await;
    let new: Api<k8s_openapi::api::events::v1::Event> = Api::namespaced(client.clone(), "default");
    let event = json!({"metadata": {"name": "e"}, "note": "hello", "reason": "R", "type": "Normal",
        "regarding": {"kind": "Node", "name": "n"}, "reportingController": "mco",
        "reportingInstance": "i", "action": "A",
        "eventTime": "2026-01-02T03:04:05.000000Z"});
    new.create(&PostParams::default(), &of(event)).await.unwrap();
    let core: Api<Event> = Api::namespaced(client, "default");
    let params = ListParams::default().fields("involvedObject.name=n");
    let list = core.list(&params).await.unwrap();
    assert_eq!(list.items[0].message.as_deref(), Some("hello"));
    assert_eq!(new.get("e").await.unwrap().note.as_deref(), Some("hello"));
}

#[tokio::test]
async fn evictions_honour_budgets() {
    use k8s_openapi::api::policy::v1::PodDisruptionBudget;
    let client = client().await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(client, "default");
    let budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1,
        "selector": {"matchLabels": {"app": "a"}}}});
    budgets.create(&PostParams::default(), &of(budget)).await.unwrap();
    let ready = json!({"status": {"phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}]}});
    for name in ["p1", "p2"] {
        let pod = json!({"metadata": {"name": name, "labels": {"app": "a"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        pods.create(&PostParams::default(), &of(pod)).await.unwrap();
        pods.patch_status(name, &PatchParams::default(), &Patch::Merge(&ready)).await.unwrap();
    }
    let allowed = async || budgets.get("b").await.unwrap().status.unwrap().disruptions_allowed;
    assert_eq!(allowed().await, Some(1));
    pods.evict("p1", &EvictParams::default()).await.unwrap();
    assert_eq!(allowed().await, Some(0));
    let (code, message) = refusal(pods.evict("p2", &EvictParams::default()).await);
    assert_eq!(
        (code, message.as_str()),
        (429, "Cannot evict pod as it would violate the pod's disruption budget.")
    );
    assert!(pods.get_opt("p1").await.unwrap().is_none());
    assert!(pods.get_opt("p2").await.unwrap().is_some());
}

#[tokio::test]
async fn dry_runs_change_nothing() {
    let api = config_maps(&client().await);
    let object = of(json!({"metadata": {"name": "a"}}));
    let params = PostParams { dry_run: true, ..PostParams::default() };
    api.create(&params, &object).await.unwrap();
    assert!(api.get_opt("a").await.unwrap().is_none());
    make(&api, "a", json!({})).await;
    api.delete("a", &DeleteParams { dry_run: true, ..DeleteParams::default() }).await.unwrap();
    assert!(api.get_opt("a").await.unwrap().is_some());
}

#[tokio::test]
async fn unserved_paths_are_not_found() {
    let client = client().await;
    let request = http::Request::get("/apis/batch/v1/cronjobs").body(Vec::new()).unwrap();
    let refused = client.request::<Value>(request).await;
    assert_eq!(
        refusal(refused),
        (404, "the server could not find the requested resource".to_owned())
    );
    let request = http::Request::post("/api/v1/nodes/a").body(b"{}".to_vec()).unwrap();
    assert_eq!(refusal(client.request::<Value>(request).await).0, 405);
}

#[tokio::test]
async fn a_body_over_the_limit_is_rejected() {
    let client = client().await;
    let body = vec![b' '; 3 * 1024 * 1024 + 1];
    let request = http::Request::post("/api/v1/nodes").body(body).unwrap();
    assert_eq!(refusal(client.request::<Value>(request).await).0, 413);
}

#[tokio::test]
async fn events_are_removed_an_hour_after_they_were_last_seen() {
    use std::sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    };
    struct ManualClock(AtomicI64);
    impl mco_apiserver::Clock for ManualClock {
        fn now(&self) -> jiff::Timestamp {
            jiff::Timestamp::from_second(self.0.load(Ordering::Relaxed)).unwrap()
        }
    }
    let clock = Arc::new(ManualClock(AtomicI64::new(1_800_000_000)));
    let settings = mco_apiserver::Settings {
        clock: Arc::<ManualClock>::clone(&clock),
        ..mco_apiserver::Settings::default()
    };
    let api: Api<Event> = Api::namespaced(client_of(settings).await, "default");
    for (name, wait) in [("a", 0), ("b", 3000), ("c", 700)] {
        clock.0.fetch_add(wait, Ordering::Relaxed);
        let event = json!({"metadata": {"name": name}, "involvedObject": {}});
        api.create(&PostParams::default(), &of(event)).await.unwrap();
    }
    let left = api.list(&ListParams::default()).await.unwrap();
    let names: Vec<String> = left.items.iter().map(kube::ResourceExt::name_any).collect();
    assert_eq!(names, ["b", "c"]);
}

#[tokio::test]
async fn metadata_can_be_requested_alone() {
    let client = client().await;
    make(&config_maps(&client), "a", json!({"l": "m"})).await;
    let list = config_maps(&client).list_metadata(&ListParams::default()).await.unwrap();
    assert_eq!(list.items[0].metadata.labels.as_ref().unwrap()["l"], "m");
    let one = config_maps(&client).get_metadata("a").await.unwrap();
    assert_eq!(one.types.unwrap().kind, "PartialObjectMetadata");
}

#[tokio::test]
async fn a_deleted_running_pod_waits_for_its_kubelet() {
    let settings = mco_apiserver::Settings {
        pods: mco_apiserver::PodDeletion::ByKubelet,
        ..mco_apiserver::Settings::default()
    };
    let pods: Api<Pod> = Api::namespaced(client_of(settings).await, "default");
    for (name, node) in [("bound", "n1"), ("unbound", "")] {
        let pod = json!({"metadata": {"name": name}, "spec": {"nodeName": node,
            "containers": [{"name": "c", "image": "i"}]}});
        pods.create(&PostParams::default(), &of(pod)).await.unwrap();
    }
    assert!(pods.delete("unbound", &DeleteParams::default()).await.unwrap().is_left());
    assert_eq!(refusal(pods.get("unbound").await).0, 404);
    let marked = pods.delete("bound", &DeleteParams::default()).await.unwrap().left().unwrap();
    assert_eq!(marked.metadata.deletion_grace_period_seconds, Some(30));
    let again = pods.delete("bound", &DeleteParams::default()).await.unwrap().left().unwrap();
    assert_eq!(again, marked);
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    assert!(pods.delete("bound", &now).await.unwrap().is_left());
    assert_eq!(refusal(pods.get("bound").await).0, 404);
    assert!(pods.get_opt("bound").await.unwrap().is_none());
}

#[tokio::test]
async fn owned_objects_are_deleted_with_their_last_owner() {
    let api = config_maps(&client().await);
    let owner = async |name: &str| {
        let uid = make(&api, name, json!({})).await.uid().unwrap();
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid})
    };
    let (a, b) = (owner("a").await, owner("b").await);
    for (name, owners) in [("of-a", json!([a])), ("of-both", json!([a, b])), ("free", json!([]))] {
        let object = json!({"metadata": {"name": name, "ownerReferences": owners}});
        api.create(&PostParams::default(), &of(object)).await.unwrap();
    }
    let names = async || -> Vec<String> {
        let list = api.list(&ListParams::default()).await.unwrap();
        list.items.iter().map(kube::ResourceExt::name_any).collect()
    };
    api.delete("a", &DeleteParams::default()).await.unwrap();
    assert_eq!(names().await, ["b", "free", "of-both"]);
    api.delete("b", &DeleteParams::orphan()).await.unwrap();
    assert_eq!(names().await, ["free", "of-both"]);
    assert_eq!(api.get("of-both").await.unwrap().owner_references().len(), 0);
}
