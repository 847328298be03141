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

async fn body(bodies: &Bodies, inputs: Inputs, version: &str) -> Bytes {
    bodies.get(inputs, version.parse().unwrap()).await.unwrap().unwrap()
}

#[tokio::test]
async fn two_who_ask_for_one_config_share_its_bytes() {
    let (bodies, config) = (Bodies::new(4), config("a"));
    let asks = (0..8).map(|_| inputs(&config));
    let asked: Vec<_> = asks.map(|inputs| body(&bodies, inputs, "3.5.0")).collect();
    let mut got = Vec::new();
    for asked in asked {
        got.push(asked.await);
    }
    assert!(got.iter().all(|body| body.as_ptr() == got[0].as_ptr()));
    assert_eq!(bodies.len(), 1);
    let other = body(&bodies, inputs(&config), "3.1.0").await;
    assert_ne!(other, got[0], "another version is another document");
}

#[tokio::test]
async fn a_changed_config_is_built_anew_and_the_old_one_forgotten() {
    let bodies = Bodies::new(4);
    let old = body(&bodies, inputs(&config("a")), "3.5.0").await;
    let new = body(&bodies, inputs(&config("a")), "3.5.0").await;
    assert_ne!(old.as_ptr(), new.as_ptr());
    assert_eq!(bodies.len(), 1);
}

#[tokio::test]
async fn a_controller_config_counts_only_by_what_goes_into_the_document() {
    let (bodies, config) = (Bodies::new(4), config("a"));
    let with = |ca: &str, platform: &str| {
        let mut controller = ControllerConfig::default();
        controller.spec.kube_api_server_serving_ca_data = ca.as_bytes().to_vec().into();
        controller.spec.platform = platform.to_owned();
        let first_boot = FirstBoot { controller: Arc::new(controller), kubeconfig: None };
        Inputs { config: config.clone(), first_boot: Some(first_boot) }
    };
    let first = body(&bodies, with("one", "None"), "3.5.0").await;
    let same = body(&bodies, with("one", "AWS"), "3.5.0").await;
    let other = body(&bodies, with("two", "AWS"), "3.5.0").await;
    assert_eq!(first.as_ptr(), same.as_ptr());
    assert_ne!(first, other);
}

#[tokio::test]
async fn the_longest_unasked_goes_when_there_is_no_room() {
    let bodies = Bodies::new(2);
    let (a, b, c) = (config("a"), config("b"), config("c"));
    let first = body(&bodies, inputs(&a), "3.5.0").await;
    body(&bodies, inputs(&b), "3.5.0").await;
    body(&bodies, inputs(&a), "3.5.0").await;
    body(&bodies, inputs(&c), "3.5.0").await;
    assert_eq!(bodies.len(), 2);
    let again = body(&bodies, inputs(&a), "3.5.0").await;
    assert_eq!(first.as_ptr(), again.as_ptr(), "a was asked for after b");
}

#[tokio::test]
async fn a_failure_is_kept_like_a_document() {
    let (bodies, broken) = (Bodies::new(2), Arc::new(MachineConfig::default()));
    let version: Target = "3.5.0".parse().unwrap();
    let first = bodies.get(inputs(&broken), version).await.unwrap().unwrap_err();
    let again = bodies.get(inputs(&broken), version).await.unwrap().unwrap_err();
    assert!(Arc::ptr_eq(&first, &again));
}
