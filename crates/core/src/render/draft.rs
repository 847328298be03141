//! A pool's configs merged, before what they name elsewhere is put in and the result is named.

use std::collections::BTreeMap;

use mco_api::{MachineConfig, MachineConfigSpec, PoolName, RawConfig};
use mco_ignition::Config;

use super::{
    BaseImages, Input, OsImage, RenderError, Rendered,
    merge::{self, Merged},
    name,
    remote::{self, RemoteError, Source},
    validate,
};

/// A pool's configs merged, without a name yet.
pub struct Draft {
    pool: PoolName,
    merged: Merged,
    os_image: OsImage,
}

/// Merges `configs`, all of them selected for `pool`.
pub fn draft(
    pool: &PoolName,
    configs: &[&MachineConfig],
    images: &BaseImages,
) -> Result<Draft, RenderError> {
    if configs.is_empty() {
        return Err(RenderError::Nothing(pool.clone()));
    }
    let mut checked = Vec::with_capacity(configs.len());
    for &config in configs {
        checked.push(Input { config, document: validate::read(config)? });
    }
    let ordered = merge::in_order(checked)?;
    let merged = merge::all(ordered, images)?;
    let os_image =
        if merged.os_image_url == images.os { OsImage::Base } else { OsImage::Overridden };
    Ok(Draft { pool: pool.clone(), merged, os_image })
}

impl Draft {
    /// What the merged config says.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.merged.config
    }

    /// Who chose the operating system image.
    #[must_use]
    pub fn os_image(&self) -> OsImage {
        self.os_image
    }

    /// The contents that are somewhere else, in the order of the files.
    #[must_use]
    pub fn remote(&self) -> Vec<Source> {
        let named = &self.merged.remote;
        let files = self.merged.config.storage.files.iter();
        files.filter_map(|file| remote::source(file, named.get(&file.path)?)).collect()
    }

    /// Puts the contents in that `source` names, once they are what they should be.
    pub fn embed(&mut self, source: &Source, bytes: &[u8]) -> Result<(), RemoteError> {
        let url = source.check(bytes)?;
        for file in &mut self.merged.config.storage.files {
            if file.path == source.path {
                file.contents.source = Some(url);
                // Headers go with an address; with contents they are refused.
                file.contents.http_headers = Vec::new();
                break;
            }
        }
        Ok(())
    }

    /// Names and writes what was merged.
    pub fn finish(self) -> Result<Rendered, RenderError> {
        let Self { pool, merged, os_image } = self;
        let name = name::of(&pool, &merged)?;
        let json = String::from_utf8(merged.config.to_json()).expect("JSON is written as UTF-8");
        // The text is as large as what it was written from; both are not needed any longer.
        drop(merged.config);
        let config = RawConfig::from_json(json).expect("what was written as JSON is JSON");
        Ok(Rendered {
            name,
            os_image,
            sources: merged.provenance.configs().to_vec(),
            provenance: merged.provenance,
            spec: MachineConfigSpec {
                base_os_extensions_container_image: merged.extensions_image,
                config: Some(config),
                extensions: merged.extensions,
                fips: merged.fips,
                kernel_arguments: merged.kernel_arguments,
                kernel_type: merged.kernel_type,
                os_image_url: merged.os_image_url,
            },
        })
    }
}

/// Which MachineConfig named the contents of which file, where they are somewhere else.
pub(super) type Named = BTreeMap<String, String>;
