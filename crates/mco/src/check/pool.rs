//! Pools: whether each can be rendered from the configs it selects.

use std::{collections::BTreeSet, error::Error};

use mco_api::{MachineConfig, name::RENDERED_PREFIX};
use mco_cluster::report::chain;
use mco_core::render::{self, Origin, RenderError, SelectError, Selection};

use crate::{
    fault::Fault,
    load::{
        manifests::{Manifest, Manifests, Pool, role},
        node::Path,
    },
};

/// Adds what keeps pools from rendering, and the configs that no pool wants.
pub(super) fn check(manifests: &Manifests, faults: &mut Vec<Fault>) {
    let mut wanted = BTreeSet::new();
    for pool in &manifests.pools {
        let configs = manifests.configs.iter().map(|manifest| &manifest.value);
        match render::select(&pool.value, configs) {
            Ok(Selection::Configs(configs)) => {
                wanted.extend(configs.iter().filter_map(|config| config.metadata.name.clone()));
                rendered(manifests, pool, &configs, faults);
            }
            Ok(Selection::Everything) => {
                let fault =
                    Fault::error("SelectsAll", format!("pool {} selects all configs", pool.name));
                let fault = fault.hint("give it a machineConfigSelector that names roles");
                faults.push(at_selector(pool, fault));
            }
            Err(error) => {
                let message = format!("pool {}: {}", pool.name, chain(&error as &dyn Error));
                faults.push(at_selector(pool, unselected(manifests, &error, message)));
            }
        }
    }
    unwanted(manifests, &wanted, faults);
}

fn unselected(manifests: &Manifests, error: &SelectError, message: String) -> Fault {
    match error {
        SelectError::BadSelector { .. } => Fault::error("BadSelector", message),
        SelectError::Nothing(_) if manifests.is_whole() => Fault::error("NothingSelected", message),
        // The cluster adds configs of its own for the pools that it ships with.
        SelectError::Nothing(_) => Fault::warning("NothingSelected", message),
    }
}

fn unwanted(manifests: &Manifests, wanted: &BTreeSet<String>, faults: &mut Vec<Fault>) {
    for manifest in &manifests.configs {
        let object = &manifest.object;
        let labelled = role(&manifest.value).is_some();
        if labelled && !wanted.contains(&object.name) && !object.name.starts_with(RENDERED_PREFIX) {
            let message = format!("no pool in the input selects {}", object.label());
            let fault = Fault::warning("NotSelected", message);
            let fault = fault.hint("check its role label against the pools' machineConfigSelector");
            faults.push(object.fault_at(&Path::of("metadata.labels"), fault));
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
                "the rendered config of pool {} has {size} bytes, more than 80 % of the limit, {}",
                pool.name,
                render::MAX_SIZE
            );
            let fault = Fault::warning("NearSizeLimit", message);
            faults.push(at_pool(pool, fault.hint("move large files into the OS image")));
        }
        Err(error) => failed(manifests, pool, configs, &error, faults),
    }
}

fn failed(
    manifests: &Manifests,
    pool: &Pool,
    configs: &[&MachineConfig],
    error: &RenderError,
    faults: &mut Vec<Fault>,
) {
    let message = format!("pool {}: {}", pool.name, chain(error as &dyn Error));
    let fault = match error {
        RenderError::Invalid { config, .. } | RenderError::Upgrade { config, .. } => {
            // The config's own faults say the same with more detail.
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
                fault.hint("kernel-devel fits the default kernel only: drop one of the two");
            if let Some(culprit) = with_kernel_devel(manifests, configs) {
                faults.push(culprit.object.fault_at(&Path::of("spec.extensions"), fault));
                return;
            }
            fault
        }
        RenderError::TooLarge { .. } => {
            Fault::error("TooLarge", message).hint("move large files into the OS image")
        }
        RenderError::StreamAndOverride => Fault::error("StreamAndOverride", message)
            .hint("drop osImageURL from the MachineConfig, or osImageStream from the pool"),
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
    manifests.configs.iter().find(|manifest| manifest.object.name == name)
}

fn at_pool(pool: &Pool, fault: Fault) -> Fault {
    at(pool, "metadata.name", fault)
}

fn at_selector(pool: &Pool, fault: Fault) -> Fault {
    at(pool, "spec.machineConfigSelector", fault)
}

fn at(pool: &Pool, path: &str, fault: Fault) -> Fault {
    match &pool.object {
        Some(object) => object.fault_at(&Path::of(path), fault),
        None => fault,
    }
}
