//! Objects as with kubectl: watched, fetched from a URL, deleted by kind; notes left out; a change undone
//! although its MachineConfig was edited.

#![expect(clippy::disallowed_methods, reason = "the test starts programs and a web server")]

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener},
    path::Path,
};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use mco_api::MachineConfig;
use mco_testkit::{
    PATIENCE,
    api::{self, Process},
};
use rustix::process::Signal;
use serde_json::json;

use super::{Cluster, Live, file, next_second};
use crate::{config, mco};

on_both! {
    changes_are_watched,
    objects_are_deleted_by_kind_folder_and_namespace,
    manifests_are_fetched_from_a_url,
    an_edit_is_undone_and_a_deletion_pinned,
}

async fn changes_are_watched(live: Live) {
    let mut command = api::command(env!("CARGO_BIN_EXE_mco"));
    command.args(["get", "mc", "-w", "-o", "name"]).env("KUBECONFIG", &live.cluster.kubeconfig);
    let log = live.folder.path("watch.log");
    let mut watch = Process::start("mco get -w", &mut command, &log).unwrap();
    let printed = |log: &Path, name: &str| {
        let wanted = format!("machineconfig.machineconfiguration.openshift.io/{name}\n");
        std::fs::read_to_string(log).unwrap_or_default().matches(&wanted).count()
    };
    // Waits until the watch has printed more lines about an object.
    let seen = async |name: &'static str, before: usize| {
        let log = log.clone();
        let waiting = move || {
            let what = format!("the watch to print {name} more than {before} times");
            let is_seen = || (printed(&log, name) > before).then_some(());
            api::wait(&what, PATIENCE, is_seen).unwrap_or_else(|error| {
                panic!("{error:#}\n{}", std::fs::read_to_string(&log).unwrap_or_default())
            });
        };
        tokio::task::spawn_blocking(waiting).await.unwrap();
    };
    seen("50-motd", 0).await;
    let before = printed(&log, "50-motd");
    live.ok(&["apply", "-f", "more.yaml"]).await;
    live.ok(&["delete", "mc", "50-motd"]).await;
    seen("60-more", 0).await;
    seen("50-motd", before).await;
    watch.signal(Signal::INT).unwrap();
    assert!(watch.wait(PATIENCE).unwrap().success(), "{}", watch.log());
}

async fn objects_are_deleted_by_kind_folder_and_namespace(live: Live) {
    let client = &live.cluster.client;
    live.cluster.put(Api::<Namespace>::all(client.clone()), "other", json!({})).await;
    let maps = |namespace: &str| Api::<ConfigMap>::namespaced(client.clone(), namespace);
    for (namespace, name) in [("default", "a"), ("other", "a"), ("other", "b")] {
        let labels = json!({"metadata": {"labels": {"story": name}}});
        live.cluster.put(maps(namespace), name, labels).await;
    }
    let left = async || {
        let mut left = Vec::new();
        for (namespace, name) in [("default", "a"), ("other", "a"), ("other", "b")] {
            if maps(namespace).get_opt(name).await.unwrap().is_some() {
                left.push(format!("{namespace}/{name}"));
            }
        }
        left.join(" ")
    };
    live.ok(&["delete", "cm", "-l", "story=a", "-A", "--dry-run"]).await;
    assert_eq!(left().await, "default/a other/a other/b");
    let text = live.ok(&["delete", "cm", "-l", "story=a", "-A"]).await;
    assert_eq!(text, "configmap \"a\" deleted\nconfigmap \"a\" deleted\n");
    assert_eq!(left().await, "other/b");
    live.ok(&["delete", "cm", "--all"]).await;
    assert_eq!(left().await, "other/b", "--all means the namespace");
    live.ok(&["delete", "cm", "--all", "-n", "other"]).await;
    assert_eq!(left().await, "");

    let folder = "resources: [../more.yaml]\n";
    live.folder.write("overlay/kustomization.yaml", folder.as_bytes());
    live.ok(&["apply", "-k", "overlay"]).await;
    let text = live.ok(&["delete", "-k", "overlay"]).await;
    assert!(text.ends_with("\"60-more\" deleted\n"), "{text}");

    // Results and errors stay without notes.
    let (code, text, errors) = live.run(&["apply", "-f", "more.yaml", "--quiet"]).await;
    assert!(code == 0 && text.ends_with("/60-more created\n"), "{text}");
    assert_eq!(errors, "");
    let (_, _, errors) = live.run(&["-q", "get", "mc", "none"]).await;
    assert!(errors.starts_with("error: "), "{errors}");
}

/// Serves a manifest, a redirect to it, and a file that is too large, until the test ends.
fn serve(manifest: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream);
            let mut request = String::new();
            drop(reader.read_line(&mut request));
            let mut header = String::new();
            while reader.read_line(&mut header).is_ok_and(|size| size > 2) {
                header.clear();
            }
            let (status, more, body) = match request.split(' ').nth(1).unwrap_or_default() {
                "/more.yaml" => ("200 OK", String::new(), manifest.clone()),
                "/moved" => ("302 Found", "Location: /more.yaml\r\n".to_owned(), String::new()),
                "/large" => ("200 OK", String::new(), "#".repeat((1 << 20) + 1)),
                _ => ("404 Not Found", String::new(), String::new()),
            };
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status}\r\n{more}Content-Length: {length}\r\nConnection: close\r\n\r\n"
            );
            // A client that has seen enough closes the connection.
            drop(reader.get_mut().write_all(format!("{head}{body}").as_bytes()));
        }
    });
    address
}

async fn manifests_are_fetched_from_a_url(live: Live) {
    let address = serve(live.folder.read("more.yaml"));
    let url = |path: &str| format!("http://{address}/{path}");
    let text = live.ok(&["apply", "-f", &url("moved")]).await;
    assert!(text.ends_with("/60-more created\n"), "{text}");
    let text = live.ok(&["delete", "-f", &url("more.yaml")]).await;
    assert!(text.ends_with("\"60-more\" deleted\n"), "{text}");
    for (path, want) in [("none", "responded 404"), ("large", "has more than 1048576 bytes")] {
        let (code, _, errors) = live.run(&["apply", "-f", &url(path)]).await;
        assert!(code == 1 && errors.contains(want), "{path}: {errors}");
        assert!(errors.contains(&url(path)) && errors.contains("hint: "), "{errors}");
    }
}

/// The API server is the web server, whose CA this machine does not trust by itself.
#[tokio::test]
async fn the_certificate_of_a_web_server_is_verified() {
    let cluster = Cluster::embedded().await;
    let kubeconfig = std::fs::read_to_string(&cluster.kubeconfig).unwrap();
    let server = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("server: ")).unwrap();
    let authority = cluster.kubeconfig.with_file_name("ca.crt");
    let url = format!("{server}/version");
    let run = |trusted: bool| {
        let command = mco(&["apply", "-f", &url]).env("KUBECONFIG", &cluster.kubeconfig);
        let command = if trusted { command.env("SSL_CERT_FILE", &authority) } else { command };
        String::from_utf8(command.output().unwrap().stderr).unwrap()
    };
    let errors = run(false);
    assert!(errors.contains("TLS handshake") && errors.contains("SSL_CERT_FILE"), "{errors}");
    let errors = run(true);
    assert!(!errors.contains("failed to fetch") && errors.contains(&url), "{errors}");
}

async fn an_edit_is_undone_and_a_deletion_pinned(live: Live) {
    let second = &live.second;
    next_second().await;
    live.folder.write("edited.yaml", config("50-motd", &file("/etc/motd", "bye")).as_bytes());
    live.ok(&["apply", "-f", "edited.yaml"]).await;
    let third = live.render(&["00-base", "50-motd"]).await;
    live.target(&third).await;
    let text = live.ok(&["rollout", "undo", "worker", "--dry-run"]).await;
    let want = format!(
        "pool worker renders to {second} with the former contents of MachineConfig 50-motd\n"
    );
    assert_eq!(text, want);
    let text = live.ok(&["rollout", "undo", "worker", "--yes"]).await;
    assert!(text.ends_with("\"50-motd\" restored\n"), "{text}");
    assert_eq!(live.render(&["00-base", "50-motd"]).await, *second);
    assert_eq!(live.ok(&["cat", "50-motd:/etc/motd"]).await, "hello\n");

    next_second().await;
    live.ok(&["delete", "mc", "50-motd"]).await;
    live.target(&live.first).await;
    let text = live.ok(&["rollout", "undo", "worker", "--to", second, "--yes"]).await;
    assert!(text.starts_with(&format!("pool worker renders to {second} with an additional")));
    assert!(text.ends_with("\"99-zz-pin-worker\" pins the pool\n"), "{text}");
    assert_eq!(live.render(&["00-base", "99-zz-pin-worker"]).await, *second);
    let configs = Api::<MachineConfig>::all(live.cluster.client.clone());
    assert!(configs.get_opt("50-motd").await.unwrap().is_none());
}
