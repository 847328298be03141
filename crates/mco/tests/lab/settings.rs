//! Settings that people write instead of Ignition, on real kubelets and a real containerd: a
//! KubeletConfig, mirrors of a registry, and SSH keys.

use std::collections::BTreeMap;

use kube::Api;
use mco_api::{KubeletConfig, MachineConfig};
use mco_testkit::{
    PATIENCE,
    api::wait,
    lab::{Lab, Machine, Registry, WaitTarget},
};
use serde_json::Value;

use crate::{
    fleet::Fleet,
    rollout::{boot_id, names, pool_is_updated},
    workspace,
};

fn manifest(name: &str) -> String {
    workspace().join("crates/mco/tests/lab").join(name).display().to_string()
}

/// Returns the configuration that a kubelet runs with, from the kubelet itself.
fn configuration(lab: &Lab, machine: &Machine) -> anyhow::Result<Value> {
    let path = format!("/api/v1/nodes/{}/proxy/configz", machine.name());
    let found: Value = serde_json::from_str(&lab.ask(&["get", "--raw", &path])?)?;
    Ok(found.get("kubeletconfig").cloned().unwrap_or_default())
}

/// Returns the settings of the KubeletConfig that the kubelets of all machines run with.
fn settings(lab: &Lab) -> anyhow::Result<BTreeMap<String, (Value, Value)>> {
    let of = |machine: &Machine| {
        let found = configuration(lab, machine)?;
        let at = |path: &str| found.pointer(path).cloned().unwrap_or_default();
        Ok((machine.name().to_owned(), (at("/maxPods"), at("/evictionHard/memory.available"))))
    };
    lab.machines().iter().map(of).collect()
}

/// Waits until the pool has a config other than `before`, and every machine has it. At most one
/// machine is updated at a time.
async fn rolled_out(lab: &Lab, fleet: &Fleet<'_>, before: &str) -> anyhow::Result<String> {
    let mut waiting = names(lab);
    while !waiting.is_empty() {
        let machine = fleet.wait_next(&waiting, before).await?;
        fleet.wait(machine, "the node to be updated", |node| node.has_updated_from(before)).await?;
        waiting.remove(machine.name());
    }
    let busiest = fleet.busiest();
    assert!(busiest.len() <= 1, "one machine at a time: {busiest:#?}");
    pool_is_updated(lab).await
}

/// Waits until the last condition of a KubeletConfig has this type, and returns its message.
async fn last_condition(lab: &Lab, name: &str, kind: &str) -> anyhow::Result<String> {
    let configs: Api<KubeletConfig> = Api::all(lab.client());
    let what = format!("KubeletConfig {name} to have the condition {kind}");
    lab.wait(WaitTarget::cluster(&what), configs, name, |config| {
        let conditions = config.status.clone().unwrap_or_default().conditions;
        match conditions.last() {
            Some(last) if last.kind == kind => Ok(last.message.clone()),
            other => Err(format!("its last condition is {other:?}")),
        }
    })
    .await
}

// covers: KUB-1, KUB-10
pub(crate) async fn a_kubelet_config_reaches_the_kubelets_and_its_deletion_returns(
    lab: &Lab,
    fleet: &Fleet<'_>,
) -> anyhow::Result<()> {
    let before = pool_is_updated(lab).await?;
    let defaults = settings(lab)?;
    lab.ask(&["label", "mcp", "worker", "custom-kubelet=small"])?;

    // Refused: no machine hears of it.
    lab.ask(&["apply", "-f", &manifest("kubelet-bad.yaml")])?;
    let message = last_condition(lab, "bad", "Failure").await?;
    assert!(message.contains("maxPods"), "{message}");
    lab.ask(&["delete", "kubeletconfig", "bad"])?;
    assert_eq!(pool_is_updated(lab).await?, before, "nothing was rendered");

    lab.ask(&["apply", "-f", &manifest("kubelet.yaml")])?;
    let after = rolled_out(lab, fleet, &before).await?;
    assert_eq!(last_condition(lab, "small", "Success").await?, "Success");
    for (machine, found) in settings(lab)? {
        assert_eq!(found, (Value::from(77), Value::from("150Mi")), "{machine}");
    }
    lab.ask(&["get", "mc", "99-worker-generated-kubelet"])?;

    lab.ask(&["delete", "kubeletconfig", "small"])?;
    let last = rolled_out(lab, fleet, &after).await?;
    assert_eq!(last, before, "the pool has its previous config");
    assert_eq!(settings(lab)?, defaults);
    let configs: Api<MachineConfig> = Api::all(lab.client());
    assert!(configs.get_opt("99-worker-generated-kubelet").await?.is_none());
    for machine in lab.machines() {
        let folder = "/etc/kubernetes/kubelet.conf.d";
        let files = machine.run(&["find", folder, "-type", "f"])?;
        assert!(files.stdout.is_empty(), "{}: {files:?}", machine.name());
    }
    Ok(())
}

// covers: REG-1
pub(crate) async fn a_mirror_is_used_without_a_reboot(
    lab: &Lab,
    fleet: &Fleet<'_>,
) -> anyhow::Result<()> {
    let registry = lab.registry()?;
    let machine = lab.machine("m1")?;
    let push = || Registry::push(machine, "localhost/pause:lab", "mirror/team/pause:1").ok();
    wait("the image to be pushed", PATIENCE, push)
        .map_err(|error| error.context(registry.log()))?;
    let before = pool_is_updated(lab).await?;
    let boots: BTreeMap<&str, String> = lab
        .machines()
        .iter()
        .map(|machine| Ok((machine.name(), boot_id(machine)?)))
        .collect::<anyhow::Result<_>>()?;
    lab.ask(&["apply", "-f", &manifest("mirrors.yaml")])?;
    rolled_out(lab, fleet, &before).await?;
    lab.ask(&["apply", "-f", &manifest("mirrored-pods.yaml")])?;
    let ready = ["wait", "--for=condition=Ready", "pod", "-l", "app=mirrored", "--timeout=180s"];
    lab.ask(&ready)?;
    assert!(registry.log().contains("/v2/mirror/team/pause/manifests/"), "{}", registry.log());
    for machine in lab.machines() {
        assert_eq!(boot_id(machine)?, boots[machine.name()], "{} rebooted", machine.name());
    }
    lab.ask(&["delete", "-f", &manifest("mirrored-pods.yaml"), "--wait=false"])?;
    let after = pool_is_updated(lab).await?;
    lab.ask(&["delete", "-f", &manifest("mirrors.yaml")])?;
    let last = rolled_out(lab, fleet, &after).await?;
    assert_eq!(last, before, "the pool has its previous config");
    Ok(())
}

/// Only two machines have the user of the key; the third one ignores it.
pub(crate) async fn an_ssh_key_appears_and_disappears(
    lab: &Lab,
    fleet: &Fleet<'_>,
) -> anyhow::Result<()> {
    let before = pool_is_updated(lab).await?;
    for name in ["m1", "m2"] {
        lab.machine(name)?.ask(&["useradd", "--create-home", "core"])?;
    }
    lab.ask(&["apply", "-f", &manifest("ssh.yaml")])?;
    let after = rolled_out(lab, fleet, &before).await?;
    let has_key = |name: &str| -> anyhow::Result<bool> {
        let keys = lab.machine(name)?.read("/home/core/.ssh/authorized_keys.d/ignition")?;
        Ok(keys.is_some_and(|text| text.contains("admin@example")))
    };
    let found = ["m1", "m2", "m3"].map(has_key);
    assert!(matches!(found, [Ok(true), Ok(true), Ok(false)]), "{found:?}");
    lab.ask(&["delete", "-f", &manifest("ssh.yaml")])?;
    assert_eq!(rolled_out(lab, fleet, &after).await?, before);
    let found = ["m1", "m2", "m3"].map(has_key);
    assert!(matches!(found, [Ok(false), Ok(false), Ok(false)]), "{found:?}");
    Ok(())
}
