//! An upgrade of `mco` itself in the middle of a roll-out, and the way back.
//!
//! The previous version is the program in `MCO_PREVIOUS`, or else the same program from another image and
//! of another release.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use kube::{Api, Resource};
use mco_api::{ClusterOperator, label};
use mco_testkit::lab::{Lab, WaitTarget};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    TURN, done,
    fleet::Fleet,
    install::is_healthy,
    lab,
    rollout::{boot_id, names, pool_is_updated},
    workspace,
};

const PREVIOUS: &str = "localhost/mco:previous";
const CURRENT: &str = "localhost/mco:latest";
const CONTROLLER: &str = "machine-config-controller";
const DAEMON: &str = "machine-config-daemon";

/// A version of `mco`: program, image and release.
struct Version {
    program: PathBuf,
    image: &'static str,
    release: String,
}

impl Version {
    fn current() -> Self {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_mco"));
        Self { program, image: CURRENT, release: env!("CARGO_PKG_VERSION").to_owned() }
    }

    fn previous() -> Self {
        let program = std::env::var_os("MCO_PREVIOUS").map(PathBuf::from);
        let program = program.unwrap_or_else(|| env!("CARGO_BIN_EXE_mco").into());
        Self { program, image: PREVIOUS, release: "0.0.9".to_owned() }
    }

    /// Installs this version as an administrator does.
    fn apply(&self, lab: &Lab) -> anyhow::Result<()> {
        let mut install = Command::new(&self.program);
        install.args(["install", "--image", self.image, "-o", "json"]).stdin(Stdio::null());
        let output = install.output().context("failed to start mco")?;
        anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut list: Value = serde_json::from_slice(&output.stdout)?;
        for object in list["items"].as_array_mut().into_iter().flatten() {
            let variable = object.pointer_mut("/spec/template/spec/containers/0/env/0/value");
            if let Some(release) = variable {
                *release = self.release.clone().into();
            }
        }
        let path = lab.folder().join("version.json");
        fs::write(&path, list.to_string()).context("failed to write the manifests")?;
        lab.ask(&["apply", "-f", &path.display().to_string()]).map(drop)
    }

    /// Waits until all processes are of this version and the operator is healthy.
    async fn runs(&self, lab: &Lab) -> anyhow::Result<()> {
        let daemons = Api::<DaemonSet>::namespaced(lab.client(), label::NAMESPACE);
        let what = format!("every daemon to run from {}", self.image);
        lab.wait(WaitTarget::cluster(&what), daemons, DAEMON, |set| {
            let status = set.status.clone().unwrap_or_default();
            let is_seen = status.observed_generation == set.metadata.generation;
            let updated = status.updated_number_scheduled.unwrap_or_default();
            if is_seen && image(set) == self.image && updated == 3 && status.number_ready == 3 {
                Ok(())
            } else {
                Err(format!("{}: {status:?}", image(set)))
            }
        })
        .await?;
        let operators = Api::<ClusterOperator>::all(lab.client());
        let what = format!("the release {}", self.release);
        lab.wait(WaitTarget::cluster(&what), operators, label::CLUSTER_OPERATOR, |operator| {
            let versions = operator.status.clone().unwrap_or_default().versions;
            let is_it = versions.iter().any(|it| it.version == self.release);
            if is_it { Ok(()) } else { Err(format!("{versions:?}")) }
        })
        .await?;
        is_healthy(lab).await
    }
}

/// Returns the image of the first container of a workload.
fn image<K: serde::Serialize>(workload: &K) -> String {
    let workload = serde_json::to_value(workload).unwrap_or_default();
    let image = workload.pointer("/spec/template/spec/containers/0/image");
    image.and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Returns the names of all rendered configs.
fn rendered(lab: &Lab) -> anyhow::Result<BTreeSet<String>> {
    let names = lab.ask(&["get", "machineconfigs", "-o", "name"])?;
    let names = names.lines().filter_map(|line| line.rsplit_once('/')).map(|(_, name)| name);
    Ok(names.filter(|name| name.starts_with("rendered-")).map(str::to_owned).collect())
}

fn boots(lab: &Lab) -> anyhow::Result<BTreeMap<String, String>> {
    let boot = |it: &mco_testkit::lab::Machine| Ok((it.name().to_owned(), boot_id(it)?));
    lab.machines().iter().map(boot).collect()
}

/// Waits until the DaemonSet has the image, and returns the controller's Deployment at that time.
async fn controller_when_daemons_follow(lab: &Lab, to: &str) -> anyhow::Result<Deployment> {
    wait_for_image::<DaemonSet>(lab, DAEMON, to).await?;
    let deployments = Api::<Deployment>::namespaced(lab.client(), label::NAMESPACE);
    Ok(deployments.get(CONTROLLER).await?)
}

async fn wait_for_image<K>(lab: &Lab, name: &str, to: &str) -> anyhow::Result<()>
where
    K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + serde::Serialize
        + Send
        + 'static,
{
    let api = Api::<K>::namespaced(lab.client(), label::NAMESPACE);
    let what = format!("{name} to have the image {to}");
    lab.wait(WaitTarget::cluster(&what), api, name, |found| {
        if image(found) == to { Ok(()) } else { Err(image(found)) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_in_the_middle_of_a_roll_out_disturbs_nothing_and_can_be_taken_back() {
    let _turn = TURN.lock().await;
    let start = Instant::now();
    let log = |what: &str| eprintln!("upgrade: {:5.1} s: {what}", start.elapsed().as_secs_f32());
    let Some(lab) = lab().await else { return };
    let (previous, current) = (Version::previous(), Version::current());
    done(lab.add_image(PREVIOUS, &previous.program));
    log("three machines are Ready, with the images of both versions");
    done(lab.ask(&["label", "nodes", "--all", "node-role.kubernetes.io/worker="]));
    done(lab.ask(&["label", "node", "m1", "node-role.kubernetes.io/control-plane="]));
    let fleet = Fleet::watch(&lab);
    done(previous.apply(&lab));
    done(previous.runs(&lab).await);
    let first = done(pool_is_updated(&lab).await);
    log("the previous version runs");

    let configs = done(rendered(&lab));
    fleet.boots();
    done(lab.ask(&["apply", "-f", &path("examples/99-worker-custom.yaml")]));
    let machine = done(fleet.wait_next(&names(&lab), &first).await);
    log(&format!("{} is updated", machine.name()));
    done(current.apply(&lab));
    let controller = done(controller_when_daemons_follow(&lab, CURRENT).await);
    assert_eq!(image(&controller), CURRENT, "the controller comes before the daemons");
    let status = controller.status.clone().unwrap_or_default();
    assert_eq!(status.observed_generation, controller.metadata.generation);
    assert_eq!(status.updated_replicas, Some(1), "{status:?}");
    log("the controller was replaced, and the daemons follow");
    done(current.runs(&lab).await);
    let second = done(pool_is_updated(&lab).await);
    log("the current version runs, and the roll-out is complete");

    // The user's MachineConfig is one new config of its pool, and one reboot of each machine.
    let mut expected = configs.clone();
    expected.insert(second.clone());
    assert_ne!(first, second);
    assert_eq!(done(rendered(&lab)), expected, "nothing else was rendered");
    for (name, boots) in fleet.boots() {
        assert_eq!(boots.len(), 2, "{name} was rebooted once: {boots:?}");
    }

    let before = done(boots(&lab));
    done(previous.apply(&lab));
    done(previous.runs(&lab).await);
    assert_eq!(done(pool_is_updated(&lab).await), second);
    log("the previous version is back");
    done(current.apply(&lab));
    done(current.runs(&lab).await);
    assert_eq!(done(pool_is_updated(&lab).await), second);
    assert_eq!(done(rendered(&lab)), expected, "nothing was rendered anew");
    assert_eq!(done(boots(&lab)), before, "no machine was rebooted");
    log("the current version runs again");
    drop(fleet);
    done(lab.down());
    log("the lab was removed");
}

fn path(below: &str) -> String {
    workspace().join(Path::new(below)).display().to_string()
}
