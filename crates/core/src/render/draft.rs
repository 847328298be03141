//! The merged configs of a pool, before remote contents are embedded and the result is named.

use std::collections::{BTreeMap, BTreeSet};

use mco_api::{MachineConfig, MachineConfigSpec, PoolName, RawConfig};
use mco_ignition::Config;

use super::{
    BaseImages, Input, Item, Kind, OsImage, Provenance, RenderError, Rendered,
    merge::{self, Merged},
    name,
    remote::{self, RemoteError, Source},
    validate,
};
use crate::machine::{
    self,
    paths::{self, PathConflict},
};

/// The merged configs of a pool, without a name yet.
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
    if let Some(source) = paths::conflicts(&merged.config).into_iter().next() {
        let configs = culprits(&merged.provenance, &source);
        return Err(RenderError::Path { pool: pool.clone(), configs, source });
    }
    let os_image =
        if merged.os_image_url == images.os { OsImage::Base } else { OsImage::Overridden };
    Ok(Draft { pool: pool.clone(), merged, os_image })
}

/// Returns the configs that set the paths of a conflict, in merge order.
fn culprits(provenance: &Provenance, conflict: &PathConflict) -> Vec<String> {
    let involved: &[&str] = match conflict {
        PathConflict::BelowFile { path, file } => &[path, file],
        PathConflict::SystemDirectory { path } => &[path],
    };
    let is_involved = |item: &Item| {
        let path = match item.kind {
            Kind::Path => item.key.clone(),
            Kind::Unit => machine::unit_path(&item.key),
            Kind::Dropin => {
                let (unit, dropin) = item.key.split_once('/').unwrap_or_default();
                machine::dropin_path(unit, dropin)
            }
            Kind::User
            | Kind::Group
            | Kind::Disk
            | Kind::Filesystem
            | Kind::Luks
            | Kind::Raid
            | Kind::KernelArgument
            | Kind::Extension
            | Kind::Setting => return false,
        };
        involved.contains(&path.as_str())
    };
    let items = provenance.items().filter(|(item, _)| is_involved(item));
    let numbers: BTreeSet<usize> =
        items.flat_map(|(_, parts)| parts.iter().map(|part| part.config)).collect();
    numbers.iter().filter_map(|number| provenance.configs().get(*number).cloned()).collect()
}

impl Draft {
    /// Returns the merged Ignition config.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.merged.config
    }

    /// Returns the origin of the OS image.
    #[must_use]
    pub fn os_image(&self) -> OsImage {
        self.os_image
    }

    /// Returns the remote contents, in the order of the files.
    #[must_use]
    pub fn remote(&self) -> Vec<Source> {
        let named = &self.merged.remote;
        let files = self.merged.config.storage.files.iter();
        files.filter_map(|file| remote::source(file, named.get(&file.path)?)).collect()
    }

    /// Verifies the contents of `source` and embeds them.
    pub fn embed(&mut self, source: &Source, bytes: &[u8]) -> Result<(), RemoteError> {
        let url = source.check(bytes)?;
        for file in &mut self.merged.config.storage.files {
            if file.path == source.path {
                file.contents.source = Some(url);
                // HTTP headers are only valid with a remote source.
                file.contents.http_headers = Vec::new();
                break;
            }
        }
        Ok(())
    }

    /// Names and serializes the merged config.
    pub fn finish(self) -> Result<Rendered, RenderError> {
        let Self { pool, merged, os_image } = self;
        let name = name::of(&pool, &merged)?;
        let json = String::from_utf8(merged.config.to_json()).expect("JSON is UTF-8");
        // The text is as large as its source, which is not needed any longer.
        drop(merged.config);
        let config = RawConfig::from_json(json).expect("a serialized config is JSON");
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

/// The MachineConfig that set the remote contents, by path of the file.
pub(super) type Named = BTreeMap<String, String>;
