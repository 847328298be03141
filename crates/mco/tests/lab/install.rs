//! An installation and its removal: machines and the pods of others are not touched, and what is deleted
//! comes back.

use std::{
    fs,
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::Context as _;
use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment},
        rbac::v1::ClusterRole,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, Resource, ResourceExt as _, api::PostParams};
use mco_api::{ClusterOperator, MachineConfig, label};
use mco_testkit::{
    PATIENCE,
    api::wait,
    lab::{Lab, WaitTarget},
    objects,
};
use serde::de::DeserializeOwned;

use crate::{
    TURN, application::Application, done, fleet::Fleet, join::Snapshot, lab,
    rollout::pool_is_updated,
};

/// Records of the daemon on a machine.
const RECORD: &str = "/etc/machine-config-daemon/currentconfig";

/// File of a MachineConfig, for which no machine is drained or rebooted.
const MANAGED: &str = "/var/lib/kubelet/config.json";

/// Installs `mco` as a user does: `mco install | kubectl apply -f -`.
pub(crate) fn apply(lab: &Lab, words: &[&str]) -> anyhow::Result<()> {
    let manifests = lab.folder().join("install.yaml");
    let text = mco(lab, &[&["install"], words].concat())?;
    fs::write(&manifests, text).context("failed to write the manifests")?;
    lab.ask(&["apply", "-f", &manifests.display().to_string()]).map(drop)
}

/// Runs `mco` as the administrator and returns its output.
pub(crate) fn mco(lab: &Lab, words: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mco"));
    command.args(words).env("KUBECONFIG", lab.kubeconfig()).stdin(Stdio::null());
    let output = command.output().context("failed to start mco")?;
    let error = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "mco {}: {error}", words.join(" "));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_installation_is_complete_repairs_itself_and_leaves() {
    let _turn = TURN.lock().await;
    let start = Instant::now();
    let log = |what: &str| eprintln!("install: {:5.1} s: {what}", start.elapsed().as_secs_f32());
    let Some(lab) = lab().await else { return };
    log("three machines are Ready");
    done(lab.ask(&["label", "nodes", "--all", "node-role.kubernetes.io/worker="]));
    done(lab.ask(&["label", "node", "m1", "node-role.kubernetes.io/control-plane="]));
    let application = done(Application::start(&lab).await);
    let before = done(Snapshot::of(&lab));
    let fleet = Fleet::watch(&lab);

    let checked = done(mco(&lab, &["install", "--dry-run=server"]));
    assert!(checked.contains("CustomResourceDefinition "), "{checked}");
    done(apply(&lab, &[]));
    log("the manifests were applied");
    done(is_healthy(&lab).await);
    log("the operator is Available, not Progressing and not Degraded");
    for machine in lab.machines() {
        done(fleet.wait(machine, "its first config", |node| node.has_updated_from("")).await);
    }
    done(pool_is_updated(&lab).await);
    log("every machine has its config");
    done(before.is_part_of(&done(Snapshot::of(&lab))));

    let namespace = label::NAMESPACE;
    let deployments = Api::<Deployment>::namespaced(lab.client(), namespace);
    done(comes_back(&lab, "deployment", deployments, "machine-config-controller").await);
    let sets = Api::<DaemonSet>::namespaced(lab.client(), namespace);
    done(comes_back(&lab, "daemonset", sets, "machine-config-daemon").await);
    let roles = Api::<ClusterRole>::all(lab.client());
    done(comes_back(&lab, "clusterrole", roles, "machine-config-daemon").await);
    let kinds = Api::<CustomResourceDefinition>::all(lab.client());
    let kind = "pinnedimagesets.machineconfiguration.openshift.io";
    done(comes_back(&lab, "customresourcedefinition", kinds, kind).await);
    log("what was deleted is back");
    done(is_healthy(&lab).await);
    done(before.is_part_of(&done(Snapshot::of(&lab))));

    done(the_removal_leaves_running_nodes(&lab).await);
    done(before.is_part_of(&done(Snapshot::of(&lab))));
    log("mco was removed");
    done(apply(&lab, &[]));
    done(is_healthy(&lab).await);
    done(pool_is_updated(&lab).await);
    done(before.is_part_of(&done(Snapshot::of(&lab))));
    log("mco was installed again");
    done(every_trace_is_removed(&lab).await);
    done(before.is_part_of(&done(Snapshot::of(&lab))));
    log("every trace of mco was removed");
    drop((fleet, application));
    done(lab.down());
    log("the lab was removed");
}

/// Waits until the ClusterOperator has the conditions of a healthy cluster.
pub(crate) async fn is_healthy(lab: &Lab) -> anyhow::Result<()> {
    let operators = Api::<ClusterOperator>::all(lab.client());
    let step = WaitTarget::cluster("the operator to be healthy");
    lab.wait(step, operators, label::CLUSTER_OPERATOR, |operator| {
        let conditions = operator.status.clone().unwrap_or_default().conditions;
        let is = |kind: &str, status: &str| {
            conditions.iter().any(|found| found.kind == kind && found.status == status)
        };
        let is_healthy =
            is("Available", "True") && is("Progressing", "False") && is("Degraded", "False");
        if is_healthy { Ok(()) } else { Err(format!("{conditions:#?}")) }
    })
    .await
}

/// Deletes an object and waits for the next one of its name.
async fn comes_back<K>(lab: &Lab, kind: &str, api: Api<K>, name: &str) -> anyhow::Result<()>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let before = api.get(name).await?.uid();
    let namespace = ["-n", label::NAMESPACE];
    lab.ask(&[&["delete", kind, name, "--wait=false"][..], &namespace].concat())?;
    let what = format!("{kind} {name} to come back");
    lab.wait(WaitTarget::cluster(&what), api, name, |found| {
        if found.uid() == before { Err("it is the old one".to_owned()) } else { Ok(()) }
    })
    .await
}

/// The daemons remove their records from the machines. The files of MachineConfigs stay.
async fn every_trace_is_removed(lab: &Lab) -> anyhow::Result<()> {
    let config = objects::config("60-managed", "worker", MANAGED, "%7B%7D");
    Api::<MachineConfig>::all(lab.client()).create(&PostParams::default(), &config).await?;
    for machine in lab.machines() {
        wait(&format!("{MANAGED} on {}", machine.name()), PATIENCE, || {
            machine.disk().ok()?.stat(MANAGED).ok()?.map(drop)
        })?;
    }
    pool_is_updated(lab).await?;
    let text = mco(lab, &["uninstall", "--yes", "--forget"])?;
    for machine in lab.machines() {
        let name = machine.name();
        anyhow::ensure!(text.contains(&format!("Node {name} forgot: ")), "{text}");
        lab.wait_ready(machine).await?;
        let disk = machine.disk()?;
        for path in ["/etc/machine-config-daemon", "/var/lib/machine-config-daemon"] {
            anyhow::ensure!(disk.stat(path)?.is_none(), "{name} still has {path}");
        }
        anyhow::ensure!(disk.stat(MANAGED)?.is_some(), "{name}: {MANAGED} is gone");
    }
    let annotations =
        lab.ask(&["get", "nodes", "-o", "jsonpath={.items[*].metadata.annotations}"])?;
    anyhow::ensure!(!annotations.contains(mco_api::GROUP), "{annotations}");
    wait("the namespaces and kinds to end", PATIENCE, || {
        let left = lab.ask(&["get", "namespaces,customresourcedefinitions", "-o", "name"]).ok()?;
        let ours = |line: &&str| line.contains(mco_api::GROUP) || line.contains("machine-config");
        left.lines().find(ours).is_none().then_some(())
    })
}

async fn the_removal_leaves_running_nodes(lab: &Lab) -> anyhow::Result<()> {
    let listed = mco(lab, &["uninstall"])?;
    let line = format!("Deployment {}/machine-config-operator would be deleted", label::NAMESPACE);
    assert!(listed.contains(&line), "{listed}");
    let deleted = mco(lab, &["uninstall", "--yes"])?;
    assert!(deleted.contains("stay as they are"), "{deleted}");
    let pods = ["get", "pods", "-n", label::NAMESPACE, "-o", "name"];
    wait("the processes to end", PATIENCE, || {
        lab.ask(&pods).ok().filter(|names| names.trim().is_empty()).map(drop)
    })?;
    for machine in lab.machines() {
        lab.wait_ready(machine).await?;
        assert!(machine.disk()?.stat(RECORD)?.is_some(), "{}: {RECORD}", machine.name());
    }
    let left = lab.ask(&["get", "clusteroperators", "-o", "name"])?;
    assert_eq!(left.trim(), "", "no status is left that no process keeps current");
    let configs = lab.ask(&["get", "machineconfigs,machineconfigpools", "-o", "name"])?;
    assert!(configs.contains("machineconfigpool.machineconfiguration.openshift.io/worker"));
    assert!(configs.contains("/rendered-worker-"), "{configs}");
    Ok(())
}
