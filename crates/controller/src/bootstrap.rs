//! Renders pools before there is a cluster: manifests in, pools and rendered configs out.
//!
//! The same functions as in a cluster make them, so that the configs have the names that the cluster
//! will give them: the first machines boot with these names.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{Resource, ResourceExt as _};
use mco_api::{
    ContainerRuntimeConfig, ControllerConfig, KubeletConfig, MachineConfig, MachineConfigPool,
    OSImageStream, PoolName, annotation, name::BadName, selector,
};
use mco_core::render::{
    self, BaseImages, Build, Origin, OsImage, RenderError, RuntimeError, SelectError, Selection,
    Skew, StreamError,
};

use crate::{
    remote::{self, Fetcher, RemoteFailure},
    render::configuration,
};

/// What the manifests hold.
#[derive(Debug, Default)]
pub struct Given {
    /// Where they are, for people.
    pub dir: String,
    /// The ControllerConfig.
    pub cluster: Option<Box<ControllerConfig>>,
    /// Whether there is a `FeatureGate` of the cluster.
    pub has_feature_gate: bool,
    /// The pools, in the order in which they come.
    pub pools: Vec<MachineConfigPool>,
    /// The MachineConfigs.
    pub configs: Vec<MachineConfig>,
    /// The KubeletConfigs.
    pub kubelet_configs: Vec<KubeletConfig>,
    /// The ContainerRuntimeConfigs.
    pub runtime_configs: Vec<ContainerRuntimeConfig>,
    /// The streams of OS images.
    pub streams: Option<Box<OSImageStream>>,
}

/// What every cluster has, of this build.
pub struct Furnishing<'f> {
    /// Which build this is.
    pub build: &'f Build,
    /// The base configs that go with a ControllerConfig.
    pub base: &'f dyn Fn(&ControllerConfig) -> Vec<MachineConfig>,
    /// The pools that every cluster has.
    pub pools: &'f [MachineConfigPool],
}

/// What comes of the manifests.
#[derive(Debug)]
pub struct Made {
    /// The pools, by name, each with its config.
    pub pools: Vec<MachineConfigPool>,
    /// The rendered configs, in the order of the pools.
    pub configs: Vec<MachineConfig>,
    /// The ControllerConfig.
    pub cluster: Box<ControllerConfig>,
}

/// Why nothing comes of the manifests.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// There is no ControllerConfig.
    #[error("error: no controllerconfig found in dir: {0:?}")]
    NoControllerConfig(String),
    /// There is no `FeatureGate`.
    #[error("error: no featuregate found in dir: {0:?}")]
    NoFeatureGate(String),
    /// Several KubeletConfigs are for one pool.
    #[error(
        "error found multiple KubeletConfigs targeting MachineConfigPool {0}. Please apply only one KubeletConfig manifest for each pool during installation"
    )]
    KubeletConfigs(String),
    /// Several ContainerRuntimeConfigs are for one pool.
    #[error(
        "error found multiple ContainerConfig targeting MachineConfigPool {0}. Please apply only one ContainerConfig manifest for each pool during installation"
    )]
    RuntimeConfigs(String),
    /// This build makes no configs of the object.
    #[error(
        "{kind} {name} is not supported yet; take it out of the manifests, or write what it asks for into a MachineConfig"
    )]
    NotYet {
        /// What it is.
        kind: &'static str,
        /// The object.
        name: String,
    },
    /// A selector is none.
    #[error("the selector of {kind} {name} is not valid")]
    Selector {
        /// What it is.
        kind: &'static str,
        /// The object.
        name: String,
        /// What is wrong.
        source: selector::BadSelector,
    },
    /// The manifests are of another build.
    #[error(transparent)]
    Skew(#[from] Skew),
    /// A pool's name is none.
    #[error("pool {pool} cannot be called so")]
    Name {
        /// The pool.
        pool: String,
        /// Why not.
        source: BadName,
    },
    /// A pool selects nothing.
    #[error("couldn't find any MachineConfigs for pool: {0}")]
    Nothing(String),
    /// A pool selects everything.
    #[error(
        "pool {0} selects all MachineConfigs; give it a machineConfigSelector that names roles"
    )]
    Everything(String),
    /// A pool's OS cannot be chosen.
    #[error("couldn't get the OSImageStream for pool {pool}")]
    Stream {
        /// The pool.
        pool: String,
        /// Why not.
        source: StreamError,
    },
    /// A pool cannot be rendered.
    #[error("cannot render pool {pool}")]
    Render {
        /// The pool.
        pool: String,
        /// Why not.
        source: Box<RenderError>,
    },
    /// A pool's OS does not have the container runtime that it asks for.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// Contents that a config names elsewhere are not there.
    #[error("cannot render pool {pool}")]
    Remote {
        /// The pool.
        pool: String,
        /// Why not.
        source: Box<RemoteFailure>,
    },
}

/// Renders the pools of the manifests.
pub async fn run(given: Given, furnishing: &Furnishing<'_>) -> Result<Made, BootstrapError> {
    let Some(cluster) = given.cluster.clone() else {
        return Err(BootstrapError::NoControllerConfig(given.dir));
    };
    if !given.has_feature_gate {
        return Err(BootstrapError::NoFeatureGate(given.dir));
    }
    let pools = one_of_each(&given.pools, furnishing.pools);
    refuse_unsupported(&given, &pools)?;
    let mut all = given.configs;
    all.extend((furnishing.base)(&cluster));
    let mut made = Made { pools: Vec::new(), configs: Vec::new(), cluster };
    let workers = pools.iter().find(|pool| pool.name_any() == "worker").cloned();
    for pool in pools {
        let inputs = Inputs {
            cluster: &made.cluster,
            configs: &all,
            build: furnishing.build,
            streams: given.streams.as_deref().filter(|streams| streams.status.is_some()),
            workers: workers.as_ref(),
        };
        let (pool, config) = Box::pin(render(pool, &inputs)).await?;
        made.pools.push(pool);
        made.configs.push(config);
    }
    Ok(made)
}

/// The pools by name. Of two that have one name, the one that somebody wrote, not the one that every
/// cluster has.
fn one_of_each(
    pools: &[MachineConfigPool],
    built_in: &[MachineConfigPool],
) -> Vec<MachineConfigPool> {
    let is_built_in = |pool: &MachineConfigPool| {
        built_in.iter().any(|own| {
            own.name_any() == pool.name_any()
                && own.spec == pool.spec
                && own.metadata.labels == pool.metadata.labels
        })
    };
    let mut chosen: BTreeMap<String, &MachineConfigPool> = BTreeMap::new();
    for pool in pools {
        let name = pool.name_any();
        if !chosen.contains_key(&name) || !is_built_in(pool) {
            chosen.insert(name, pool);
        }
    }
    chosen.into_values().cloned().collect()
}

/// Refuses what a running cluster would make configs of and this build does not.
fn refuse_unsupported(given: &Given, pools: &[MachineConfigPool]) -> Result<(), BootstrapError> {
    for pool in pools {
        let kubelet = given.kubelet_configs.iter();
        let kubelet = kubelet.map(|one| (one.name_any(), &one.spec.machine_config_pool_selector));
        if targeting("KubeletConfig", kubelet, pool)? > 1 {
            return Err(BootstrapError::KubeletConfigs(pool.name_any()));
        }
        let runtime = given.runtime_configs.iter();
        let runtime = runtime.map(|one| (one.name_any(), &one.spec.machine_config_pool_selector));
        if targeting("ContainerRuntimeConfig", runtime, pool)? > 1 {
            return Err(BootstrapError::RuntimeConfigs(pool.name_any()));
        }
    }
    let first = |kind, name: Option<String>| match name {
        Some(name) => Err(BootstrapError::NotYet { kind, name }),
        None => Ok(()),
    };
    first("KubeletConfig", given.kubelet_configs.first().map(name_of))?;
    first("ContainerRuntimeConfig", given.runtime_configs.first().map(name_of))
}

fn name_of(object: &impl Resource<DynamicType = ()>) -> String {
    object.name_any()
}

/// How many objects of a kind are for the pool.
fn targeting<'a>(
    kind: &'static str,
    objects: impl Iterator<Item = (String, &'a Option<LabelSelector>)>,
    pool: &MachineConfigPool,
) -> Result<usize, BootstrapError> {
    let mut count = 0;
    for (name, wanted) in objects {
        // Compat: here an empty selector is for nobody (pkg/controller/kubelet-config).
        let Some(wanted) = wanted.as_ref().filter(|wanted| !selector::is_empty(wanted)) else {
            continue;
        };
        let matches = selector::matches(wanted, pool.labels());
        let matches = matches.map_err(|source| BootstrapError::Selector { kind, name, source })?;
        count += usize::from(matches);
    }
    Ok(count)
}

struct Inputs<'i> {
    cluster: &'i ControllerConfig,
    configs: &'i [MachineConfig],
    build: &'i Build,
    streams: Option<&'i OSImageStream>,
    workers: Option<&'i MachineConfigPool>,
}

async fn render(
    mut pool: MachineConfigPool,
    inputs: &Inputs<'_>,
) -> Result<(MachineConfigPool, MachineConfig), BootstrapError> {
    let name = pool.name_any();
    let configs = match render::select(&pool, inputs.configs) {
        Ok(Selection::Configs(configs)) => configs,
        Ok(Selection::Everything) => return Err(BootstrapError::Everything(name)),
        Err(SelectError::Nothing(_)) => return Err(BootstrapError::Nothing(name)),
        Err(SelectError::BadSelector { pool: name, source }) => {
            return Err(BootstrapError::Selector { kind: "MachineConfigPool", name, source });
        }
    };
    let marks = inputs.cluster.annotations();
    let by = marks.get(annotation::GENERATED_BY_VERSION.name()).map(String::as_str);
    render::check_skew(inputs.build, by, &configs)?;
    let (images, stream) = images(&pool, inputs)?;
    let typed: PoolName =
        name.parse().map_err(|source| BootstrapError::Name { pool: name.clone(), source })?;
    let failed = |source| BootstrapError::Render { pool: name.clone(), source: Box::new(source) };
    let mut draft = render::draft(&typed, &configs, &images).map_err(failed)?;
    if draft.os_image() == OsImage::Base {
        render::check_runtime(&typed, draft.config(), &stream)?;
    }
    embed(&mut draft, inputs.cluster).await.map_err(|source| BootstrapError::Remote {
        pool: name.clone(),
        source: Box::new(source),
    })?;
    let rendered = draft.finish().map_err(failed)?;
    let release = marks.get(annotation::RELEASE_IMAGE_VERSION.name());
    let origin = Origin {
        controller_version: inputs.build.hash.clone(),
        release_version: release.cloned().unwrap_or_default(),
    };
    let object = rendered.object(&pool, &origin).map_err(failed)?;
    rendered.check_size(&object).map_err(failed)?;
    pool.spec.configuration = configuration(&rendered);
    pool.status.get_or_insert_default().configuration = pool.spec.configuration.clone();
    Ok((pool, object))
}

fn images(
    pool: &MachineConfigPool,
    inputs: &Inputs<'_>,
) -> Result<(BaseImages, String), BootstrapError> {
    let Some(streams) = inputs.streams else {
        let spec = &inputs.cluster.spec;
        let images = BaseImages {
            os: spec.base_os_container_image.clone(),
            extensions: spec.base_os_extensions_container_image.clone(),
        };
        return Ok((images, String::new()));
    };
    let stream = render::stream_of(pool, inputs.workers, streams, inputs.build);
    let stream =
        stream.map_err(|source| BootstrapError::Stream { pool: pool.name_any(), source })?;
    Ok((BaseImages::from(stream), stream.name.clone()))
}

async fn embed(draft: &mut render::Draft, cluster: &ControllerConfig) -> Result<(), RemoteFailure> {
    if draft.remote().is_empty() {
        return Ok(());
    }
    let Some(reach) = remote::reach(None, cluster)? else { return Ok(()) };
    remote::embed_once(&Fetcher::for_cluster(cluster, reach).await, draft).await
}

#[cfg(test)]
mod tests;
