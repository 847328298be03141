//! Packages of extensions and kernels are on the machine only while something is staged that needs them.

use mco_core::{machine::Machine, plan::Step};
use mco_host::System;
use tracing::warn;

use super::ExecuteError;

/// The packages that one update needs.
#[derive(Debug)]
pub(super) struct Packages<'m> {
    /// The image that they are in; none where the update needs none.
    image: Option<&'m str>,
    are_there: bool,
}

impl<'m> Packages<'m> {
    /// Those for the way from one config to another.
    ///
    /// Compat: also what the old config layered needs them, for it is resolved anew
    /// (`pkg/daemon/update.go`).
    pub(super) fn of(from: &Machine, to: &'m Machine) -> Self {
        let image = to.spec.base_os_extensions_container_image.as_str();
        let layers = |machine: &Machine| {
            let is_default = matches!(machine.spec.kernel_type.as_str(), "" | "default");
            !machine.spec.extensions.is_empty() || !is_default
        };
        let needed = !image.is_empty() && (layers(from) || layers(to));
        Self { image: needed.then_some(image), are_there: false }
    }

    /// Has them at hand for this step, if it is one that needs them.
    pub(super) fn at_hand<S: System>(
        &mut self,
        system: &mut S,
        step: &Step,
    ) -> Result<(), ExecuteError> {
        let Some(image) = self.image.filter(|_| step.stages() && !self.are_there) else {
            return Ok(());
        };
        // A try that fails may leave some of them, too.
        self.are_there = true;
        Ok(system.provide_packages(image)?)
    }

    /// Takes them away where they are there.
    pub(super) fn put_away<S: System>(&mut self, system: &mut S) {
        if !std::mem::take(&mut self.are_there) {
            return;
        }
        // What stays is in nobody's way, and the next start of the daemon takes it away.
        if let Err(error) = system.withdraw_packages() {
            warn!(%error, "The packages of extensions could not be taken away");
        }
    }
}
