//! Builds the Ignition document of a machine: the config of its pool, and the files that only its
//! first boot needs.
//!
//! The functions are pure: the same inputs and version give the same bytes, so documents can be
//! cached.
//!
//! The order of the added files is the reference's (pkg/server/server.go): node annotations,
//! kubeconfig, the config as it was served, CA certificates of registries, and last the config
//! without its Ignition part, from which the first boot takes the settings that Ignition does not
//! apply: the OS image, kernel arguments, extensions.

mod layout;
mod object;

use std::{collections::BTreeMap, sync::Arc};

use mco_api::{ControllerConfig, MachineConfig, RawConfig, annotation};
use mco_ignition::{
    Config, ConvertError, ReadError, Spec, TargetVersion, UpgradeError,
    config::{File, KernelArguments, Resource},
    convert, data_url, read,
};

pub use object::WriteError;

const KUBELET_CA: &str = "/etc/kubernetes/kubelet-ca.crt";
const CLOUD_CA: &str = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem";
const NODE_ANNOTATIONS: &str = "/etc/machine-config-daemon/node-annotations.json";
const KUBECONFIG: &str = "/etc/kubernetes/kubeconfig";
const REGISTRY_CAS: &str = "/etc/docker/certs.d";
const SERVED_CONFIG: &str = "/etc/mcs-machine-config-content.json";
const ENCAPSULATED: &str = "/etc/ignition-machine-config-encapsulated.json";

/// Mode rw-r--r-- of all added files.
const MODE: i64 = 0o644;

/// All inputs of a document but the Ignition version.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// The config to serve.
    pub config: Arc<MachineConfig>,
    /// Additions for a machine that joins a cluster; `None` adds nothing.
    pub first_boot: Option<FirstBoot>,
}

/// The objects that a machine needs to join a cluster.
#[derive(Clone, Debug)]
pub struct FirstBoot {
    /// Source of the current CA certificates, which are newer than those in a paused pool's config.
    pub controller: Arc<ControllerConfig>,
    /// Kubeconfig of the kubelet; `None` if the server has no token.
    pub kubeconfig: Option<Kubeconfig>,
    /// CA certificates of image registries, which a machine needs before it has joined.
    pub registry_cas: Vec<RegistryCa>,
    /// Ignition version of the empty config in the encapsulated object.
    pub encapsulated: EncapsulatedVersion,
}

/// Ignition version of the empty config in the encapsulated object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EncapsulatedVersion {
    /// The version that the machine requested.
    #[default]
    Requested,
    /// The newest version. Compat: served by `bootstrap` (`pkg/server/bootstrap_server.go`).
    Newest,
}

/// CA certificates of an image registry.
#[derive(Clone, Debug)]
pub struct RegistryCa {
    /// Host of the registry, with its port if it has one.
    pub host: Arc<str>,
    /// The certificates, as PEM.
    pub pem: Arc<[u8]>,
}

/// A kubeconfig as it is written to the disk. `Debug` does not print it, because it contains a token.
#[derive(Clone)]
pub struct Kubeconfig(pub Arc<[u8]>);

impl PartialEq for Kubeconfig {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Eq for Kubeconfig {}

impl std::fmt::Debug for Kubeconfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kubeconfig({} bytes)", self.0.len())
    }
}

/// A failure to build a document.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The Ignition part of the config cannot be parsed.
    #[error("parsing Ignition config failed with error: {0}")]
    Read(ReadError),
    /// The Ignition part of the config cannot be upgraded to the newest version.
    #[error("parsing Ignition config failed with error: {0}")]
    Upgrade(UpgradeError),
    /// The config removes kernel arguments; below 3.3 only additions can be applied by other means.
    #[error("can't serve version {0} with ignition KernelArguments.ShouldNotExist populated")]
    RemovesKernelArguments(TargetVersion),
    /// The requested version cannot express the config.
    #[error("couldn't convert config to version {to}")]
    Convert {
        /// The requested version.
        to: TargetVersion,
        /// The feature that it does not support.
        source: ConvertError,
    },
    /// The object cannot be serialized.
    #[error("failed to serialize the config as JSON")]
    Write(#[from] WriteError),
}

impl Inputs {
    /// Returns true if a document built from `other` has the same bytes.
    ///
    /// Objects come from a cache that allocates a new one for each change, so pointer equality
    /// means equality. A ControllerConfig often changes in members that are not used here.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let first_boot = match (&self.first_boot, &other.first_boot) {
            (Some(one), Some(two)) => one.is_same(two),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        Arc::ptr_eq(&self.config, &other.config) && first_boot
    }

    /// Returns the name of the config.
    #[must_use]
    pub fn name(&self) -> &str {
        self.config.metadata.name.as_deref().unwrap_or_default()
    }
}

impl FirstBoot {
    /// Returns the additions for a machine that joins a running cluster.
    #[must_use]
    pub fn new(controller: Arc<ControllerConfig>, kubeconfig: Option<Kubeconfig>) -> Self {
        let encapsulated = EncapsulatedVersion::Requested;
        Self { controller, kubeconfig, registry_cas: Vec::new(), encapsulated }
    }

    fn is_same(&self, other: &Self) -> bool {
        let controllers = Arc::ptr_eq(&self.controller, &other.controller)
            || authorities(&self.controller) == authorities(&other.controller);
        let registry_cas = self.registry_cas.len() == other.registry_cas.len()
            && self.registry_cas.iter().zip(&other.registry_cas).all(|(one, two)| one.is_same(two));
        controllers
            && registry_cas
            && self.kubeconfig == other.kubeconfig
            && self.encapsulated == other.encapsulated
    }
}

impl RegistryCa {
    fn is_same(&self, other: &Self) -> bool {
        let pem = Arc::ptr_eq(&self.pem, &other.pem) || self.pem == other.pem;
        self.host == other.host && pem
    }
}

/// Builds the document in version `to`.
pub fn build(inputs: &Inputs, to: TargetVersion) -> Result<Vec<u8>, BuildError> {
    let raw = inputs.config.spec.config.as_ref().map_or("", RawConfig::get);
    let document = read(raw.as_bytes()).map_err(BuildError::Read)?;
    let mut ignition = document.upgrade().map_err(BuildError::Upgrade)?;
    if let Some(first_boot) = &inputs.first_boot {
        add_first_boot(&mut ignition, &inputs.config, first_boot, to)?;
    }
    convert(ignition, to).map_err(|source| BuildError::Convert { to, source })
}

fn add_first_boot(
    ignition: &mut Config,
    config: &MachineConfig,
    first_boot: &FirstBoot,
    to: TargetVersion,
) -> Result<(), BuildError> {
    // A copy: the object is shared, and the next request must not see these changes.
    let mut config = config.clone();
    move_kernel_arguments(ignition, &mut config, to)?;
    for (path, certificates) in authorities(&first_boot.controller) {
        refresh(ignition, path, certificates);
    }
    add(ignition, NODE_ANNOTATIONS, &node_annotations(&config)?);
    if let Some(Kubeconfig(kubeconfig)) = &first_boot.kubeconfig {
        add(ignition, KUBECONFIG, kubeconfig);
    }
    let mut served = object::json(&config)?;
    served = layout::indented(&served);
    add(ignition, SERVED_CONFIG, &served);
    for RegistryCa { host, pem } in &first_boot.registry_cas {
        add(ignition, &format!("{REGISTRY_CAS}/{host}/ca.crt"), pem);
    }
    config.spec.config = Some(match first_boot.encapsulated {
        EncapsulatedVersion::Requested => empty(to)?,
        EncapsulatedVersion::Newest => empty(TargetVersion::V3(Spec::V3_5))?,
    });
    add(ignition, ENCAPSULATED, &object::json(&config)?);
    Ok(())
}

/// Returns the CA certificates that are always current, each with the path of its file.
fn authorities(controller: &ControllerConfig) -> [(&'static str, &[u8]); 2] {
    let cloud = controller.spec.cloud_provider_ca_data.as_ref();
    [
        (KUBELET_CA, controller.spec.kube_api_server_serving_ca_data.as_slice()),
        (CLOUD_CA, cloud.map_or(&[], |data| data.as_slice())),
    ]
}

/// Moves kernel arguments to the first boot if the requested version does not support them.
fn move_kernel_arguments(
    ignition: &mut Config,
    config: &mut MachineConfig,
    to: TargetVersion,
) -> Result<(), BuildError> {
    let is_supported = match to {
        TargetVersion::V2_2 => false,
        TargetVersion::V3(spec) => spec >= Spec::V3_3,
    };
    if is_supported {
        return Ok(());
    }
    if !ignition.kernel_arguments.should_not_exist.is_empty() {
        return Err(BuildError::RemovesKernelArguments(to));
    }
    let KernelArguments { should_exist, .. } = std::mem::take(&mut ignition.kernel_arguments);
    config.spec.kernel_arguments.extend(should_exist);
    Ok(())
}

/// Replaces the contents of an existing file, or adds the file.
fn refresh(ignition: &mut Config, path: &str, contents: &[u8]) {
    if contents.is_empty() {
        return;
    }
    match ignition.storage.files.iter_mut().find(|file| file.path == path) {
        // Compat: only the source changes; the other members of the contents stay as they are
        // (pkg/server/server.go).
        Some(file) => file.contents.source = Some(data_url::encode(contents)),
        None => add(ignition, path, contents),
    }
}

fn add(ignition: &mut Config, path: &str, contents: &[u8]) {
    ignition.storage.files.push(File {
        path: path.to_owned(),
        overwrite: Some(true),
        contents: Resource { source: Some(data_url::encode(contents)), ..Resource::default() },
        mode: Some(MODE),
        ..File::default()
    });
}

/// Returns the annotations that the daemon sets on the Node when the machine has joined.
fn node_annotations(config: &MachineConfig) -> Result<Vec<u8>, WriteError> {
    let name = config.metadata.name.clone().unwrap_or_default();
    let mut annotations = BTreeMap::from([
        (annotation::CURRENT_CONFIG.name(), name.clone()),
        (annotation::DESIRED_CONFIG.name(), name.clone()),
        (annotation::FIRST_PIVOT_CONFIG.name(), name),
        (annotation::STATE.name(), annotation::DaemonState::Done.to_string()),
    ]);
    let existing = config.metadata.annotations.as_ref();
    let image = existing.and_then(|existing| existing.get(annotation::PRE_BUILT_IMAGE.name()));
    if let Some(image) = image.filter(|image| !image.is_empty()) {
        annotations.insert(annotation::CURRENT_IMAGE.name(), image.clone());
        annotations.insert(annotation::DESIRED_IMAGE.name(), image.clone());
    }
    object::text(&annotations)
}

/// Builds an empty Ignition config in the served version.
fn empty(to: TargetVersion) -> Result<RawConfig, BuildError> {
    let bytes =
        convert(Config::empty(), to).map_err(|source| BuildError::Convert { to, source })?;
    let text = String::from_utf8(bytes).expect("serialized JSON is UTF-8");
    Ok(RawConfig::from_json(text).expect("a serialized config is valid JSON"))
}

#[cfg(test)]
mod tests;
