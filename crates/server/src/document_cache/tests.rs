use mco_api::{ControllerConfig, MachineConfig, MachineConfigSpec, RawConfig};

use super::*;
use crate::document::FirstBoot;

fn config(name: &str) -> Arc<MachineConfig> {
    let raw = RawConfig::from_json(r#"{"ignition":{"version":"3.5.0"}}"#.to_owned()).unwrap();
    let spec = MachineConfigSpec { config: Some(raw), ..MachineConfigSpec::default() };
    Arc::new(MachineConfig::new(name, spec))
}

fn inputs(config: &Arc<MachineConfig>) -> Inputs {
    Inputs { config: config.clone(), first_boot: None }
}

fn cache(limit: usize) -> DocumentCache {
    DocumentCache::new(limit, Metrics::default())
}

async fn document(cache: &DocumentCache, inputs: Inputs, version: &str) -> Arc<Document> {
    cache.get(inputs, version.parse().unwrap()).await.unwrap().unwrap()
}

async fn body(cache: &DocumentCache, inputs: Inputs, version: &str) -> Bytes {
    document(cache, inputs, version).await.representation(false).await.unwrap().body
}

#[tokio::test]
async fn requests_for_one_config_share_its_bytes() {
    let (cache, config) = (cache(4), config("a"));
    let requests = (0..8).map(|_| inputs(&config));
    let responses: Vec<_> = requests.map(|inputs| body(&cache, inputs, "3.5.0")).collect();
    let mut got = Vec::new();
    for response in responses {
        got.push(response.await);
    }
    assert!(got.iter().all(|body| body.as_ptr() == got[0].as_ptr()));
    assert_eq!(cache.len(), 1);
    let other = body(&cache, inputs(&config), "3.1.0").await;
    assert_ne!(other, got[0], "another version is another document");
}

#[tokio::test]
async fn a_changed_config_is_built_anew_and_replaces_the_old_one() {
    let cache = cache(4);
    let old = body(&cache, inputs(&config("a")), "3.5.0").await;
    let new = body(&cache, inputs(&config("a")), "3.5.0").await;
    assert_ne!(old.as_ptr(), new.as_ptr());
    assert_eq!(cache.len(), 1);
}

#[tokio::test]
async fn only_the_relevant_part_of_a_controller_config_matters() {
    let (cache, config) = (cache(4), config("a"));
    let with = |ca: &str, platform: &str| {
        let mut controller = ControllerConfig::default();
        controller.spec.kube_api_server_serving_ca_data = ca.as_bytes().to_vec().into();
        controller.spec.platform = platform.to_owned();
        let first_boot = FirstBoot::new(Arc::new(controller), None);
        Inputs { config: config.clone(), first_boot: Some(first_boot) }
    };
    let first = body(&cache, with("one", "None"), "3.5.0").await;
    let same = body(&cache, with("one", "AWS"), "3.5.0").await;
    let other = body(&cache, with("two", "AWS"), "3.5.0").await;
    assert_eq!(first.as_ptr(), same.as_ptr());
    assert_ne!(first, other);
}

#[tokio::test]
async fn the_least_recently_requested_document_is_evicted() {
    let cache = cache(2);
    let (a, b, c) = (config("a"), config("b"), config("c"));
    let first = body(&cache, inputs(&a), "3.5.0").await;
    body(&cache, inputs(&b), "3.5.0").await;
    body(&cache, inputs(&a), "3.5.0").await;
    body(&cache, inputs(&c), "3.5.0").await;
    assert_eq!(cache.len(), 2);
    let again = body(&cache, inputs(&a), "3.5.0").await;
    assert_eq!(first.as_ptr(), again.as_ptr(), "a was requested after b");
}

#[tokio::test]
async fn a_failure_is_cached_like_a_document() {
    let (cache, broken) = (cache(2), Arc::new(MachineConfig::default()));
    let version: TargetVersion = "3.5.0".parse().unwrap();
    let first = cache.get(inputs(&broken), version).await.unwrap().unwrap_err();
    let again = cache.get(inputs(&broken), version).await.unwrap().unwrap_err();
    assert!(Arc::ptr_eq(&first, &again));
}

#[tokio::test]
async fn a_document_is_compressed_once() {
    let contents = "x".repeat(5_000);
    let raw = format!(
        r#"{{"ignition":{{"version":"3.5.0"}},"storage":{{"files":[{{"path":"/a","contents":{{"source":"data:,{contents}"}}}}]}}}}"#
    );
    let spec = MachineConfigSpec {
        config: Some(RawConfig::from_json(raw).unwrap()),
        ..MachineConfigSpec::default()
    };
    let cache = cache(2);
    let large = document(&cache, inputs(&Arc::new(MachineConfig::new("a", spec))), "3.5.0").await;
    let plain = large.representation(false).await.unwrap();
    let first = large.representation(true).await.unwrap();
    let again = large.representation(true).await.unwrap();
    assert!(first.is_gzip && !plain.is_gzip);
    assert_eq!(first.body.as_ptr(), again.body.as_ptr());
    assert_ne!(first.tag, plain.tag, "other bytes have another tag");
    let limit = plain.body.len();
    assert_eq!(mco_ignition::gzip::decompress(&first.body, limit).unwrap(), plain.body);

    let small = document(&cache, inputs(&config("b")), "3.5.0").await;
    assert!(!small.representation(true).await.unwrap().is_gzip);
}
