//! A node follows an API server that was restored from a backup.

use kube::api::{Patch, PatchParams};
use mco_testkit::switch::switching;
use serde_json::json;
use tokio::sync::watch;

use crate::fleet::{Drains, Fleet};

#[tokio::test(flavor = "multi_thread")]
async fn the_desired_config_is_heard_after_a_restore_without_a_restart() {
    let mut fleet = Fleet::new(&[], Drains::Answered).await;
    let restored = Fleet::new(&[], Drains::Answered).await;
    let (switch, switched) = watch::channel(false);
    fleet.client = switching([fleet.client.clone(), restored.client.clone()], &switched);
    fleet.start();
    fleet.wait("currentConfig=rendered-worker-1, state=Done").await;
    // The versions that the daemon has seen are far above those of the restored server.
    for number in 0..300 {
        let mark = json!({"metadata": {"annotations": {"example.com/mark": number.to_string()}}});
        let patch = Patch::Merge(mark);
        fleet.nodes.patch("worker-0", &PatchParams::default(), &patch).await.unwrap();
    }
    for (key, value) in [
        ("currentConfig", "rendered-worker-1"),
        ("desiredConfig", "rendered-worker-1"),
        ("state", "Done"),
    ] {
        restored.annotate(key, value).await;
    }
    let files = [("/etc/containers/policy.json", "1")];
    restored.render("rendered-worker-2", &files, &json!({})).await;
    switch.send_replace(true);
    restored.desire("rendered-worker-2").await;
    restored.wait("currentConfig=rendered-worker-2, state=Done").await;
    assert_eq!(fleet.text("/etc/containers/policy.json").as_deref(), Some("1"));
    fleet.stop().await;
}
