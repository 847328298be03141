//! `mco apiserver-watcher` follows the health of an API server on this machine.

use std::{
    net::{Ipv4Addr, TcpListener},
    path::Path,
};

use mco_testkit::{
    PATIENCE,
    api::{Process, command, wait},
};
use rustix::process::Signal;

use crate::{Folder, mco};

/// Returns the names of the files that tell the state, if they are empty.
#[expect(clippy::disallowed_methods, reason = "the test reads the output files")]
fn files(root: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(root.join("run/cloud-routes")) else { return Vec::new() };
    let entries = entries.map(Result::unwrap).filter(|it| it.metadata().unwrap().len() == 0);
    let names = entries.map(|entry| entry.file_name().into_string().unwrap());
    names.filter(|name| !name.starts_with('.')).collect()
}

fn wait_for_file(watcher: &Process, root: &Path, expected: &str) {
    let waited =
        wait(&format!("only {expected}"), PATIENCE, || (files(root) == [expected]).then_some(()));
    waited.map_err(|error| format!("{error}: {:?} {}", files(root), watcher.log())).unwrap();
}

// covers: O52
#[test]
fn the_files_follow_the_health_of_the_api_server() {
    let folder = Folder::new(&[("root/run/cloud-routes/127.0.0.1.up", b"")]);
    let root = folder.path("root");
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let url = format!("https://{free}/readyz");
    let mut watch = command(env!("CARGO_BIN_EXE_mco"));
    watch.args(["apiserver-watcher", "run", "--health-check-url", &url, "--interval", "50ms"]);
    watch.arg("--root-mount").arg(&root);
    let mut watcher = Process::start("watcher", &mut watch, &folder.path("watcher.log")).unwrap();
    wait_for_file(&watcher, &root, "127.0.0.1.down");
    let failures = watcher.log().matches("is not healthy").count();
    assert!(failures >= 8, "{failures} failures: {}", watcher.log());

    let mut serve = command(env!("CARGO_BIN_EXE_mco"));
    serve.args(["apiserver", "--listen", &free.to_string(), "--dir"]).arg(folder.path("state"));
    let mut server = Process::start("server", &mut serve, &folder.path("server.log")).unwrap();
    wait_for_file(&watcher, &root, "127.0.0.1.up");

    server.signal(Signal::KILL).unwrap();
    server.wait(PATIENCE).unwrap();
    wait_for_file(&watcher, &root, "127.0.0.1.down");

    let mut server = Process::start("server", &mut serve, &folder.path("again.log")).unwrap();
    wait_for_file(&watcher, &root, "127.0.0.1.up");
    watcher.signal(Signal::TERM).unwrap();
    let ended = watcher.wait(PATIENCE).unwrap();
    assert!(ended.success(), "{}", watcher.log());
    assert_eq!(files(&root), ["127.0.0.1.down"], "no probe notices a crash from now on");
    server.signal(Signal::TERM).unwrap();
    server.wait(PATIENCE).unwrap();
}

#[test]
fn a_url_that_is_none_is_an_error() {
    for url in ["http://api.test:6443/readyz", "api.test"] {
        let run = mco(&["apiserver-watcher", "run", "--health-check-url", url]).output().unwrap();
        let text = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(1), "{text}");
        assert!(text.contains("is no URL of an API server"), "{text}");
    }
}
