//! One real kube-apiserver for all tests of a program, started by the first test that needs it.

#![expect(clippy::disallowed_methods, reason = "removes old directories of the server")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{OnceLock, mpsc},
    thread,
};

use anyhow::Context as _;

use super::{KubeApiServer, Programs, Settings};
use crate::pki::Authority;

/// Prefix of the directory names. The process id follows.
const PREFIX: &str = "kube-apiserver-";

static SERVER: OnceLock<anyhow::Result<KubeApiServer>> = OnceLock::new();

/// Returns the API server of this program, with its data in a subdirectory of `below`. The server
/// runs as long as the program.
///
/// Directories that earlier programs left there are removed.
pub fn shared(programs: &Programs, below: &Path) -> &'static anyhow::Result<KubeApiServer> {
    SERVER.get_or_init(|| {
        let (programs, below) = (programs.clone(), below.to_owned());
        let (started, server) = mpsc::channel();
        // The server dies with the thread that starts it, so this must not be the thread of a test.
        thread::spawn(move || {
            // The receiver below exists until the server has started.
            drop(started.send(start(&programs, &below)));
            loop {
                thread::park();
            }
        });
        server.recv().context("the thread of the API server ended unexpectedly").flatten()
    })
}

fn start(programs: &Programs, below: &Path) -> anyhow::Result<KubeApiServer> {
    tidy(below);
    let dir = below.join(format!("{PREFIX}{}", std::process::id()));
    let authority = Authority::new("test")?;
    KubeApiServer::start(programs, &authority, &Settings::loopback(&dir))
}

/// Removes the directories of programs that have ended.
fn tidy(below: &Path) {
    let entries = fs::read_dir(below).into_iter().flatten().flatten();
    let is_left_over = |folder: &PathBuf| {
        let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let process = name.strip_prefix(PREFIX);
        process.is_some_and(|process| !Path::new("/proc").join(process).exists())
    };
    for folder in entries.map(|entry| entry.path()).filter(is_left_over) {
        // Another program may remove the directory at the same time.
        drop(fs::remove_dir_all(folder));
    }
}
