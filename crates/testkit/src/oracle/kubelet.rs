//! Suite: a KubeletConfig, a pool and a base file, and the files that the reference makes of them, or
//! its refusal.
//!
//! Where a kubelet would not start with the settings, `mco` refuses them and the reference does not:
//! a field that does not exist, a value out of range. The files are compared in any case.

use std::{collections::BTreeMap, path::Path};

use mco_api::{
    KubeletConfig, MachineConfig, MachineConfigPool,
    openshift::{FeatureGate, Node},
};
use mco_core::{
    cluster_settings::ClusterSettings,
    generated::{self, GeneratedFile},
    kubelet::{self, Inputs, Refusal},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{beside, parsed, text};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input {
    kubelet_config: Value,
    pool: Value,
    base: String,
    #[serde(default)]
    feature_gates: BTreeMap<String, bool>,
    #[serde(default)]
    worker_latency_profile: String,
}

pub(super) fn check(folder: &Path, input: &str, expect: &Value) -> Result<(), String> {
    let input: Input = parsed(input)?;
    let decode = |error: serde_json::Error| format!("failed to decode an object: {error}");
    let config: KubeletConfig =
        serde_json::from_value(input.kubelet_config.clone()).map_err(decode)?;
    let pool: MachineConfigPool = serde_json::from_value(input.pool.clone()).map_err(decode)?;
    refused("error", expect, kubelet::validate(&config).err())?;
    refused("staticPodPathError", expect, kubelet::check_static_pod_path(&config, &pool).err())?;
    let settings = settings(&input.feature_gates, &input.worker_latency_profile)?;
    let latency = kubelet::latency_profile(settings.node.as_ref());
    let said = latency.as_ref().err().map(ToString::to_string);
    same("latencyError", text(expect, "latencyError"), said.as_deref())?;
    let base = input.base(folder)?;
    let latency = latency.unwrap_or_default();
    let inputs =
        Inputs { pool: &pool, base: Some(&base), settings: &settings, version: "", latency };
    match kubelet::merge(&config, &inputs, "") {
        Ok(files) => {
            refused("generateError", expect, None)?;
            same_files(expect, &files)?;
        }
        Err(refusal) => refused("generateError", expect, Some(refusal))?,
    }
    match (is_accepted(expect), kubelet::generate(&config, &inputs, "")) {
        (true, Ok(_) | Err(Refusal::Faults(_))) | (false, Err(_)) => Ok(()),
        (true, Err(error)) => Err(format!("accepted by the reference, refused: {error}")),
        (false, Ok(_)) => Err("refused by the reference, accepted".to_owned()),
    }
}

impl Input {
    /// Returns a MachineConfig with the base file.
    fn base(&self, folder: &Path) -> Result<MachineConfig, String> {
        let role = if self.base == "master" { "master" } else { "worker" };
        let text = beside(folder, &format!("base.{role}.yaml"))?;
        let base = GeneratedFile::new(kubelet::CONFIGURATION, text);
        Ok(MachineConfig::new("base", generated::spec(&[base])))
    }
}

/// Returns true if the reference applies the settings.
fn is_accepted(expect: &Value) -> bool {
    let refusals = ["error", "staticPodPathError", "generateError"];
    refusals.iter().all(|member| expect.get(*member).is_none())
}

fn settings(gates: &BTreeMap<String, bool>, latency: &str) -> Result<ClusterSettings, String> {
    let named = |on: bool| -> Vec<&String> {
        gates.iter().filter(|(_, value)| **value == on).map(|(name, _)| name).collect()
    };
    let metadata = json!({"name": "cluster"});
    let features = json!({"metadata": metadata, "spec": {
        "featureSet": "CustomNoUpgrade",
        "customNoUpgrade": {"enabled": named(true), "disabled": named(false)},
    }});
    let node = json!({"metadata": metadata, "spec": {"workerLatencyProfile": latency}});
    let decode = |error: serde_json::Error| format!("failed to decode an object: {error}");
    Ok(ClusterSettings {
        feature_gate: Some(serde_json::from_value::<FeatureGate>(features).map_err(decode)?),
        node: Some(serde_json::from_value::<Node>(node).map_err(decode)?),
        ..ClusterSettings::default()
    })
}

/// Compares a refusal. Of settings that cannot be decoded only the beginning is compared: the rest
/// is the text of Go's decoder, and ours names the field.
fn refused(member: &str, expect: &Value, found: Option<Refusal>) -> Result<(), String> {
    let expected = text(expect, member);
    if let (Some(_), Some(Refusal::Decode(_))) = (expected, &found) {
        return Ok(());
    }
    let found = found.map(|refusal| refusal.to_string());
    same(member, expected, found.as_deref())
}

fn same(member: &str, expected: Option<&str>, found: Option<&str>) -> Result<(), String> {
    if expected == found {
        return Ok(());
    }
    Err(format!("{member}: expected {expected:?}, found {found:?}"))
}

fn same_files(expect: &Value, files: &[GeneratedFile]) -> Result<(), String> {
    let expected = expect.get("files").and_then(Value::as_object);
    let Some(expected) = expected else { return Err("the reference makes no files".to_owned()) };
    if expected.len() != files.len() {
        return Err(format!("expected {:?}, found {files:?}", expected.keys()));
    }
    for file in files {
        let text = String::from_utf8_lossy(&file.contents);
        let wanted = expected.get(&file.path).and_then(Value::as_str);
        if wanted != Some(&*text) {
            return Err(format!("{}: {}", file.path, lines(wanted.unwrap_or_default(), &text)));
        }
    }
    Ok(())
}

/// Returns the lines that only one of two texts has.
fn lines(expected: &str, found: &str) -> String {
    let only = |left: &str, right: &str, sign: char| -> Vec<String> {
        let other: Vec<&str> = right.lines().collect();
        let mine = left.lines().filter(|line| !other.contains(line));
        mine.map(|line| format!("{sign}{line}")).collect()
    };
    [only(expected, found, '-'), only(found, expected, '+')].concat().join("\n")
}
