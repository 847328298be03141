//! Merging of the inputs in order.

use mco_api::{MachineConfig, annotation, label};
use mco_ignition::{Config, config::File};

use super::{
    BaseImages, Input, RenderError, draft::Named, name_of, provenance::Provenance, remote,
};

/// The contents of a rendered config.
pub(super) struct Merged {
    pub(super) config: Config,
    pub(super) os_image_url: String,
    pub(super) extensions_image: String,
    pub(super) kernel_arguments: Vec<String>,
    pub(super) extensions: Vec<String>,
    pub(super) fips: bool,
    pub(super) kernel_type: String,
    pub(super) provenance: Provenance,
    pub(super) remote: Named,
}

/// Returns the names of `configs` in merge order.
pub fn merge_order(configs: &[&MachineConfig]) -> Result<Vec<String>, RenderError> {
    let inputs = configs.iter().map(|&config| Input { config, document: None }).collect();
    let ordered = in_order(inputs)?;
    Ok(ordered.iter().map(|input| name_of(input.config).to_owned()).collect())
}

pub(super) fn in_order(mut inputs: Vec<Input<'_>>) -> Result<Vec<Input<'_>>, RenderError> {
    if let Some(input) = inputs.iter().find(|input| input.config.metadata.labels.is_none()) {
        return Err(RenderError::NoLabels(name_of(input.config).to_owned()));
    }
    inputs.sort_by_key(|input| (!is_for_workers(input.config), name_of(input.config)));
    Ok(inputs)
}

fn is_for_workers(config: &MachineConfig) -> bool {
    let labels = config.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(label::ROLE)).is_some_and(|role| role == "worker")
}

/// Merges `inputs`, which are in order.
pub(super) fn all(inputs: Vec<Input<'_>>, images: &BaseImages) -> Result<Merged, RenderError> {
    let mut merged = Merged {
        config: Config::empty(),
        os_image_url: images.os.clone(),
        extensions_image: images.extensions.clone(),
        kernel_arguments: Vec::new(),
        extensions: Vec::new(),
        fips: false,
        kernel_type: "default".to_owned(),
        provenance: Provenance::default(),
        remote: Named::new(),
    };
    for (position, Input { config, document }) in inputs.into_iter().enumerate() {
        merged.provenance.next_config(name_of(config));
        if let Some(document) = document {
            let child = document.upgrade().map_err(|source| RenderError::Upgrade {
                config: name_of(config).to_owned(),
                source,
            })?;
            merged.provenance.record_ignition(&child);
            merged.record_remote(&child, config);
            merged.merge_ignition(child, position == 0);
        }
        merged.merge_settings(config);
    }
    for file in &mut merged.config.storage.files {
        // Ignition keeps an existing file by default; the daemon never does.
        file.overwrite.get_or_insert(true);
    }
    let headers = merged.extensions.iter().any(|extension| extension == "kernel-devel");
    if headers && merged.kernel_type != "default" {
        return Err(RenderError::KernelDevel(merged.kernel_type));
    }
    Ok(merged)
}

impl Merged {
    /// Records the MachineConfig of each remote source, for error messages.
    fn record_remote(&mut self, child: &Config, config: &MachineConfig) {
        let files = child.storage.files.iter().filter(|file| remote::is_remote(&file.contents));
        self.remote.extend(files.map(|file| (file.path.clone(), name_of(config).to_owned())));
    }

    fn merge_ignition(&mut self, mut child: Config, first: bool) {
        if first {
            self.config = child;
            return;
        }
        // Contents and compression of a file belong together, but merge separately. An empty
        // compression in the child replaces the parent's, and is removed afterwards.
        for file in &mut child.storage.files {
            file.contents.compression.get_or_insert_default();
        }
        self.config = mco_ignition::merge(std::mem::take(&mut self.config), child);
        self.config.storage.files.iter_mut().for_each(drop_empty_compression);
    }

    fn merge_settings(&mut self, config: &MachineConfig) {
        let spec = &config.spec;
        let provenance = &mut self.provenance;
        if spec.fips {
            self.fips = true;
            provenance.record_setting("fips");
        }
        if matches!(spec.kernel_type.as_str(), "realtime" | "64k-pages") {
            self.kernel_type.clone_from(&spec.kernel_type);
            provenance.record_setting("kernelType");
        }
        for argument in &spec.kernel_arguments {
            provenance.record_kernel_argument(argument);
        }
        self.kernel_arguments.extend_from_slice(&spec.kernel_arguments);
        for extension in &spec.extensions {
            provenance.record_extension(extension);
        }
        self.extensions.extend_from_slice(&spec.extensions);
        // The images in generated configs only repeat the cluster's base images.
        if is_generated(config) {
            return;
        }
        if !spec.os_image_url.is_empty() {
            self.os_image_url.clone_from(&spec.os_image_url);
            provenance.record_setting("osImageURL");
        }
        if !spec.base_os_extensions_container_image.is_empty() {
            self.extensions_image.clone_from(&spec.base_os_extensions_container_image);
            provenance.record_setting("baseOSExtensionsContainerImage");
        }
    }
}

fn drop_empty_compression(file: &mut File) {
    file.contents.compression.take_if(|compression| compression.is_empty());
}

fn is_generated(config: &MachineConfig) -> bool {
    let annotations = config.metadata.annotations.as_ref();
    let version = annotations.and_then(|annotations| {
        annotations.get(annotation::GENERATED_BY_CONTROLLER_VERSION.name())
    });
    version.is_some_and(|version| !version.is_empty())
}
