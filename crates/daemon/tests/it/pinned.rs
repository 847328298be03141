//! Pinned images are pulled ahead of time, kept, and released.

use std::{
    collections::BTreeSet,
    fs,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use mco_api::{MachineConfigNode, MachineConfigPool, PinnedImageSet};
use mco_host::SystemError;
use mco_testkit::object_wait;
use serde_json::json;

use crate::fleet::{Drains, Fleet};

const PIN_FILE: &str = "/etc/crio/crio.conf.d/50-pinned-images";

/// Plays the machine's container engine.
#[derive(Clone, Default)]
struct Engine(Arc<Mutex<Images>>);

#[derive(Default)]
struct Images {
    has: BTreeSet<String>,
    broken: BTreeSet<String>,
    pulls: Vec<String>,
    labels: BTreeSet<String>,
    commands: Vec<String>,
}

impl Engine {
    fn run(&self, command: &[&str]) -> Result<String, SystemError> {
        let mut images = self.0.lock().unwrap();
        images.commands.push(command.join(" "));
        match command {
            [_, "images", "-o", "json"] => {
                let list: Vec<_> =
                    images.has.iter().map(|image| json!({"repoDigests": [image]})).collect();
                Ok(json!({"images": list}).to_string())
            }
            [_, "pull", image] => {
                images.pulls.push((*image).to_owned());
                if images.broken.contains(*image) {
                    let command = format!("crictl pull {image}");
                    let fault = "manifest unknown: exit status 1".to_owned();
                    return Err(SystemError::Command { command, fault });
                }
                images.has.insert((*image).to_owned());
                Ok(String::new())
            }
            [_, "manifest", "inspect", "--authfile", _, _] => Ok(r#"{"layers":[]}"#.to_owned()),
            [_, "-n", "k8s.io", "images", "label", image, label] => {
                match *label {
                    "io.cri-containerd.pinned=pinned" => images.labels.insert((*image).to_owned()),
                    "io.cri-containerd.pinned=" => images.labels.remove(*image),
                    other => panic!("no such label: {other}"),
                };
                Ok(String::new())
            }
            other => panic!("no such command: {other:?}"),
        }
    }
}

fn image(letter: char) -> String {
    format!("q.example/{letter}@sha256:{}", letter.to_string().repeat(64))
}

async fn pin(fleet: &Fleet, name: &str, letters: &str) {
    let api: Api<PinnedImageSet> = Api::all(fleet.client.clone());
    let images: Vec<_> = letters.chars().map(|it| json!({"name": image(it)})).collect();
    let object = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "PinnedImageSet",
        "metadata": {"name": name}, "spec": {"pinnedImages": images}
    });
    if api.get_opt(name).await.unwrap().is_some() {
        let patch = Patch::Merge(object);
        api.patch(name, &PatchParams::default(), &patch).await.unwrap();
    } else {
        let object = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
    }
}

async fn name_sets(fleet: &Fleet, names: &[&str]) {
    let pools: Api<MachineConfigPool> = Api::all(fleet.client.clone());
    let sets: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
    let patch = Patch::Merge(json!({"spec": {"pinnedImageSets": sets}}));
    pools.patch("worker", &PatchParams::default(), &patch).await.unwrap();
}

/// Waits until conditions and sets match, such as `a=2/2 b=1/3! Progressing`.
async fn wait(fleet: &Fleet, want: &str) {
    let words = |object: &MachineConfigNode| {
        let status = object.status.clone().unwrap_or_default();
        let set = |set: &mco_api::machine_config_node::PinnedImageSetState| {
            let failed = if set.last_failed_generation > 0 { "!" } else { "" };
            format!("{}={}/{}{failed}", set.name, set.current_generation, set.desired_generation)
        };
        let mut words: Vec<String> = status.pinned_image_sets.iter().map(set).collect();
        let holds = status.conditions.iter().filter(|it| it.status == "True");
        words.extend(
            holds.filter_map(|it| it.type_.strip_prefix("PinnedImageSets").map(str::to_owned)),
        );
        words.sort();
        words.join(" ")
    };
    let mut last = String::new();
    let seen = object_wait::find(fleet.machine_config_nodes(), |object| {
        last = words(&object);
        (last == want).then_some(())
    });
    let seen = seen.await.is_some();
    assert!(seen, "not seen: {want}; last: {last}");
}

async fn fleet() -> (Fleet, Engine, mco_host::CallLog) {
    let mut fleet = Fleet::new(&[], Drains::Answered).await;
    fleet.create_machine_config_node().await;
    let status = json!({"status": {
        "conditions": [{"type": "Ready", "status": "True"}],
        "allocatable": {"ephemeral-storage": "100Gi"}}});
    let nodes: Api<Node> = Api::all(fleet.client.clone());
    let patch = Patch::Merge(status);
    nodes.patch_status("worker-0", &PatchParams::default(), &patch).await.unwrap();
    fleet.limits.pull_pause = Duration::from_millis(1);
    let engine = Engine::default();
    let runs = engine.clone();
    fleet.commands = Some(Arc::new(move |command: &[&str]| runs.run(command)));
    let journal = fleet.start_watched().await;
    fleet.wait("state=Done").await;
    (fleet, engine, journal)
}

// covers: C113, C117
#[tokio::test(flavor = "multi_thread")]
async fn sets_are_pulled_pinned_changed_and_released() {
    let (mut fleet, engine, journal) = fleet().await;
    let reloads = || journal.calls().iter().filter(|call| *call == "reload crio.service").count();
    pin(&fleet, "a", "ab").await;
    pin(&fleet, "b", "bc").await;
    name_sets(&fleet, &["a", "b"]).await;
    wait(&fleet, "a=1/1 b=1/1").await;
    let pinned = |letters: &str| {
        let names: Vec<String> = letters.chars().map(|it| format!("\"{}\"", image(it))).collect();
        format!("[crio]\n  [crio.image]\n    pinned_images = [{}]\n", names.join(", "))
    };
    assert_eq!(fleet.text(PIN_FILE), Some(pinned("abc")));
    assert_eq!(engine.0.lock().unwrap().pulls.len(), 3, "an image of two sets is pulled once");
    let before = reloads();

    fleet.stop().await;
    let journal = fleet.start_watched().await;
    fleet.wait("state=Done").await;
    pin(&fleet, "b", "c").await;
    wait(&fleet, "a=1/1 b=2/2").await;
    assert_eq!(before, 1, "reloaded once");
    let calls = journal.calls();
    assert!(!calls.contains(&"reload crio.service".to_owned()), "the same images: {calls:?}");
    assert_eq!(engine.0.lock().unwrap().pulls.len(), 3, "a restart pulls nothing again");

    name_sets(&fleet, &["b"]).await;
    wait(&fleet, "b=2/2").await;
    assert_eq!(fleet.text(PIN_FILE), Some(pinned("c")));
    let sets: Api<PinnedImageSet> = Api::all(fleet.client.clone());
    sets.delete("b", &DeleteParams::default()).await.unwrap();
    wait(&fleet, "").await;
    assert_eq!(fleet.text(PIN_FILE), None);
    fleet.stop().await;
}

// covers: C114
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_pull_is_reported_and_a_newer_set_recovers() {
    let (mut fleet, engine, _journal) = fleet().await;
    engine.0.lock().unwrap().broken.insert(image('d'));
    pin(&fleet, "a", "ad").await;
    name_sets(&fleet, &["a"]).await;
    wait(&fleet, "Degraded Progressing a=0/1!").await;
    let object = fleet.machine_config_nodes().get("worker-0").await.unwrap();
    let fault = object.status.unwrap().pinned_image_sets[0].last_failed_generation_error.clone();
    let want = format!("failed to pull image {:?}: ", image('d'));
    assert!(fault.starts_with(&want) && fault.contains("manifest unknown"), "{fault}");
    assert_eq!(fleet.text(PIN_FILE), None, "a missing image is not pinned");
    pin(&fleet, "a", "a").await;
    wait(&fleet, "a=2/2").await;
    assert!(fleet.text(PIN_FILE).is_some());
    // A drop-in that another process removed is written again only with the next change.
    fs::remove_file(fleet.path(PIN_FILE)).unwrap();
    pin(&fleet, "a", "ab").await;
    wait(&fleet, "a=3/3").await;
    fleet.stop().await;
}

// covers: C113
#[tokio::test(flavor = "multi_thread")]
async fn containerd_keeps_images_by_a_label_and_without_an_engine_none_are_pulled() {
    let (mut fleet, engine, _journal) = fleet().await;
    fs::remove_file(fleet.path("/usr/lib/systemd/system/crio.service")).unwrap();
    pin(&fleet, "a", "ab").await;
    name_sets(&fleet, &["a"]).await;
    wait(&fleet, "Degraded Progressing a=0/1!").await;
    let object = fleet.machine_config_nodes().get("worker-0").await.unwrap();
    let fault = object.status.unwrap().pinned_image_sets[0].last_failed_generation_error.clone();
    assert!(fault.starts_with("neither CRI-O nor containerd is installed"), "{fault}");
    assert!(engine.0.lock().unwrap().pulls.is_empty());

    let unit = "[Service]\nExecStart=/usr/bin/containerd\n";
    fs::write(fleet.path("/usr/lib/systemd/system/containerd.service"), unit).unwrap();
    pin(&fleet, "a", "abc").await;
    wait(&fleet, "a=2/2").await;
    let labels = || engine.0.lock().unwrap().labels.iter().cloned().collect::<Vec<_>>();
    assert_eq!(labels(), [image('a'), image('b'), image('c')]);
    assert_eq!(fleet.text(PIN_FILE), None, "containerd does not read it");
    pin(&fleet, "a", "b").await;
    wait(&fleet, "a=3/3").await;
    assert_eq!(labels(), [image('b')]);
    name_sets(&fleet, &[]).await;
    wait(&fleet, "").await;
    assert_eq!(labels(), [""; 0]);
    assert_eq!(fleet.text("/etc/machine-config-daemon/mco-pinned-images.json"), None);
    fleet.stop().await;
}

// covers: C116
#[tokio::test(flavor = "multi_thread")]
async fn mirrors_and_credentials_are_left_to_the_engine() {
    let (mut fleet, engine, _journal) = fleet().await;
    let secret = r#"{"auths":{"q.example":{"auth":"c2VjcmV0"}}}"#;
    fs::create_dir_all(fleet.path("/var/lib/kubelet")).unwrap();
    fs::write(fleet.path("/var/lib/kubelet/config.json"), secret).unwrap();
    fs::create_dir_all(fleet.path("/usr/bin")).unwrap();
    fs::write(fleet.path("/usr/bin/podman"), "").unwrap();
    pin(&fleet, "a", "a").await;
    name_sets(&fleet, &["a"]).await;
    wait(&fleet, "a=1/1").await;
    let commands = engine.0.lock().unwrap().commands.clone();
    let asked: Vec<&str> =
        commands.iter().map(String::as_str).filter(|it| !it.contains(" images ")).collect();
    let image = image('a');
    let size =
        format!("/usr/bin/podman manifest inspect --authfile /var/lib/kubelet/config.json {image}");
    assert_eq!(asked, [size, format!("/usr/bin/crictl pull {image}")]);
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_status_update_does_not_block_later_ones() {
    let (mut fleet, _engine, _journal) = fleet().await;
    wait(&fleet, "").await;
    // A generation may not decrease, and this one is ahead of all later ones.
    let ahead = json!({"name": "a", "currentGeneration": 5, "desiredGeneration": 5});
    let patch = Patch::Merge(json!({"status": {"pinnedImageSets": [ahead]}}));
    fleet
        .machine_config_nodes()
        .patch_status("worker-0", &PatchParams::default(), &patch)
        .await
        .unwrap();
    pin(&fleet, "a", "a").await;
    name_sets(&fleet, &["a"]).await;
    let text = format!("[crio]\n  [crio.image]\n    pinned_images = [\"{}\"]\n", image('a'));
    fleet.wait_for_text(PIN_FILE, &text).await;
    fleet.render("rendered-worker-2", &[("/etc/containers/policy.json", "1")], &json!({})).await;
    fleet.desire("rendered-worker-2").await;
    let reported = object_wait::find(fleet.machine_config_nodes(), |object| {
        let status = object.status?;
        let is_updated = |it: &Condition| it.type_ == "Updated" && it.status == "True";
        (status.config_version?.current == "rendered-worker-2"
            && status.conditions.iter().any(is_updated))
        .then_some(())
    });
    assert!(reported.await.is_some(), "the update is reported");
    fleet.stop().await;
}
