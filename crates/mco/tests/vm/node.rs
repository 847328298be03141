//! The daemon of a node whose machine has a boot loader and a kernel of its own, and `/boot` as a file
//! system of its own.

use std::{path::Path, sync::Arc};

use anyhow::Context as _;
use mco_testkit::{
    node_cluster::{DAEMON, KUBECONFIG, NodeCluster},
    nodes::NodeSummary,
    vm::{Layout, Vm, VmFolder, VmPrerequisites},
};
use serde_json::json;

use crate::{
    configs::ARGUMENT,
    done,
    fixture::{machine, turn},
    prerequisites,
};

// covers: C129
#[test]
fn a_node_reboots_into_the_kernel_arguments_of_its_pool_and_out_of_them() {
    let _turn = turn(1);
    let Some(prerequisites) = prerequisites() else { return };
    done(roll_out(&prerequisites));
}

fn roll_out(prerequisites: &VmPrerequisites) -> anyhow::Result<()> {
    let folder = Arc::new(VmFolder::make(&prerequisites.machines())?);
    let cluster = NodeCluster::start(Path::new(env!("CARGO_BIN_EXE_mco")), "vm", &json!({}))?;
    let mut vm = machine(prerequisites, Layout::SeparateBoot, &folder)?;
    start_daemon(&mut vm, &cluster)?;
    let node = cluster.wait("the first config", NodeSummary::is_done);
    let first = node.with_context(|| journal(&mut vm))?.current;
    cluster.add(
        "50-argument",
        &json!({
            "config": {"ignition": {"version": "3.4.0"}},
            "kernelArguments": [ARGUMENT],
        }),
    )?;
    let vm = follow(vm, &cluster, |node| node.current != first, true)?;
    cluster.remove("50-argument")?;
    follow(vm, &cluster, |node| node.current == first, false)?;
    Ok(())
}

/// Follows the reboot of an update; the kernel then has the argument or not, and the node is Done.
fn follow(
    vm: Vm,
    cluster: &NodeCluster,
    is_new: impl Fn(&NodeSummary) -> bool,
    expected: bool,
) -> anyhow::Result<Vm> {
    let mut vm = vm.follow_reboot()?;
    let arguments = vm.ask("cat /proc/cmdline")?;
    let has_argument = arguments.split(' ').any(|word| word == ARGUMENT);
    anyhow::ensure!(has_argument == expected, "{arguments}");
    let node = cluster.wait("the node to have its config", |node| {
        node.is_done() && !node.cordoned && is_new(node)
    });
    node.with_context(|| journal(&mut vm))?;
    Ok(vm)
}

/// Starts the daemon as a service.
fn start_daemon(vm: &mut Vm, cluster: &NodeCluster) -> anyhow::Result<()> {
    let host = vm.connect()?;
    let port = cluster.address()?.port();
    let kubeconfig = cluster.kubeconfig_at(&format!("{host}:{port}"))?;
    vm.write(KUBECONFIG, kubeconfig.as_bytes())?;
    let unit = cluster.daemon_unit("/opt/mco");
    vm.write(&format!("/etc/systemd/system/{DAEMON}"), unit.as_bytes())?;
    vm.ask(&format!("systemctl daemon-reload && systemctl enable --now {DAEMON}"))?;
    Ok(())
}

fn journal(vm: &mut Vm) -> String {
    vm.ask("journalctl --no-pager --lines 60").unwrap_or_else(|error| format!("{error:#}"))
}
