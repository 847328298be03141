//! Provides the packages of extensions and kernels while an update stages something that needs
//! them.

use mco_core::{machine::Machine, plan::Step};
use mco_host::System;
use tracing::warn;

use super::ExecuteError;

/// The packages that one update needs.
#[derive(Debug)]
pub(super) struct Packages<'m> {
    /// The image with the packages; none if the update needs none.
    image: Option<&'m str>,
    are_provided: bool,
}

impl<'m> Packages<'m> {
    /// Returns the packages for an update from one config to another.
    ///
    /// Compat: layered packages of the old config need the repository, too, because rpm-ostree
    /// resolves them again (`pkg/daemon/update.go`).
    pub(super) fn of(from: &Machine, to: &'m Machine) -> Self {
        let image = to.spec.base_os_extensions_container_image.as_str();
        let layers = |machine: &Machine| {
            let is_default = matches!(machine.spec.kernel_type.as_str(), "" | "default");
            !machine.spec.extensions.is_empty() || !is_default
        };
        let needed = !image.is_empty() && (layers(from) || layers(to));
        Self { image: needed.then_some(image), are_provided: false }
    }

    /// Provides the packages if this step needs them.
    pub(super) fn provide<S: System>(
        &mut self,
        system: &mut S,
        step: &Step,
    ) -> Result<(), ExecuteError> {
        let Some(image) = self.image.filter(|_| step.stages() && !self.are_provided) else {
            return Ok(());
        };
        // A failed attempt may leave some of them, too.
        self.are_provided = true;
        Ok(system.provide_packages(image)?)
    }

    /// Removes the packages, if provided.
    pub(super) fn withdraw<S: System>(&mut self, system: &mut S) {
        if !std::mem::take(&mut self.are_provided) {
            return;
        }
        // Leftovers are harmless, and the next start of the daemon removes them.
        if let Err(error) = system.withdraw_packages() {
            warn!(%error, "Failed to remove the packages of extensions");
        }
    }
}
