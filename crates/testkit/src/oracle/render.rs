//! Suite: MachineConfigs of a pool, and the reference's rendered config.

use mco_api::{MachineConfig, PoolName};
use mco_core::render::{self, BaseImages, RenderError, Stage};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use super::{difference, parsed, text};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Input<'a> {
    pool: String,
    controller_config: ControllerConfig,
    #[serde(borrow)]
    configs: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct ControllerConfig {
    #[serde(rename = "baseOSContainerImage")]
    os: String,
    #[serde(rename = "baseOSExtensionsContainerImage")]
    extensions: String,
}

/// Promised error texts, because users search their logs for them.
const PROMISED: [&str; 5] = [
    "kernelType=",
    "invalid extensions found: [",
    "parsing Ignition config failed: unknown version. Supported spec versions: ",
    "installing kernel-devel extension is not supported with kernelType: ",
    "unexpected user with name: ",
];

pub(super) fn check(input: &str, expect: &Value) -> Result<(), String> {
    let found = match outcome(input) {
        Ok(found) => found,
        Err((stage, text)) => json!({ "stage": stage, "error": text }),
    };
    let Some(wanted) = text(expect, "error") else {
        return difference(expect, &found).map_or(Ok(()), Err);
    };
    let words = text(&found, "error").unwrap_or_default();
    let stage = (expect.get("stage"), found.get("stage"));
    if stage.0 != stage.1 {
        return Err(format!("expected {stage:?} {wanted:?}, found {found}"));
    }
    // Other configs of the case may be invalid too; only this sentence is promised.
    match PROMISED.iter().find_map(|promised| wanted.find(promised)) {
        Some(start) if !words.contains(wanted.get(start..).unwrap_or_default()) => {
            Err(format!("expected a text with {wanted:?}, found {words:?}"))
        }
        _ => Ok(()),
    }
}

fn outcome(input: &str) -> Result<Value, (&'static str, String)> {
    let input: Input<'_> = parsed(input).map_err(|text| ("input", text))?;
    let mut configs = Vec::new();
    for text in &input.configs {
        let config: MachineConfig =
            serde_json::from_str(text.get()).map_err(|error| ("decode", error.to_string()))?;
        configs.push(config);
    }
    let pool: PoolName = input.pool.parse().map_err(|error| ("input", format!("{error}")))?;
    let images = BaseImages {
        os: input.controller_config.os,
        extensions: input.controller_config.extensions,
    };
    let configs: Vec<&MachineConfig> = configs.iter().collect();
    match render::pool(&pool, &configs, &images) {
        Ok(rendered) => Ok(json!({ "name": rendered.name, "spec": rendered.spec })),
        Err(error) => Err((stage(&error), mco_cluster::report::chain(&error))),
    }
}

fn stage(error: &RenderError) -> &'static str {
    match error.stage() {
        Stage::Validate => "validate",
        Stage::Merge => "merge",
    }
}
