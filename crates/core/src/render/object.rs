//! The rendered config as a MachineConfig object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use mco_api::{MachineConfig, MachineConfigPool, annotation};

use super::{OsImage, RenderError, Rendered};

/// Maximum size of a rendered config as JSON, in bytes: the request limit of etcd.
pub const MAX_SIZE: usize = 1_572_864;

/// Size above which the next change may exceed [`MAX_SIZE`].
const WARN_SIZE: usize = MAX_SIZE * 4 / 5;

/// The controller that rendered a config, and its release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Commit of the controller.
    pub controller_version: String,
    /// Release of the ControllerConfig.
    pub release_version: String,
}

/// A warning that the object is close to the size limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeWarning {
    /// Size in bytes.
    pub size: usize,
}

impl Rendered {
    /// Builds the object, owned by `pool` and deleted with it.
    pub fn object(
        &self,
        pool: &MachineConfigPool,
        origin: &Origin,
    ) -> Result<MachineConfig, RenderError> {
        let pool_sets_stream =
            pool.spec.os_image_stream.as_ref().is_some_and(|stream| !stream.name.is_empty());
        if self.os_image == OsImage::Overridden && pool_sets_stream {
            return Err(RenderError::StreamAndOverride);
        }
        let mut object = MachineConfig::new(self.name.as_str(), self.spec.clone());
        let annotations = object.metadata.annotations.get_or_insert_default();
        annotation::GENERATED_BY_CONTROLLER_VERSION.set(annotations, &origin.controller_version);
        annotation::RELEASE_IMAGE_VERSION.set(annotations, &origin.release_version);
        if self.os_image == OsImage::Overridden {
            annotation::OS_IMAGE_URL_OVERRIDDEN.set(annotations, &true);
        }
        object.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "machineconfiguration.openshift.io/v1".to_owned(),
            kind: "MachineConfigPool".to_owned(),
            name: pool.metadata.name.clone().unwrap_or_default(),
            uid: pool.metadata.uid.clone().unwrap_or_default(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }]);
        Ok(object)
    }

    /// Checks that `object`, made from this config, fits into etcd.
    pub fn check_size(&self, object: &MachineConfig) -> Result<Option<SizeWarning>, RenderError> {
        let mut count = Count(0);
        serde_json::to_writer(&mut count, object).expect("counting bytes cannot fail");
        match count.0 {
            size if size > MAX_SIZE => Err(RenderError::TooLarge { name: self.name.clone(), size }),
            size if size > WARN_SIZE => Ok(Some(SizeWarning { size })),
            _ => Ok(None),
        }
    }
}

/// A writer that counts bytes.
struct Count(usize);

impl std::io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
