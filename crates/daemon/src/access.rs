//! Annotates the node when a user logs in over SSH, because the machine may have been changed by
//! hand from then on.
//!
//! logind keeps a file for each session; the daemon reads the files at its start and whenever one
//! is added. The user's name is not reported.

use std::{io, os::fd::AsRawFd as _, time::Duration};

use futures::StreamExt as _;
use inotify::{Inotify, WatchMask};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use mco_api::{NodeName, annotation};
use mco_cluster::{Api, apply, report::chain};
use mco_host::{Root, RootError};
use tokio::time::sleep;
use tracing::{info, warn};

/// Directory of logind's session files.
const SESSIONS: &str = "/run/systemd/sessions";

/// Value of the annotation.
const ACCESSED: &str = "accessed";

/// Pause before a failed read or patch is retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// Holds a few dozen inotify events.
const BUFFER: usize = 4096;

/// A failure to watch logins.
#[derive(Debug, thiserror::Error)]
enum AccessError {
    /// The inotify watch failed.
    #[error("failed to watch {SESSIONS}")]
    Watch(#[from] io::Error),
    /// A session file cannot be read.
    #[error(transparent)]
    Root(#[from] RootError),
}

/// Waits for a login over SSH, annotates the node, and returns.
pub(crate) async fn watch(root: Root, node: NodeName, client: Client) {
    loop {
        match login(&root).await {
            Ok(Login::Seen) => break,
            Ok(Login::NoSessions) => {}
            Err(error) => warn!(error = chain(&error), "Failed to watch SSH logins"),
        }
        sleep(RETRY_INTERVAL).await;
    }
    info!(%node, "Detected an SSH login; marking the node as accessed");
    let nodes: Api<Node> = Api::all(client);
    let key = annotation::SSH.name().to_owned();
    let changes = [(key, Some(ACCESSED.to_owned()))].into();
    while let Err(error) = apply::patch_annotations(&nodes, node.as_str(), &changes).await {
        warn!(%node, error = chain(&error), "Failed to annotate the node as accessed");
        sleep(RETRY_INTERVAL).await;
    }
}

/// The result of waiting for a login.
#[derive(Debug, PartialEq, Eq)]
enum Login {
    /// A session over SSH exists.
    Seen,
    /// The directory of sessions does not exist (yet).
    NoSessions,
}

/// Waits until a session over SSH exists.
async fn login(root: &Root) -> Result<Login, AccessError> {
    let Some(folder) = root.directory(SESSIONS)? else { return Ok(Login::NoSessions) };
    let inotify = Inotify::init()?;
    let path = format!("/proc/self/fd/{}", folder.as_raw_fd());
    inotify.watches().add(path, WatchMask::MOVED_TO | WatchMask::CLOSE_WRITE)?;
    let mut events = inotify.into_event_stream(vec![0; BUFFER])?;
    // Checked after the watch began, so that no session is missed in between.
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
        // A session may end meanwhile, and the directory also has pipes.
        let path = format!("{SESSIONS}/{name}");
        let is_file = root.stat(&path)?.is_some_and(|stat| stat.is_file());
        let bytes = if is_file { root.read(&path).ok().flatten() } else { None };
        if bytes.is_some_and(|bytes| is_remote(&String::from_utf8_lossy(&bytes))) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns true if a session file describes a login over SSH.
fn is_remote(session: &str) -> bool {
    let has_line = |line: &str| session.lines().any(|found| found.trim() == line);
    has_line("SERVICE=sshd") || has_line("SERVICE=ssh")
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
    async fn a_login_is_detected_when_it_comes_and_when_it_was_there_before() {
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
