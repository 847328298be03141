//! Generates the rendered config of one pool. Fetches remote contents, writes nothing.

use std::{collections::BTreeSet, sync::Arc};

use kube::ResourceExt as _;
use mco_api::{
    ControllerConfig, KubeletConfig, MachineConfig, MachineConfigPool, annotation,
    condition::ControllerConfigConditionType as Phase, selector,
};
use mco_cluster::{Api, CallError, report::chain, watch::Unreadable};
use mco_core::{
    container_runtime, generated,
    kubelet::{self, Progress},
    render::{self, BaseImages, Draft, Origin, OsImage, Rendered, Selection},
    takeover::Tenure,
};
use tracing::warn;

use crate::{Context, error::ActError, remote};

/// Result of rendering a pool.
pub(super) enum RenderOutcome {
    /// A rendered config.
    Rendered(Box<RenderedObject>),
    /// No config: the selector would select every MachineConfig of the cluster.
    SelectsEverything,
    /// No config yet, with the reason.
    NotReady(String),
    /// No config yet: another build of the operator wrote the inputs, as in the middle of an upgrade.
    Skewed(String),
}

/// A rendered config and the object to create.
pub(super) struct RenderedObject {
    pub(super) rendered: Rendered,
    /// The MachineConfig to create.
    pub(super) object: MachineConfig,
    /// The OS image of the ControllerConfig, for the event text.
    pub(super) default_image: String,
}

/// A failure to render a pool.
pub(super) enum RenderFailure {
    /// The inputs are wrong; rendering fails until they change.
    Inputs(String),
    /// A failure that may pass without a change of the inputs.
    Transient(String),
    /// A failed request to the API server.
    Api(ActError),
}

impl RenderFailure {
    fn inputs(error: &(dyn std::error::Error + 'static)) -> Self {
        Self::Inputs(chain(error))
    }
}

/// Renders the pool and fetches what rendering needs: remote contents and the pool's current
/// config.
pub(super) async fn run_render(
    context: &Context,
    pool: &MachineConfigPool,
) -> Result<RenderOutcome, RenderFailure> {
    let configs = context.caches.configs.list();
    let configs = match render::select(pool, configs.iter().map(|config| &**config)) {
        Ok(Selection::Configs(configs)) => configs,
        Ok(Selection::Everything) => return Ok(RenderOutcome::SelectsEverything),
        Err(error) => return Err(RenderFailure::inputs(&error)),
    };
    if let Some(config) = undecodable(pool, &context.caches.configs.unreadable()) {
        return Err(RenderFailure::Inputs(config.to_string()));
    }
    let Some(controller_config) = context.caches.controller_config() else {
        return Ok(RenderOutcome::NotReady("there is no ControllerConfig".to_owned()));
    };
    if let Some(why) = unfinished(&controller_config) {
        return Ok(RenderOutcome::NotReady(why));
    }
    if let Some(why) = unsettled(context, pool) {
        return Ok(RenderOutcome::NotReady(why));
    }
    let by = controller_config.annotations().get(annotation::GENERATED_BY_VERSION.name());
    if let Err(skew) = render::check_skew(&context.build, by.map(String::as_str), &configs) {
        if !skew.is_passing() {
            return Err(RenderFailure::inputs(&skew));
        }
        return Ok(RenderOutcome::Skewed(skew.to_string()));
    }
    let mut draft = draft(context, pool, &configs, &controller_config)?;
    remote::fetch_and_embed(context, &controller_config, &mut draft)
        .await
        .map_err(|error| RenderFailure::Transient(chain(&error)))?;
    let rendered = draft.finish().map_err(|error| RenderFailure::inputs(&error))?;
    let outcome = object(context, pool, &controller_config, rendered)?;
    if let Some(current) = fetch_current(context, pool, &outcome.object).await? {
        check_reconcilable(context, pool, &current, &configs, &outcome.object)?;
    }
    Ok(RenderOutcome::Rendered(Box::new(outcome)))
}

/// Returns a MachineConfig of the pool that cannot be decoded. If its labels cannot either, it may
/// belong to any pool.
fn undecodable<'a>(
    pool: &MachineConfigPool,
    configs: &'a [Arc<Unreadable>],
) -> Option<&'a Unreadable> {
    let selector = pool.spec.machine_config_selector.as_ref();
    let is_selected = |config: &&Unreadable| match (selector, &config.labels) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(selector), Some(labels)) => selector::matches(selector, labels).unwrap_or(true),
    };
    // A rendered config has no role, and no pool selects it.
    configs.iter().map(|config| &**config).find(is_selected)
}

/// Merges the configs of the pool and checks the container runtime.
fn draft(
    context: &Context,
    pool: &MachineConfigPool,
    configs: &[&MachineConfig],
    controller_config: &ControllerConfig,
) -> Result<Draft, RenderFailure> {
    let name = pool.name_any().parse();
    let name = name.map_err(|error: mco_api::name::NameError| RenderFailure::inputs(&error))?;
    let (images, stream) = images(context, pool, controller_config)?;
    let draft =
        render::draft(&name, configs, &images).map_err(|error| RenderFailure::inputs(&error))?;
    check_runtime(&draft, &name, &stream)?;
    Ok(draft)
}

/// Returns the images that apply where no config names another, and the name of their stream, if
/// any.
fn images(
    context: &Context,
    pool: &MachineConfigPool,
    controller_config: &ControllerConfig,
) -> Result<(BaseImages, String), RenderFailure> {
    let Some(streams) = context.caches.os_image_stream() else {
        let images = BaseImages {
            os: controller_config.spec.base_os_container_image.clone(),
            extensions: controller_config.spec.base_os_extensions_container_image.clone(),
        };
        return Ok((images, String::new()));
    };
    let worker = context.caches.pools.get("worker");
    let stream = render::stream_of(pool, worker.as_deref(), &streams, &context.build)
        .map_err(|error| RenderFailure::inputs(&error))?;
    Ok((BaseImages::from(stream), stream.name.clone()))
}

fn check_runtime(
    draft: &Draft,
    pool: &mco_api::PoolName,
    stream: &str,
) -> Result<(), RenderFailure> {
    // The contents of an image that a config names are known only to its registry.
    if draft.os_image() == OsImage::Overridden {
        return Ok(());
    }
    render::check_runtime(pool, draft.config(), stream)
        .map_err(|error| RenderFailure::inputs(&error))
}

fn object(
    context: &Context,
    pool: &MachineConfigPool,
    controller_config: &ControllerConfig,
    rendered: Rendered,
) -> Result<RenderedObject, RenderFailure> {
    let release = controller_config.annotations().get(annotation::RELEASE_IMAGE_VERSION.name());
    let origin = Origin {
        controller_version: context.build.hash.clone(),
        release_version: release.cloned().unwrap_or_default(),
    };
    let object = rendered.object(pool, &origin).map_err(|error| RenderFailure::inputs(&error))?;
    let object = marked(context, object);
    let warning = rendered.check_size(&object).map_err(|error| RenderFailure::inputs(&error))?;
    if let Some(warning) = warning {
        warn!(config = %rendered.name, size = warning.size, "Rendered config is close to the size limit");
    }
    let default_image = controller_config.spec.os_image_url.clone();
    Ok(RenderedObject { rendered, object, default_image })
}

/// Marks a config that is rendered on a cluster of another operator, so that it can be told from those
/// that the other operator rendered.
fn marked(context: &Context, mut object: MachineConfig) -> MachineConfig {
    if context.tenure == Tenure::TakenOver {
        annotation::RENDERED_BY_MCO.set(object.annotations_mut(), &true);
    }
    object
}

/// Reads the current config of the pool, unless it has none or `next` is the same config.
///
/// Compat: nothing is checked against a config that was deleted (pkg/controller/render).
async fn fetch_current(
    context: &Context,
    pool: &MachineConfigPool,
    next: &MachineConfig,
) -> Result<Option<MachineConfig>, RenderFailure> {
    let name = pool.spec.configuration.rendered.name.clone();
    if name.is_empty() || name == next.name_any() {
        return Ok(None);
    }
    let api = Api::<MachineConfig>::all(context.client.clone());
    let current = api.get_opt(&name).await.map_err(CallError::from);
    current.map_err(|source| RenderFailure::Api(ActError::ReadConfig { name, source }))
}

/// Rejects changes that the pool's nodes, which run its current config, cannot apply in place.
fn check_reconcilable(
    context: &Context,
    pool: &MachineConfigPool,
    current: &MachineConfig,
    configs: &[&MachineConfig],
    next: &MachineConfig,
) -> Result<(), RenderFailure> {
    let sources = pool.spec.configuration.source.iter();
    let known: BTreeSet<&str> = sources.map(|one| one.name.as_str()).collect();
    let settings = context.caches.machine_configuration();
    let overrides = settings
        .as_ref()
        .and_then(|settings| settings.spec.irreconcilable_validation_overrides.as_ref());
    let overrides = overrides.map(|overrides| overrides.storage.as_slice()).unwrap_or_default();
    render::check_reconcilable(current, next, configs, &known, overrides).map_err(|error| {
        let cause = chain(&error);
        RenderFailure::Inputs(format!("could not generate rendered MachineConfig: {cause}"))
    })
}

/// Returns the reason why a MachineConfig that is generated for the pool may still change, if it may:
/// nodes would be updated twice. Settings that are refused do not hold up the pool.
fn unsettled(context: &Context, pool: &MachineConfigPool) -> Option<String> {
    let caches = &context.caches;
    let exists = |name: &str| caches.configs.get(name).is_some();
    let configs = caches.kubelet_configs.list();
    let is_pending = |config: &&Arc<KubeletConfig>| {
        let selector = config.spec.machine_config_pool_selector.as_ref();
        generated::selects(selector, pool).unwrap_or_default()
            && kubelet::progress(config, &pool.name_any(), exists) == Progress::Pending
    };
    if let Some(pending) = configs.iter().find(is_pending) {
        return Some(format!("KubeletConfig {} has not been applied yet", pending.name_any()));
    }
    let configs = caches.container_runtime_configs.list();
    let pending = configs.iter().find(|config| {
        let selector = config.spec.machine_config_pool_selector.as_ref();
        generated::selects(selector, pool).unwrap_or_default()
            && container_runtime::is_pending(config, &pool.name_any(), exists)
    })?;
    Some(format!("ContainerRuntimeConfig {} has not been applied yet", pending.name_any()))
}

/// Returns the reason why the base configs may still change, if they may.
pub(crate) fn unfinished(controller_config: &Arc<ControllerConfig>) -> Option<String> {
    let name = controller_config.name_any();
    let status = controller_config.status.clone().unwrap_or_default();
    let wanted = controller_config.metadata.generation.unwrap_or(0);
    let seen = status.observed_generation;
    if seen != wanted {
        return Some(format!(
            "status for ControllerConfig {name} is being reported for {seen}, expecting it for {wanted}"
        ));
    }
    let holds = |kind: &Phase| {
        let found = status.conditions.iter().find(|condition| condition.kind == kind.as_str());
        found.is_some_and(|condition| condition.status == "True")
    };
    let completed = holds(&Phase::TemplateControllerCompleted);
    let running = holds(&Phase::TemplateControllerRunning);
    let failing = holds(&Phase::TemplateControllerFailing);
    (!completed || running || failing).then(|| {
        format!(
            "ControllerConfig has not completed: \
             completed({completed}) running({running}) failing({failing})"
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // covers: REN-8
    #[test]
    fn nothing_is_rendered_before_the_base_configs_are_complete() {
        let rows = [
            // generation, observed generation, true conditions, expected reason
            (1, 1, "Completed", None),
            (2, 1, "Completed", Some("is being reported for 1, expecting it for 2")),
            (1, 1, "", Some("completed(false) running(false) failing(false)")),
            (1, 1, "Running", Some("completed(false) running(true) failing(false)")),
            (1, 1, "Completed Running", Some("completed(true) running(true) failing(false)")),
            (1, 1, "Completed Failing", Some("completed(true) running(false) failing(true)")),
        ];
        for (generation, seen, holding, expected) in rows {
            let conditions = ["Completed", "Running", "Failing"].map(|kind| {
                let holds = holding.split(' ').any(|word| word == kind);
                json!({
                    "type": format!("TemplateController{kind}"),
                    "status": if holds { "True" } else { "False" },
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                })
            });
            let config: ControllerConfig = serde_json::from_value(json!({
                "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ControllerConfig",
                "metadata": {"name": "machine-config-controller", "generation": generation},
                "spec": {},
                "status": {"observedGeneration": seen, "conditions": conditions},
            }))
            .unwrap();
            let why = unfinished(&Arc::new(config));
            match (&why, expected) {
                (None, None) => {}
                (Some(why), Some(expected)) => assert!(why.ends_with(expected), "{why}"),
                _ => panic!("{why:?}, not {expected:?}"),
            }
        }
    }
}
