//! Says on the node that somebody logged in over SSH: from then on nobody can be sure what was done to
//! the machine by hand.
//!
//! logind keeps a file for each session; they are looked at when the daemon starts and whenever one
//! comes. Who it was is nobody's business here.

use std::{io, os::fd::AsRawFd as _, time::Duration};

use futures::StreamExt as _;
use inotify::{Inotify, WatchMask};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use mco_api::{NodeName, annotation};
use mco_cluster::{apply, report::chain};
use mco_host::{Root, RootError};
use tokio::time::sleep;
use tracing::{info, warn};

/// Where logind keeps its sessions.
const SESSIONS: &str = "/run/systemd/sessions";

/// What the annotation says.
const ACCESSED: &str = "accessed";

/// How long to wait before asking again what could not be had.
const ASK_AGAIN: Duration = Duration::from_secs(30);

/// Room for a few dozen events at a time.
const BUFFER: usize = 4096;

/// Why logins cannot be seen.
#[derive(Debug, thiserror::Error)]
enum AccessError {
    /// The kernel does not let us watch.
    #[error("cannot watch {SESSIONS}")]
    Watch(#[from] io::Error),
    /// The tree cannot be read.
    #[error(transparent)]
    Root(#[from] RootError),
}

/// Waits for somebody to log in, says so on the node, and ends.
pub(crate) async fn watch(root: Root, node: NodeName, client: Client) {
    loop {
        match login(&root).await {
            Ok(Login::Seen) => break,
            Ok(Login::NoSessions) => {}
            Err(error) => warn!("Cannot tell whether somebody logs in: {}", chain(&error)),
        }
        sleep(ASK_AGAIN).await;
    }
    info!("Detected a login session over SSH; the node is marked as accessed");
    let nodes: Api<Node> = Api::all(client);
    let key = annotation::SSH.name().to_owned();
    let changes = [(key, Some(ACCESSED.to_owned()))].into();
    while let Err(error) = apply::patch_annotations(&nodes, node.as_str(), &changes).await {
        warn!("Cannot say on the node that somebody logged in: {}", chain(&error));
        sleep(ASK_AGAIN).await;
    }
}

/// What came of waiting for a login.
#[derive(Debug, PartialEq, Eq)]
enum Login {
    /// Somebody is there.
    Seen,
    /// Nobody keeps sessions here, or not yet.
    NoSessions,
}

/// Waits until there is a session over SSH.
async fn login(root: &Root) -> Result<Login, AccessError> {
    let Some(folder) = root.directory(SESSIONS)? else { return Ok(Login::NoSessions) };
    let inotify = Inotify::init()?;
    let path = format!("/proc/self/fd/{}", folder.as_raw_fd());
    inotify.watches().add(path, WatchMask::MOVED_TO | WatchMask::CLOSE_WRITE)?;
    let mut events = inotify.into_event_stream(vec![0; BUFFER])?;
    // Looked at after the watch began, so that nobody slips between.
    while !is_accessed(root)? {
        match events.next().await {
            Some(event) => drop(event?),
            None => return Err(io::Error::other("the kernel closed the watch").into()),
        }
    }
    Ok(Login::Seen)
}

fn is_accessed(root: &Root) -> Result<bool, RootError> {
    for name in root.list(SESSIONS)? {
        // A session may end while we look, and pipes that are no files stand there, too.
        let path = format!("{SESSIONS}/{name}");
        let is_file = root.stat(&path)?.is_some_and(|stat| stat.is_file());
        let bytes = if is_file { root.read(&path).ok().flatten() } else { None };
        if bytes.is_some_and(|bytes| is_remote(&String::from_utf8_lossy(&bytes))) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a session is one over SSH.
fn is_remote(session: &str) -> bool {
    let says = |line: &str| session.lines().any(|found| found.trim() == line);
    says("SERVICE=sshd") || says("SERVICE=ssh")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sessions_over_ssh_count() {
        assert!(is_remote("# private\nUID=1000\nSERVICE=sshd\nREMOTE=1\n"));
        assert!(!is_remote("UID=1000\nSERVICE=login\nREMOTE=0\nTTY=tty1\n"));
        assert!(!is_remote("XSERVICE=sshd\n"));
    }

    #[tokio::test]
    async fn a_login_is_seen_when_it_comes_and_when_it_was_there_before() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        assert_eq!(login(&root).await.unwrap(), Login::NoSessions);
        root.create_directory(SESSIONS).unwrap();
        let local = format!("{SESSIONS}/1");
        root.write(&local, b"SERVICE=login\n", 0o644).unwrap();
        let seen = tokio::time::timeout(mco_testkit::PATIENCE, login(&root));
        let comes =
            async { root.write(&format!("{SESSIONS}/2"), b"SERVICE=sshd\n", 0o644).unwrap() };
        let (seen, ()) = tokio::join!(seen, comes);
        assert_eq!(seen.unwrap().unwrap(), Login::Seen);
        assert_eq!(login(&root).await.unwrap(), Login::Seen);
    }
}
