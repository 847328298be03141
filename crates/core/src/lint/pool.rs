//! Checks of pools: each pool must render from the MachineConfigs that it selects.

use std::collections::BTreeSet;

use mco_api::{MachineConfig, name::RENDERED_PREFIX};

use super::{Fault, FieldPath, Manifest, Manifests, Pool, chain, role};
use crate::render::{self, Origin, RenderError, SelectError, Selection};

/// Adds the faults of pools that do not render, and of MachineConfigs that no pool selects.
pub(super) fn check(manifests: &Manifests, faults: &mut Vec<Fault>) {
    let mut selected = BTreeSet::new();
    for pool in &manifests.pools {
        let configs = manifests.all_configs().map(|manifest| &manifest.value);
        match render::select(&pool.value, configs) {
            Ok(Selection::Configs(configs)) => {
                selected.extend(configs.iter().filter_map(|config| config.metadata.name.clone()));
                rendered(manifests, pool, &configs, faults);
            }
            Ok(Selection::Everything) => {
                let message = format!("pool {} selects all MachineConfigs", pool.name);
                let fault = Fault::error("SelectsAll", message);
                let fault = fault.hint("set a machineConfigSelector that names roles");
                faults.push(at_selector(pool, fault));
            }
            Err(error) => {
                let message = format!("pool {}: {}", pool.name, chain(&error));
                faults.push(at_selector(pool, selection_fault(manifests, &error, message)));
            }
        }
    }
    unselected(manifests, &selected, faults);
}

fn selection_fault(manifests: &Manifests, error: &SelectError, message: String) -> Fault {
    match error {
        SelectError::BadSelector { .. } => Fault::error("BadSelector", message),
        SelectError::Nothing(_) if manifests.is_whole() => Fault::error("NothingSelected", message),
        // The cluster generates configs for its built-in pools.
        SelectError::Nothing(_) => Fault::warning("NothingSelected", message),
    }
}

fn unselected(manifests: &Manifests, selected: &BTreeSet<String>, faults: &mut Vec<Fault>) {
    for manifest in &manifests.configs {
        let object = &manifest.object;
        let labelled = role(&manifest.value).is_some();
        if labelled && !selected.contains(&object.name) && !object.name.starts_with(RENDERED_PREFIX)
        {
            let message = format!("no pool in the input selects {}", object.label());
            let fault = Fault::warning("NotSelected", message);
            let fault = fault.hint("check its role label against the pools' machineConfigSelector");
            faults.push(object.fault_at(&FieldPath::of("metadata.labels"), fault));
        }
    }
}

fn rendered(
    manifests: &Manifests,
    pool: &Pool,
    configs: &[&MachineConfig],
    faults: &mut Vec<Fault>,
) {
    let images = manifests.images.clone().unwrap_or_default();
    let origin = Origin { controller_version: String::new(), release_version: String::new() };
    let sized = render::pool(&pool.name, configs, &images).and_then(|rendered| {
        let object = rendered.object(&pool.value, &origin)?;
        Ok(rendered.check_size(&object)?.map(|warning| warning.size))
    });
    match sized {
        Ok(None) => {}
        Ok(Some(size)) => {
            let message = format!(
                "the rendered config of pool {} has {size} bytes, more than 80 % of the limit of {}",
                pool.name,
                render::MAX_SIZE
            );
            let fault = Fault::warning("NearSizeLimit", message);
            faults.push(at_pool(pool, fault.hint("move large files into the OS image")));
        }
        Err(error) => failed(manifests, pool, configs, &error, faults),
    }
}

/// Code of a fault in paths that exclude one another.
pub(super) const PATH_CONFLICT: &str = "PathConflict";

fn failed(
    manifests: &Manifests,
    pool: &Pool,
    configs: &[&MachineConfig],
    error: &RenderError,
    faults: &mut Vec<Fault>,
) {
    let message = format!("pool {}: {}", pool.name, chain(error));
    let fault = match error {
        RenderError::Invalid { config, .. } | RenderError::Upgrade { config, .. } => {
            // The faults of the config give more details.
            let label = format!("MachineConfig/{config}");
            let known = |fault: &Fault| fault.is_error() && fault.object.as_ref() == Some(&label);
            if faults.iter().any(known) {
                return;
            }
            Fault::error("RenderFailed", message)
        }
        RenderError::KernelDevel(_) => {
            let fault = Fault::error("KernelDevel", message);
            let fault =
                fault.hint("remove kernel-devel or kernelType: the extension is built for the default kernel only");
            if let Some(culprit) = with_kernel_devel(manifests, configs) {
                faults.push(culprit.object.fault_at(&FieldPath::of("spec.extensions"), fault));
                return;
            }
            fault
        }
        RenderError::TooLarge { .. } => {
            Fault::error("TooLarge", message).hint("move large files into the OS image")
        }
        RenderError::Path { .. } => {
            // One config with both paths has a fault of its own.
            if faults.iter().any(|fault| fault.code == PATH_CONFLICT) {
                return;
            }
            Fault::error(PATH_CONFLICT, message).hint("rename or remove one of the two paths")
        }
        RenderError::StreamAndOverride => Fault::error("StreamAndOverride", message)
            .hint("remove osImageURL from the MachineConfig, or osImageStream from the pool"),
        RenderError::Nothing(_)
        | RenderError::NoLabels(_)
        | RenderError::Unhashable { .. }
        | RenderError::Name { .. } => Fault::error("RenderFailed", message),
    };
    faults.push(at_pool(pool, fault));
}

fn with_kernel_devel<'m>(
    manifests: &'m Manifests,
    configs: &[&MachineConfig],
) -> Option<&'m Manifest<MachineConfig>> {
    let culprit = configs.iter().rev().find(|config| {
        config.spec.extensions.iter().any(|extension| extension == "kernel-devel")
    })?;
    let name = culprit.metadata.name.as_deref().unwrap_or_default();
    manifests.all_configs().find(|manifest| manifest.object.name == name)
}

fn at_pool(pool: &Pool, fault: Fault) -> Fault {
    at(pool, "metadata.name", fault)
}

fn at_selector(pool: &Pool, fault: Fault) -> Fault {
    at(pool, "spec.machineConfigSelector", fault)
}

fn at(pool: &Pool, path: &str, fault: Fault) -> Fault {
    match &pool.object {
        Some(object) => object.fault_at(&FieldPath::of(path), fault),
        None => fault,
    }
}
