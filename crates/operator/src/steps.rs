//! The steps of a reconcile, in their order.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt as _;
use mco_api::{
    Bytes, ControllerConfig, MachineConfigPool, MachineConfigPoolSpec, annotation,
    condition::ControllerConfigConditionType as Phase, controller_config::ControllerConfigSpec,
    label,
};
use mco_cluster::{
    Api, CallError,
    apply::{self, Changes, Precondition},
};
use serde_json::json;
use tracing::info;

use crate::{Context, root_ca};

/// A step that failed.
#[derive(Debug, thiserror::Error)]
#[error("{step} failed")]
pub(crate) struct StepError {
    /// Name of the step in the reference.
    pub(crate) step: &'static str,
    /// Cause of the failure.
    pub(crate) source: Box<dyn std::error::Error + Send + Sync>,
}

impl StepError {
    fn new(
        step: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { step, source: source.into() }
    }
}

/// Built-in pools, and if upgrades wait for them.
const POOLS: [(&str, Required); 2] = [("master", Required::Yes), ("worker", Required::No)];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Required {
    Yes,
    No,
}

/// Runs all steps.
pub(crate) async fn apply_all(context: &Context) -> Result<(), StepError> {
    let definitions = context.definitions.repair(&context.client).await;
    definitions.map_err(|source| StepError::new("CustomResourceDefinitions", source))?;
    let pools = apply_pools(context).await;
    pools.map_err(|source| StepError::new("MachineConfigPools", source))?;
    let config = apply_controller_config(context).await;
    config.map_err(|source| StepError::new("MachineConfigController", source))?;
    let joining = context.join_objects.apply(&context.client).await;
    joining.map_err(|source| StepError::new("MachineConfigServer", source))
}

async fn apply_pools(context: &Context) -> Result<(), CallError> {
    let api = Api::<MachineConfigPool>::all(context.client.clone());
    for (name, required) in POOLS {
        let wanted = pool(name, required);
        let Some(found) = context.pools.get(name) else {
            context.pools.learn_new(apply::ensure(&api, name, &wanted).await?);
            info!(pool = name, "Created pool");
            continue;
        };
        // Only the labels belong to the operator; the rest belongs to the administrator.
        let labels: Changes = wanted
            .labels()
            .iter()
            .filter(|(key, value)| found.labels().get(*key) != Some(value))
            .map(|(key, value)| (key.clone(), Some(value.clone())))
            .collect();
        if !labels.is_empty() {
            let patch = json!({"metadata": {"labels": labels}});
            context.pools.learn(apply::merge(&api, name, patch, Precondition::Any).await?);
        }
    }
    Ok(())
}

/// Returns the pools that every cluster has.
#[must_use]
pub fn built_in_pools() -> Vec<MachineConfigPool> {
    POOLS.iter().map(|(name, required)| pool(name, *required)).collect()
}

fn pool(name: &str, required: Required) -> MachineConfigPool {
    let selector = |key: String, value: &str| {
        Some(LabelSelector {
            match_labels: Some([(key, value.to_owned())].into()),
            match_expressions: None,
        })
    };
    let mut pool = MachineConfigPool::new(
        name,
        MachineConfigPoolSpec {
            machine_config_selector: selector(label::ROLE.to_owned(), name),
            node_selector: selector(format!("{}{name}", label::NODE_ROLE_PREFIX), ""),
            ..MachineConfigPoolSpec::default()
        },
    );
    let labels = pool.metadata.labels.get_or_insert_default();
    labels.insert(label::BUILT_IN_POOL.to_owned(), String::new());
    labels.insert(format!("{}{name}", label::POOL_PREFIX), String::new());
    if required == Required::Yes {
        labels.insert(label::REQUIRED_FOR_UPGRADE.to_owned(), String::new());
    }
    pool
}

/// A failure of the ControllerConfig or of the base configs that the controller derives from it.
#[derive(Debug, thiserror::Error)]
enum ControllerConfigError {
    #[error("failed to apply the ControllerConfig")]
    Apply(#[from] CallError),
    #[error("{0}")]
    Failing(String),
}

/// Applies the ControllerConfig. Fails if the controller cannot generate base configs from it.
async fn apply_controller_config(context: &Context) -> Result<(), ControllerConfigError> {
    let api = Api::<ControllerConfig>::all(context.client.clone());
    let name = label::CONTROLLER_CONFIG;
    let root_ca = root_ca::fetch(context).await?;
    let found = if let Some(found) = context.controller_configs.get(name) {
        found
    } else {
        let wanted = wanted(context, &root_ca);
        let made = apply::ensure(&api, name, &wanted).await?;
        info!("Created ControllerConfig");
        context.controller_configs.learn_new(made.clone());
        made.into()
    };
    let found = match differences(context, &found, &root_ca) {
        Some(patch) => {
            let patched = apply::merge(&api, name, patch, Precondition::Any).await?;
            context.controller_configs.learn(patched.clone());
            patched.into()
        }
        None => found,
    };
    let conditions = found.status.iter().flat_map(|status| &status.conditions);
    let failing = Phase::TemplateControllerFailing;
    let mut failing = conditions.filter(|it| it.kind == failing.as_str() && it.status == "True");
    match failing.next() {
        Some(condition) => Err(ControllerConfigError::Failing(condition.message.clone())),
        None => Ok(()),
    }
}

fn annotations(context: &Context) -> Vec<(&'static str, String)> {
    let profile = context.config.profile.iter();
    let profile = profile.map(|profile| (annotation::PROFILE.name(), profile.to_string()));
    let join_tokens = context.config.join_tokens.iter();
    let join_tokens = join_tokens.map(|mode| (annotation::JOIN_TOKENS.name(), mode.to_string()));
    let approve = context.config.approve_joins.iter();
    let approve = approve.map(|approve| (annotation::APPROVE_JOINS.name(), approve.to_string()));
    let all = [
        (annotation::GENERATED_BY_VERSION.name(), context.config.build.version.clone()),
        (annotation::RELEASE_IMAGE_VERSION.name(), context.config.release.clone()),
        (annotation::SERVICE_CA_ROTATE.name(), false.to_string()),
    ];
    all.into_iter().chain(profile).chain(join_tokens).chain(approve).collect()
}

/// Returns the images that base configs refer to. Compat: the name is the reference's.
fn release_images(context: &Context) -> BTreeMap<String, String> {
    let image = &context.config.image;
    let named = (!image.is_empty()).then(|| ("machineConfigOperator".to_owned(), image.clone()));
    named.into_iter().collect()
}

fn wanted(context: &Context, root_ca: &str) -> ControllerConfig {
    let mut wanted = ControllerConfig::new(
        label::CONTROLLER_CONFIG,
        ControllerConfigSpec {
            base_os_container_image: context.config.os_image.clone(),
            base_os_extensions_container_image: context.config.os_extensions_image.clone(),
            images: release_images(context),
            ip_families: "IPv4".to_owned(),
            kube_api_server_serving_ca_data: root_ca.as_bytes().to_vec().into(),
            root_ca_data: root_ca.as_bytes().to_vec().into(),
            ..ControllerConfigSpec::default()
        },
    );
    let annotations = annotations(context).into_iter();
    let annotations = annotations.map(|(key, value)| (key.to_owned(), value));
    wanted.metadata.annotations = Some(annotations.collect());
    wanted
}

/// Returns a patch of the operator's members that differ; members without a configured value are
/// left alone.
fn differences(
    context: &Context,
    found: &ControllerConfig,
    root_ca: &str,
) -> Option<serde_json::Value> {
    let changed = annotations(context)
        .into_iter()
        .filter(|(key, value)| found.annotations().get(*key) != Some(value));
    let annotations: Changes = changed.map(|(key, value)| (key.to_owned(), Some(value))).collect();
    let mut spec = serde_json::Map::new();
    let images = [
        ("baseOSContainerImage", &context.config.os_image, &found.spec.base_os_container_image),
        (
            "baseOSExtensionsContainerImage",
            &context.config.os_extensions_image,
            &found.spec.base_os_extensions_container_image,
        ),
    ];
    for (member, wanted, found) in images {
        if !wanted.is_empty() && wanted != found {
            spec.insert(member.to_owned(), json!(wanted));
        }
    }
    let images = release_images(context);
    if images.iter().any(|(name, image)| found.spec.images.get(name) != Some(image)) {
        spec.insert("images".to_owned(), json!(images));
    }
    let authorities = [
        ("rootCAData", &found.spec.root_ca_data),
        ("kubeAPIServerServingCAData", &found.spec.kube_api_server_serving_ca_data),
    ];
    for (member, found) in authorities {
        if found.as_slice() != root_ca.as_bytes() {
            info!(member, "CA certificates of the API server changed");
            spec.insert(member.to_owned(), json!(Bytes::from(root_ca.as_bytes().to_vec())));
        }
    }
    let same = annotations.is_empty() && spec.is_empty();
    (!same).then(|| json!({"metadata": {"annotations": annotations}, "spec": spec}))
}
