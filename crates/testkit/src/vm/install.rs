//! The first boots of a machine: installs the boot loader, and saves the booted machine once.

use std::{
    fs::{self, File},
    sync::Arc,
};

use anyhow::Context as _;

use super::{
    Disk, Layout, SavedMachine, Vm, VmFolder, VmPrerequisites,
    disk::copy_part,
    machine::make_opt,
    qemu::{Disks, Start, hardware_hash},
};

/// Arguments of the boot that installs the boot loader.
const ARGUMENTS: &str = "console=ttyS0 quiet mitigations=off ro root=";

/// Returns the saved machine, which the first call creates.
pub(super) fn saved(
    prerequisites: &VmPrerequisites,
    layout: Layout,
) -> anyhow::Result<SavedMachine> {
    let name = layout.name();
    let path = prerequisites.file(&format!("saved-{name}-{:016x}", hardware_hash()));
    let lock = File::create(prerequisites.file(&format!(".saved-{name}.lock")))
        .context("failed to create the lock of a saved machine")?;
    lock.lock().context("failed to wait for another process that saves the machine")?;
    if !path.exists() {
        let folder = Arc::new(VmFolder::make(&prerequisites.machines())?);
        let saved = install(prerequisites, layout, &folder)?;
        let complete = folder.path().join("complete");
        fs::create_dir(&complete).context("failed to create a folder")?;
        for (from, to) in
            [(saved.disk.path(), "disk"), (&saved.state, "state"), (&saved.opt, "opt")]
        {
            copy_part(from, 0..u64::MAX, &complete.join(to))?;
        }
        fs::rename(&complete, &path).context("failed to keep the saved machine")?;
    }
    Ok(SavedMachine {
        disk: Disk::new(path.join("disk"), layout),
        state: path.join("state"),
        usr: prerequisites.file("usr.img"),
        opt: path.join("opt"),
    })
}

fn install(
    prerequisites: &VmPrerequisites,
    layout: Layout,
    folder: &Arc<VmFolder>,
) -> anyhow::Result<SavedMachine> {
    let (root, opt, empty) =
        (folder.path().join("root"), folder.path().join("opt"), folder.path().join("empty"));
    copy_part(&prerequisites.file(&format!("{}.img", layout.name())), 0..u64::MAX, &root)?;
    fs::create_dir(&empty).context("failed to create a folder")?;
    make_opt(&empty, &opt)?;
    let disks = Disks { root, usr: prerequisites.file("usr.img"), opt, log: None };
    let device = match layout {
        Layout::One => "/dev/vda1",
        Layout::SeparateBoot => "/dev/vda2",
    };
    let kernel = Start::Kernel {
        folder: prerequisites.base.clone(),
        arguments: format!("{ARGUMENTS}{device}"),
    };
    let mut vm = Vm::start(folder, disks.clone(), layout, &kernel)?;
    vm.ask("grub-install --target=i386-pc /dev/vda && update-grub && sync")?;
    vm.power_off()?;
    let mut vm = Vm::start(folder, disks, layout, &Start::BootLoader)?;
    // Another file system may be there when the machine is restored.
    vm.ask("systemctl is-system-running --wait || systemctl --failed; umount /opt; blockdev --flushbufs /dev/vdc; sync")?;
    vm.save()
}
