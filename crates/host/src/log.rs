//! Writes changes of a machine to the machine's own journal.
//!
//! For the administrator of a machine whose cluster's logs are out of reach: `journalctl -t
//! machine-config-daemon-host`.

use std::{
    os::{fd::AsRawFd as _, unix::net::UnixDatagram},
    path::Path,
};

use crate::root::Root;

/// Compat: the identifier that the reference's host side has in the journal.
const IDENTIFIER: &str = "machine-config-daemon-host";
const FOLDER: &str = "/run/systemd/journal";
const SOCKET: &str = "/run/systemd/journal/socket";

/// The priority of a line, as in syslog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// A failure.
    Error = 3,
    /// An expected event.
    Info = 6,
}

/// Writes a line to the journal of the machine below `root`, if it runs one.
///
/// A failure is ignored: the same line is in the daemon's own log.
pub fn write(root: &Root, priority: Priority, text: &str) {
    let Ok(Some(folder)) = root.directory(FOLDER) else { return };
    let is_socket = root.stat(SOCKET).ok().flatten().is_some_and(|found| found.is_socket());
    if !is_socket {
        return;
    }
    let path = format!("/proc/self/fd/{}/socket", folder.as_raw_fd());
    let entry = entry(priority, text);
    // Non-blocking: lines that the journal has no room for are dropped.
    let send = |socket: UnixDatagram| {
        socket.set_nonblocking(true)?;
        socket.send_to(&entry, Path::new(&path))
    };
    let _ = UnixDatagram::unbound().and_then(send);
}

/// Encodes an entry in the journal's native protocol. A multi-line text is preceded by its length.
fn entry(priority: Priority, text: &str) -> Vec<u8> {
    let mut entry =
        format!("SYSLOG_IDENTIFIER={IDENTIFIER}\nPRIORITY={}\n", priority as u8).into_bytes();
    if text.contains('\n') {
        entry.extend(b"MESSAGE\n");
        entry.extend((text.len() as u64).to_le_bytes());
    } else {
        entry.extend(b"MESSAGE=");
    }
    entry.extend(text.as_bytes());
    entry.push(b'\n');
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_written_to_the_journal_of_that_machine() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        write(&root, Priority::Info, "there is no journal");
        root.create_directory(FOLDER).unwrap();
        let journal = UnixDatagram::bind(folder.path().join("run/systemd/journal/socket")).unwrap();
        write(&root, Priority::Info, "Writing file \"/etc/a\"");
        write(&root, Priority::Error, "two\nlines");
        let mut buffer = [0; 256];
        let length = journal.recv(&mut buffer).unwrap();
        assert_eq!(
            String::from_utf8_lossy(&buffer[..length]),
            "SYSLOG_IDENTIFIER=machine-config-daemon-host\nPRIORITY=6\nMESSAGE=Writing file \"/etc/a\"\n"
        );
        let length = journal.recv(&mut buffer).unwrap();
        assert!(buffer[..length].ends_with(b"MESSAGE\n\x09\0\0\0\0\0\0\0two\nlines\n"));
    }
}
