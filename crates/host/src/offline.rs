//! A machine that does not run: an image being built, a disk mounted elsewhere, a chroot.
//!
//! Files are real and units are links, as with `systemctl --root`. Nothing runs, so nothing is
//! reloaded, restarted or rebooted; changes take effect at the machine's next boot. Actions that
//! need a running machine fail.

use crate::{
    account, package,
    root::Root,
    system::{HostFacts, Packaged, Restored, System, SystemError},
    unit,
};

/// The services of a machine that does not run.
#[derive(Debug)]
pub struct OfflineSystem {
    root: Root,
}

impl OfflineSystem {
    /// Opens the machine in this tree.
    pub fn open(root: &Root) -> Result<Self, SystemError> {
        Ok(Self { root: root.try_clone()? })
    }
}

impl System for OfflineSystem {
    fn facts(&self) -> Result<HostFacts, SystemError> {
        Ok(HostFacts::default())
    }

    fn packaged(&self, path: &str) -> Result<Packaged, SystemError> {
        Ok(package::by_dpkg_lists(&self.root, path)?)
    }

    fn unit_state(&self, unit: &str) -> Result<String, SystemError> {
        Ok(unit::state(&self.root, unit)?.to_owned())
    }

    fn has_unit(&self, unit: &str) -> Result<bool, SystemError> {
        Ok(unit::exists(&self.root, unit)?)
    }

    fn enable(&mut self, unit: &str) -> Result<(), SystemError> {
        Ok(unit::enable(&self.root, unit)?)
    }

    fn disable(&mut self, unit: &str) -> Result<(), SystemError> {
        Ok(unit::disable(&self.root, unit)?)
    }

    fn preset(&mut self, unit: &str) -> Result<(), SystemError> {
        Ok(unit::preset(&self.root, unit)?)
    }

    fn reload_systemd(&mut self) -> Result<(), SystemError> {
        Ok(())
    }

    fn reload(&mut self, _: &str) -> Result<(), SystemError> {
        Ok(())
    }

    fn restart(&mut self, _: &str) -> Result<(), SystemError> {
        Ok(())
    }

    fn password(&self, user: &str) -> Result<Option<String>, SystemError> {
        Ok(account::password(&self.root, user)?)
    }

    fn set_password(&mut self, user: &str, hash: &str) -> Result<(), SystemError> {
        if self.password(user)?.is_some_and(|present| present != hash) {
            account::set_password(&self.root, user, hash)?;
        }
        Ok(())
    }

    fn stage_os(&mut self, image: &str) -> Result<(), SystemError> {
        Err(unable(&format!("boot the image {image}")))
    }

    fn stage_kernel_arguments(
        &mut self,
        remove: &[String],
        add: &[String],
    ) -> Result<(), SystemError> {
        let (remove, add) = (remove.join(" "), add.join(" "));
        Err(unable(&format!("change kernel arguments (-[{remove}] +[{add}])")))
    }

    fn stage_kernel(&mut self, kernel: &str) -> Result<(), SystemError> {
        Err(unable(&format!("boot the {kernel} kernel")))
    }

    fn stage_extensions(&mut self, _: &[String], add: &[String]) -> Result<(), SystemError> {
        Err(unable(&format!("change extensions (to {})", add.join(" "))))
    }

    fn staged(&self) -> Result<Option<String>, SystemError> {
        Ok(None)
    }

    fn restore_staged(&mut self, _: &str) -> Result<Restored, SystemError> {
        Ok(Restored::Done)
    }

    fn reboot(&mut self, _: &str) -> Result<(), SystemError> {
        Ok(())
    }
}

fn unable(what: &str) -> SystemError {
    SystemError::NotRunning { what: what.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: C76
    #[test]
    fn a_password_is_set_in_place_and_never_twice() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let shadow = "root:!:1:0:99999:7:::\ncore:*:1:0:99999:7:::\n";
        root.write("/etc/shadow", shadow.as_bytes(), 0o640).unwrap();
        let mut system = OfflineSystem::open(&root).unwrap();
        system.set_password("core", "$6$x").unwrap();
        assert_eq!(system.password("core").unwrap().as_deref(), Some("$6$x"));
        let text = String::from_utf8(root.read("/etc/shadow").unwrap().unwrap()).unwrap();
        assert_eq!(text, "root:!:1:0:99999:7:::\ncore:$6$x:1:0:99999:7:::\n");
        assert_eq!(root.stat("/etc/shadow").unwrap().unwrap().mode & 0o777, 0o640);
        assert!(system.set_password("core", "a:b").is_err(), "it would add a field");
        system.set_password("nobody", "x").unwrap();
    }

    #[test]
    fn actions_that_need_a_running_machine_fail() {
        let folder = tempfile::tempdir().unwrap();
        let mut system = OfflineSystem::open(&Root::open(folder.path()).unwrap()).unwrap();
        let error = system.stage_kernel("realtime").unwrap_err();
        assert_eq!(
            error.to_string(),
            "this machine cannot boot the realtime kernel while it does not run"
        );
    }
}
