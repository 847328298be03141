//! Outages: watches and connections end, nothing is answered, and the state is kept.

use std::pin::pin;

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{PostParams, WatchParams},
};
use mco_apiserver::{ApiServer, Listener, Settings};

use crate::{
    fixture::soon,
    listening::{client_by, config_map},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_ends_watches_and_keeps_the_state() {
    let dir = tempfile::tempdir().unwrap();
    let api = ApiServer::open_dir(dir.path(), Settings::default()).await.unwrap();
    let address = "127.0.0.1:0".parse().unwrap();
    let listener = Listener::bind(api.clone(), dir.path(), address).await.unwrap();
    tokio::spawn(listener.serve(std::future::pending()));
    let inside = Api::<ConfigMap>::default_namespaced(Client::new(api.clone(), "default"));
    let outside = Api::<ConfigMap>::default_namespaced(client_by(dir.path(), "mco").await);
    inside.create(&PostParams::default(), &config_map("kept")).await.unwrap();
    for (place, maps) in [("inside", &inside), ("outside", &outside)] {
        let mut events = pin!(maps.watch(&WatchParams::default(), "0").await.unwrap());
        events.try_next().await.unwrap().unwrap();
        api.set_outage(true);
        let end = soon("the watch to end", events.try_next()).await;
        assert!(!matches!(end, Ok(Some(_))), "{place}: {end:?}");
        let refused = soon("the refusal", maps.get("kept")).await.unwrap_err();
        assert!(!matches!(refused, kube::Error::Api(_)), "{place}: {refused}");
        api.set_outage(false);
        soon("the answer after the outage", maps.get("kept")).await.unwrap();
    }
}
