//! Forwards [`System`] through a box, for callers that detect the kind of system at run time.

use super::{CheckResult, HostFacts, MachineRole, Packaged, Restored, System, SystemError};

impl System for Box<dyn System> {
    fn facts(&self) -> Result<HostFacts, SystemError> {
        (**self).facts()
    }

    fn packaged(&self, path: &str) -> Result<Packaged, SystemError> {
        (**self).packaged(path)
    }

    fn unit_state(&self, unit: &str) -> Result<String, SystemError> {
        (**self).unit_state(unit)
    }

    fn has_unit(&self, unit: &str) -> Result<bool, SystemError> {
        (**self).has_unit(unit)
    }

    fn enable(&mut self, unit: &str) -> Result<(), SystemError> {
        (**self).enable(unit)
    }

    fn disable(&mut self, unit: &str) -> Result<(), SystemError> {
        (**self).disable(unit)
    }

    fn preset(&mut self, unit: &str) -> Result<(), SystemError> {
        (**self).preset(unit)
    }

    fn reload_systemd(&mut self) -> Result<(), SystemError> {
        (**self).reload_systemd()
    }

    fn reload(&mut self, service: &str) -> Result<(), SystemError> {
        (**self).reload(service)
    }

    fn restart(&mut self, service: &str) -> Result<(), SystemError> {
        (**self).restart(service)
    }

    fn password(&self, user: &str) -> Result<Option<String>, SystemError> {
        (**self).password(user)
    }

    fn set_password(&mut self, user: &str, hash: &str) -> Result<(), SystemError> {
        (**self).set_password(user, hash)
    }

    fn stage_os(&mut self, image: &str) -> Result<(), SystemError> {
        (**self).stage_os(image)
    }

    fn stage_kernel_arguments(
        &mut self,
        remove: &[String],
        add: &[String],
    ) -> Result<(), SystemError> {
        (**self).stage_kernel_arguments(remove, add)
    }

    fn stage_kernel(&mut self, kernel: &str) -> Result<(), SystemError> {
        (**self).stage_kernel(kernel)
    }

    fn stage_extensions(&mut self, remove: &[String], add: &[String]) -> Result<(), SystemError> {
        (**self).stage_extensions(remove, add)
    }

    fn staged(&self) -> Result<Option<String>, SystemError> {
        (**self).staged()
    }

    fn has_staged(&self) -> Result<bool, SystemError> {
        (**self).has_staged()
    }

    fn boots_with(&self, argument: &str) -> Result<bool, SystemError> {
        (**self).boots_with(argument)
    }

    fn restore_staged(&mut self, staged: &str) -> Result<Restored, SystemError> {
        (**self).restore_staged(staged)
    }

    fn prepare(&mut self, role: MachineRole) -> Result<(), SystemError> {
        (**self).prepare(role)
    }

    fn finalization_fault(&self) -> Result<Option<String>, SystemError> {
        (**self).finalization_fault()
    }

    fn provide_packages(&mut self, image: &str) -> Result<(), SystemError> {
        (**self).provide_packages(image)
    }

    fn withdraw_packages(&mut self) -> Result<(), SystemError> {
        (**self).withdraw_packages()
    }

    fn check_extensions(&self, extensions: &[String]) -> Result<(), SystemError> {
        (**self).check_extensions(extensions)
    }

    fn check_kubelet(&self) -> CheckResult {
        (**self).check_kubelet()
    }

    fn run_checks(&self) -> CheckResult {
        (**self).run_checks()
    }

    fn reboot(&mut self, why: &str) -> Result<(), SystemError> {
        (**self).reboot(why)
    }
}
