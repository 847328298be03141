//! Suite: a ContainerRuntimeConfig, or the settings of a cluster for registries and signatures, and the
//! files that the reference makes of them.

use std::path::Path;

use mco_api::{
    ContainerRuntimeConfig,
    openshift::{
        ClusterImagePolicy, Image, ImageContentSourcePolicy, ImageDigestMirrorSet, ImagePolicy,
        ImageTagMirrorSet, image::ImageSpec,
    },
};
use mco_cluster::report::chain;
use mco_core::{
    cluster_settings::ClusterSettings,
    container_runtime::{self, AdditionalStores},
    generated::GeneratedFile,
    image_config::{BaseFiles, ImageConfig},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{beside, difference, parsed, put, text};

pub(super) fn check(folder: &Path, input: &str, expect: &Value) -> Result<(), String> {
    let value: Value = parsed(input)?;
    let found = if value.get("containerRuntimeConfig").is_some() {
        runtime_config(folder, input)?
    } else {
        image_config(folder, input)?
    };
    // The reference drops all lists and goes on if the payload has no valid name at a mirror: blocked
    // registries would be reachable. Here the settings are refused.
    let is_dropped = text(expect, "blockedWarning").is_some_and(|warning| {
        ["rewriting reference: ", "loading registries ", "internal error: "]
            .iter()
            .any(|start| warning.starts_with(start))
    });
    let is_refused = |found: &Value| text(found, "error").is_some();
    if is_dropped && is_refused(&found) {
        return Ok(());
    }
    compare(expect, &found)
}

/// Compares the results. Errors of decoders depend on the decoder, and which of several invalid policies
/// is named depends on the order of a map.
fn compare(expect: &Value, found: &Value) -> Result<(), String> {
    let (mut expect, mut found) = (expect.clone(), found.clone());
    let has_variants = expect.get("variants").is_some();
    put(&mut expect, "variants", Value::Null);
    for member in ["error", "storageError"] {
        let (Some(wanted), Some(seen)) = (text(&expect, member), text(&found, member)) else {
            continue;
        };
        let same_start = |start: &str| wanted.starts_with(start) && seen.contains(start);
        let is_decoder = same_start("error decoding crio config: ");
        let is_nesting = ["is not nested inside allowedRegistries", "is nested inside blocked"]
            .iter()
            .any(|words| wanted.contains(words) && seen.contains(words));
        // The object that an error is about comes first here.
        if has_variants || is_decoder || is_nesting || seen.ends_with(wanted) {
            put(&mut expect, member, Value::Null);
            put(&mut found, member, Value::Null);
        }
    }
    difference(&expect, &found).map_or(Ok(()), Err)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RuntimeInput {
    container_runtime_config: ContainerRuntimeConfig,
    additional_storage_config: Option<bool>,
    storage_conf: Option<String>,
}

fn runtime_config(folder: &Path, input: &str) -> Result<Value, String> {
    let input: RuntimeInput = parsed(input)?;
    let settings = &input.container_runtime_config.spec.container_runtime_config;
    let stores = match input.additional_storage_config {
        Some(false) => AdditionalStores::Disabled,
        Some(true) | None => AdditionalStores::Enabled,
    };
    let mut found = json!({
        "needsStorageUpdate": container_runtime::needs_storage(settings, stores),
        "needsCRIODropins": container_runtime::needs_drop_ins(settings, stores),
        "crioDropins": files(&container_runtime::drop_ins(settings, stores)),
    });
    if let Err(error) = container_runtime::check(settings) {
        put(&mut found, "error", json!(chain(&error)));
    }
    let base = match input.storage_conf {
        Some(text) => text,
        None => beside(folder, "base.storageConf")?,
    };
    match container_runtime::storage_conf(&base, settings, stores) {
        Ok(text) => put(&mut found, "storageConf", json!(text)),
        Err(error) => put(&mut found, "storageError", json!(chain(&error))),
    }
    Ok(found)
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ImageInput {
    image_spec: Option<ImageSpec>,
    release_image: String,
    image_digest_mirror_sets: Vec<ImageDigestMirrorSet>,
    image_tag_mirror_sets: Vec<ImageTagMirrorSet>,
    image_content_source_policies: Vec<ImageContentSourcePolicy>,
    cluster_image_policies: Vec<ClusterImagePolicy>,
    image_policies: Vec<ImagePolicy>,
}

fn image_config(folder: &Path, input: &str) -> Result<Value, String> {
    let input: ImageInput = parsed(input)?;
    let settings = ClusterSettings {
        image: input.image_spec.map(|spec| Image { spec, ..Image::default() }),
        digest_mirror_sets: input.image_digest_mirror_sets,
        tag_mirror_sets: input.image_tag_mirror_sets,
        content_source_policies: input.image_content_source_policies,
        cluster_image_policies: input.cluster_image_policies,
        image_policies: input.image_policies,
        ..ClusterSettings::default()
    };
    let without_policies = ClusterSettings {
        cluster_image_policies: Vec::new(),
        image_policies: Vec::new(),
        ..settings.clone()
    };
    let release = Some(input.release_image.as_str());
    let mut found = json!({});
    let read = ImageConfig::read(&without_policies, release).and_then(|config| {
        let lists = config.lists();
        put(&mut found, "registriesBlocked", json!(lists.blocked));
        put(&mut found, "policyBlocked", json!(lists.policy_blocked));
        put(&mut found, "allowed", json!(lists.allowed));
        put(&mut found, "blockedWarning", json!(lists.warning()));
        ImageConfig::read(&settings, release)
    });
    let (registries, policy) =
        (beside(folder, "base.registriesConf")?, beside(folder, "base.policyJSON")?);
    let base = BaseFiles { registries: Some(&registries), policy: Some(&policy) };
    match read.and_then(|config| config.crio_files(base)) {
        Ok(made) => put(&mut found, "files", files(&made)),
        Err(error) => put(&mut found, "error", json!(chain(&error))),
    }
    Ok(found)
}

fn files(files: &[GeneratedFile]) -> Value {
    let file = |file: &GeneratedFile| json!({"path": file.path, "data": String::from_utf8_lossy(&file.contents)});
    Value::Array(files.iter().map(file).collect())
}
