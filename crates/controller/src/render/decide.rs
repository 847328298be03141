//! Everything that can be said without writing: a pool's rendered config, or why there is none.

use std::{collections::BTreeSet, sync::Arc};

use kube::{Api, ResourceExt as _};
use mco_api::{
    ControllerConfig, MachineConfig, MachineConfigPool, annotation,
    condition::ControllerConfigConditionType as Phase,
};
use mco_cluster::{CallError, report::chain};
use mco_core::render::{self, BaseImages, Draft, Origin, OsImage, Rendered, Selection};
use tracing::warn;

use crate::{Context, error::ActError, remote};

/// What comes of a pool's configs.
pub(super) enum Decision {
    /// A config.
    Render(Box<Outcome>),
    /// Nothing: the selector would take every config of the cluster.
    SelectsEverything,
    /// Nothing yet, because of this.
    NotYet(String),
}

/// A rendered config, and what to say about it.
pub(super) struct Outcome {
    pub(super) rendered: Rendered,
    /// It as an object.
    pub(super) object: MachineConfig,
    /// The OS image that the ControllerConfig names, for people.
    pub(super) cluster_image: String,
}

/// Why there is no config.
pub(super) enum Trouble {
    /// It is in the inputs, and goes when they change.
    Inputs(String),
    /// It may pass by itself.
    Passing(String),
    /// The API server did not answer.
    Call(ActError),
}

impl Trouble {
    fn inputs(error: &dyn std::error::Error) -> Self {
        Self::Inputs(chain(error))
    }
}

/// Renders the pool.
pub(super) async fn decide(
    context: &Context,
    pool: &MachineConfigPool,
) -> Result<Decision, Trouble> {
    let configs = context.caches.configs.list();
    let configs = match render::select(pool, configs.iter().map(|config| &**config)) {
        Ok(Selection::Configs(configs)) => configs,
        Ok(Selection::Everything) => return Ok(Decision::SelectsEverything),
        Err(error) => return Err(Trouble::inputs(&error)),
    };
    let Some(cluster) = context.caches.controller_config() else {
        return Ok(Decision::NotYet("there is no ControllerConfig".to_owned()));
    };
    if let Some(why) = unfinished(&cluster) {
        return Ok(Decision::NotYet(why));
    }
    let by = cluster.annotations().get(annotation::GENERATED_BY_VERSION.name());
    render::check_skew(&context.build, by.map(String::as_str), &configs)
        .map_err(|error| Trouble::inputs(&error))?;

    let name = pool.name_any().parse();
    let name = name.map_err(|error: mco_api::name::BadName| Trouble::inputs(&error))?;
    let (images, stream) = images(context, pool, &cluster)?;
    let mut draft =
        render::draft(&name, &configs, &images).map_err(|error| Trouble::inputs(&error))?;
    check_runtime(&draft, &name, &stream)?;
    remote::embed(context, &cluster, &mut draft)
        .await
        .map_err(|error| Trouble::Passing(chain(&error)))?;
    let rendered = draft.finish().map_err(|error| Trouble::inputs(&error))?;
    let outcome = outcome(context, pool, &cluster, rendered)?;
    check_reconcilable(context, pool, &configs, &outcome.object).await?;
    Ok(Decision::Render(Box::new(outcome)))
}

/// The images that apply where no config names another, and the stream that they are of, if any.
fn images(
    context: &Context,
    pool: &MachineConfigPool,
    cluster: &ControllerConfig,
) -> Result<(BaseImages, String), Trouble> {
    let Some(streams) = context.caches.streams() else {
        let images = BaseImages {
            os: cluster.spec.base_os_container_image.clone(),
            extensions: cluster.spec.base_os_extensions_container_image.clone(),
        };
        return Ok((images, String::new()));
    };
    let worker = context.caches.pools.get("worker");
    let stream = render::stream_of(pool, worker.as_deref(), &streams, &context.build)
        .map_err(|error| Trouble::inputs(&error))?;
    Ok((BaseImages::from(stream), stream.name.clone()))
}

fn check_runtime(draft: &Draft, pool: &mco_api::PoolName, stream: &str) -> Result<(), Trouble> {
    // What is in an image that a config names, only the registry knows.
    if draft.os_image() == OsImage::Overridden {
        return Ok(());
    }
    render::check_runtime(pool, draft.config(), stream).map_err(|error| Trouble::inputs(&error))
}

fn outcome(
    context: &Context,
    pool: &MachineConfigPool,
    cluster: &ControllerConfig,
    rendered: Rendered,
) -> Result<Outcome, Trouble> {
    let release = cluster.annotations().get(annotation::RELEASE_IMAGE_VERSION.name());
    let origin = Origin {
        controller_version: context.build.hash.clone(),
        release_version: release.cloned().unwrap_or_default(),
    };
    let object = rendered.object(pool, &origin).map_err(|error| Trouble::inputs(&error))?;
    let warning = rendered.check_size(&object).map_err(|error| Trouble::inputs(&error))?;
    if let Some(warning) = warning {
        warn!(config = %rendered.name, size = warning.size, "The rendered config is close to the limit");
    }
    Ok(Outcome { rendered, object, cluster_image: cluster.spec.os_image_url.clone() })
}

/// Refuses what the pool's nodes, which run its present config, could not take in place.
async fn check_reconcilable(
    context: &Context,
    pool: &MachineConfigPool,
    configs: &[&MachineConfig],
    next: &MachineConfig,
) -> Result<(), Trouble> {
    let present = &pool.spec.configuration;
    let name = present.rendered.name.clone();
    if name.is_empty() || name == next.name_any() {
        return Ok(());
    }
    let api = Api::<MachineConfig>::all(context.client.clone());
    let current = api.get_opt(&name).await.map_err(CallError::from);
    let current = current.map_err(|source| Trouble::Call(ActError::ReadConfig { name, source }))?;
    // Compat: nothing is checked against a config that is gone (pkg/controller/render).
    let Some(current) = current else { return Ok(()) };
    let known: BTreeSet<&str> = present.source.iter().map(|one| one.name.as_str()).collect();
    let settings = context.caches.settings();
    let overrides = settings
        .as_ref()
        .and_then(|settings| settings.spec.irreconcilable_validation_overrides.as_ref());
    let overrides = overrides.map(|overrides| overrides.storage.as_slice()).unwrap_or_default();
    render::check_reconcilable(&current, next, configs, &known, overrides).map_err(|error| {
        Trouble::Inputs(format!("could not generate rendered MachineConfig: {}", chain(&error)))
    })
}

/// Why the base configs may still change, if they may.
fn unfinished(cluster: &Arc<ControllerConfig>) -> Option<String> {
    let name = cluster.name_any();
    let status = cluster.status.clone().unwrap_or_default();
    let (seen, wanted) = (status.observed_generation, cluster.metadata.generation.unwrap_or(0));
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
            // generation, the one that the status is of, conditions that hold, what is awaited
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
            let cluster: ControllerConfig = serde_json::from_value(json!({
                "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ControllerConfig",
                "metadata": {"name": "machine-config-controller", "generation": generation},
                "spec": {},
                "status": {"observedGeneration": seen, "conditions": conditions},
            }))
            .unwrap();
            let why = unfinished(&Arc::new(cluster));
            match (&why, expected) {
                (None, None) => {}
                (Some(why), Some(expected)) => assert!(why.ends_with(expected), "{why}"),
                _ => panic!("{why:?}, not {expected:?}"),
            }
        }
    }
}
