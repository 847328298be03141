//! The MachineConfig with the files for registries and signatures of a pool.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use mco_api::{MachineConfig, openshift::Image};

use super::{BaseFiles, ImageConfig, ImageConfigError, containerd::NoEffect};
use crate::{container_runtime::Engines, generated, render::Build};

/// The MachineConfig of a pool, and the settings that it does not contain.
#[derive(Clone, Debug, PartialEq)]
pub struct ImageConfigPlan {
    /// The MachineConfig; `None` if the pool needs none.
    pub config: Option<MachineConfig>,
    /// Settings that have no effect on nodes with containerd.
    pub without_effect: Vec<NoEffect>,
}

/// A cluster's need for a MachineConfig without files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmptyConfig {
    /// The MachineConfig exists without settings too, as in the reference.
    Kept,
    /// The MachineConfig exists only if there are settings: it would change the rendered config for
    /// nothing.
    LeftOut,
}

/// Returns the name of a pool's MachineConfig.
#[must_use]
pub fn config_name(pool: &str) -> String {
    format!("99-{pool}-generated-registries")
}

impl ImageConfig {
    /// Builds the MachineConfig of a pool.
    pub fn plan(
        &self,
        pool: &str,
        base: BaseFiles<'_>,
        engines: Engines,
        empty: EmptyConfig,
        image: Option<&Image>,
        build: &Build,
    ) -> Result<ImageConfigPlan, ImageConfigError> {
        self.check()?;
        let (mut files, mut without_effect) = (Vec::new(), Vec::new());
        if engines.has_crio() {
            files.extend(self.crio_files(base)?);
        }
        if engines.has_containerd() {
            let made = self.containerd_files()?;
            files.extend(made.files);
            without_effect = made.without_effect;
        }
        let is_needed = !files.is_empty() || empty == EmptyConfig::Kept;
        let config = is_needed.then(|| {
            let (name, spec) = (config_name(pool), generated::spec(&files));
            generated::machine_config(&name, pool, spec, build, image.and_then(owner))
        });
        Ok(ImageConfigPlan { config, without_effect })
    }
}

/// Builds the reference to the Image; one of the ConfigMap is no object of the cluster.
///
/// Compat: the Image does not control the MachineConfig.
fn owner(image: &Image) -> Option<OwnerReference> {
    let uid = image.metadata.uid.clone()?;
    Some(OwnerReference {
        api_version: "config.openshift.io/v1".to_owned(),
        kind: "Image".to_owned(),
        name: image.metadata.name.clone().unwrap_or_default(),
        uid,
        ..OwnerReference::default()
    })
}
