//! Kills the server with SIGKILL while it writes: acknowledged writes must survive.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, ResourceExt as _, api::PostParams};
use mco_apiserver::{ApiServer, Listener, Settings};

use crate::{
    fixture::soon,
    listening::{client_by, config_map},
};

const DIR: &str = "MCO_APISERVER_CRASH_DIR";

/// The process that is killed: a listener that reports when it is ready.
#[test]
#[ignore = "the test below runs it as a separate process"]
#[expect(clippy::disallowed_methods, reason = "the parent names the directory")]
fn killed_process() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let dir = Path::new(&dir);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let api = ApiServer::open_dir(dir, Settings::default()).await.unwrap();
        let listener = Listener::bind(api, dir, "127.0.0.1:0".parse().unwrap()).await.unwrap();
        writeln!(std::io::stdout(), "\nready").unwrap();
        listener.serve(std::future::pending()).await;
    });
}

#[expect(clippy::disallowed_methods, reason = "a process that can be killed")]
async fn start(dir: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["crash::killed_process", "--exact", "--ignored", "--nocapture"]).env(DIR, dir);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let ready = tokio::task::spawn_blocking(move || {
        output.lines().map_while(Result::ok).any(|line| line == "ready")
    });
    assert!(soon("the server to be ready", ready).await.unwrap());
    child
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = start(dir.path()).await;
    let api: Api<ConfigMap> = Api::namespaced(client_by(dir.path(), "mco").await, "default");
    let acknowledged: Arc<Mutex<BTreeMap<String, String>>> = Arc::default();
    let (enough, mut count) = tokio::sync::mpsc::unbounded_channel();
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (api, acknowledged, enough) =
                (api.clone(), Arc::clone(&acknowledged), enough.clone());
            tokio::spawn(async move {
                for number in 0.. {
                    let name = format!("w{writer}-{number}");
                    let Ok(made) = api.create(&PostParams::default(), &config_map(&name)).await
                    else {
                        return;
                    };
                    let version = made.resource_version().unwrap();
                    acknowledged.lock().unwrap().insert(name, version);
                    let _ = enough.send(());
                }
            })
        })
        .collect();
    for _ in 0..60 {
        soon("an acknowledged write", count.recv()).await.unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    for writer in writers {
        writer.abort();
        let _ = writer.await;
    }

    let mut child = start(dir.path()).await;
    let api: Api<ConfigMap> = Api::namespaced(client_by(dir.path(), "mco").await, "default");
    let acknowledged = std::mem::take(&mut *acknowledged.lock().unwrap());
    assert!(acknowledged.len() >= 60);
    for (name, version) in &acknowledged {
        assert_eq!(api.get(name).await.unwrap().resource_version().as_ref(), Some(version));
    }
    let next = api.create(&PostParams::default(), &config_map("next")).await.unwrap();
    let number = |version: &str| version.parse::<u64>().unwrap();
    let newest = acknowledged.values().map(|version| number(version)).max().unwrap();
    assert!(number(&next.resource_version().unwrap()) > newest);
    child.kill().unwrap();
    child.wait().unwrap();
}
