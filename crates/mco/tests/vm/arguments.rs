//! Kernel arguments through GRUB.

use std::sync::Arc;

use mco_testkit::vm::{Layout, Vm, VmFolder};

use crate::{
    configs::ARGUMENT,
    done,
    fixture::{machine, turn},
    prerequisites,
};

// covers: C129
#[test]
fn kernel_arguments_are_there_after_the_reboot_and_gone_after_the_rollback() {
    let _turn = turn();
    let Some(prerequisites) = prerequisites() else { return };
    let folder = Arc::new(done(VmFolder::make(&prerequisites.machines())));
    std::thread::scope(|scope| {
        for layout in [Layout::One, Layout::SeparateBoot] {
            let (prerequisites, folder) = (&prerequisites, &folder);
            scope.spawn(move || {
                let vm = done(machine(prerequisites, layout, folder));
                done(arguments_come_and_go(vm, layout, folder));
            });
        }
    });
}

fn arguments_come_and_go(mut vm: Vm, layout: Layout, folder: &Arc<VmFolder>) -> anyhow::Result<()> {
    let has_argument = |vm: &mut Vm| -> anyhow::Result<bool> {
        Ok(vm.ask("cat /proc/cmdline")?.split(' ').any(|word| word == ARGUMENT))
    };
    anyhow::ensure!(!has_argument(&mut vm)?, "{layout:?}: the argument is there from the start");
    let output = vm.run("/opt/mco host apply -f /root/second.yaml --yes")?;
    anyhow::ensure!(output.code == 3, "{layout:?}: {output:?}");
    // The disk of a saved machine is the one that a power cut would leave.
    let saved = vm.save()?;
    let tree = saved.disk().tree(&folder.new_path("reported"))?;
    let menu = String::from_utf8_lossy(tree.bytes("/boot/grub/grub.cfg").unwrap_or_default());
    anyhow::ensure!(menu.contains(ARGUMENT), "{layout:?}: reported, but not on the disk: {menu}");
    let mut vm = saved.restore(folder)?.reboot()?;
    anyhow::ensure!(has_argument(&mut vm)?, "{layout:?}: the argument is not there");
    vm.ask("/opt/mco host confirm")?;
    vm.ask("/opt/mco host verify")?;
    let output = vm.run("/opt/mco host rollback --yes")?;
    anyhow::ensure!(output.code == 3, "{layout:?}: {output:?}");
    let mut vm = vm.reboot()?;
    anyhow::ensure!(!has_argument(&mut vm)?, "{layout:?}: the argument is still there");
    Ok(())
}
