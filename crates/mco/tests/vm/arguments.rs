//! Kernel arguments through GRUB.

use std::sync::Arc;

use mco_testkit::vm::{Layout, SavedMachine, Vm, VmFolder};

use crate::{
    configs::ARGUMENT,
    done,
    fixture::{machine, turn},
    prerequisites,
};

// covers: C129
#[test]
fn kernel_arguments_are_there_after_the_reboot_and_gone_after_the_rollback() {
    let _turn = turn(1);
    let Some(prerequisites) = prerequisites() else { return };
    let folder = Arc::new(done(VmFolder::make(&prerequisites.machines())));
    let vm = done(machine(&prerequisites, Layout::One, &folder));
    done(arguments_come_and_go(vm, &folder));
}

// covers: C14
#[test]
fn the_menu_of_a_separate_boot_partition_is_on_the_disk_when_an_apply_is_reported() {
    let _turn = turn(1);
    let Some(prerequisites) = prerequisites() else { return };
    let folder = Arc::new(done(VmFolder::make(&prerequisites.machines())));
    let vm = done(machine(&prerequisites, Layout::SeparateBoot, &folder));
    let saved = done(apply(vm, &folder));
    let menu = done(saved.disk().menu_without_journal(&folder.new_path("menu")));
    assert!(menu.contains(ARGUMENT), "GRUB would still read the previous menu: {menu}");
}

/// Applies the config with the argument, and checks the disk that a power cut would leave.
fn apply(mut vm: Vm, folder: &Arc<VmFolder>) -> anyhow::Result<SavedMachine> {
    let output = vm.run("/opt/mco host apply -f /root/second.yaml --yes")?;
    anyhow::ensure!(output.code == 3, "{output:?}");
    let saved = vm.save()?;
    let tree = saved.disk().tree(&folder.new_path("reported"))?;
    let menu = String::from_utf8_lossy(tree.bytes("/boot/grub/grub.cfg").unwrap_or_default());
    anyhow::ensure!(menu.contains(ARGUMENT), "reported, but not on the disk: {menu}");
    Ok(saved)
}

fn arguments_come_and_go(mut vm: Vm, folder: &Arc<VmFolder>) -> anyhow::Result<()> {
    let has_argument = |vm: &mut Vm| -> anyhow::Result<bool> {
        Ok(vm.ask("cat /proc/cmdline")?.split(' ').any(|word| word == ARGUMENT))
    };
    anyhow::ensure!(!has_argument(&mut vm)?, "the argument is there from the start");
    vm.ask("cp /boot/grub/grub.cfg /root/previous-menu")?;
    let mut vm = apply(vm, folder)?.restore(folder)?;
    // As if GRUB had not read the journal of the file system.
    vm.ask("cp /root/previous-menu /boot/grub/grub.cfg")?;
    let mut vm = vm.reboot()?;
    anyhow::ensure!(!has_argument(&mut vm)?, "the menu has the argument");
    vm.begin("/opt/mco host confirm")?;
    let mut vm = vm.follow_reboot()?;
    anyhow::ensure!(has_argument(&mut vm)?, "the argument is not there");
    vm.ask("/opt/mco host confirm")?;
    vm.ask("/opt/mco host verify")?;
    let output = vm.run("/opt/mco host rollback --yes")?;
    anyhow::ensure!(output.code == 3, "{output:?}");
    let mut vm = vm.reboot()?;
    anyhow::ensure!(!has_argument(&mut vm)?, "the argument is still there");
    Ok(())
}
