//! The tree is written inside its root, whatever links it holds.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
};

use super::*;
use crate::fault::Fault;

struct Tree {
    folder: tempfile::TempDir,
    root: Root,
}

fn tree() -> Tree {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::create(&folder.path().join("root")).unwrap();
    fs::create_dir(folder.path().join("outside")).unwrap();
    Tree { folder, root }
}

impl Tree {
    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join("root").join(path)
    }
}

#[test]
fn a_file_has_the_bytes_and_exactly_the_mode_asked_for() {
    let tree = tree();
    for (path, mode) in [("/etc/a/b", 0o600), ("/etc/a/b", 0o666), ("/usr/x", 0o4755)] {
        tree.root.write(path, path.as_bytes(), mode).unwrap();
        let found = tree.at(path.trim_start_matches('/'));
        assert_eq!(fs::read(&found).unwrap(), path.as_bytes());
        assert_eq!(fs::metadata(&found).unwrap().permissions().mode() & 0o7777, mode);
    }
    let left: Vec<_> = fs::read_dir(tree.at("etc/a")).unwrap().collect();
    assert_eq!(left.len(), 1, "no temporary file stays behind");
}

#[test]
fn links_never_lead_out_of_the_root() {
    let tree = tree();
    let outside = tree.folder.path().join("outside");
    fs::create_dir_all(tree.at("var/home")).unwrap();
    symlink("var/home", tree.at("home")).unwrap();
    symlink("/var", tree.at("absolute")).unwrap();
    symlink(&outside, tree.at("evil")).unwrap();
    symlink("../../../../../../..", tree.at("up")).unwrap();

    tree.root.write("/home/core/a", b"1", 0o644).unwrap();
    assert!(tree.at("var/home/core/a").exists());
    tree.root.write("/absolute/b", b"1", 0o644).unwrap();
    assert!(tree.at("var/b").exists());
    tree.root.write("/up/c", b"1", 0o644).unwrap();
    assert!(tree.at("c").exists());
    assert!(tree.root.write("/evil/d", b"1", 0o644).is_err());
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn a_link_in_place_of_the_file_is_replaced() {
    let tree = tree();
    let outside = tree.folder.path().join("outside/secret");
    fs::write(&outside, "keep").unwrap();
    symlink(&outside, tree.at("file")).unwrap();
    tree.root.write("/file", b"new", 0o644).unwrap();
    assert_eq!(fs::read(&outside).unwrap(), b"keep");
    assert!(!fs::symlink_metadata(tree.at("file")).unwrap().is_symlink());
}

#[test]
fn paths_that_name_no_file_below_the_root_are_refused() {
    let tree = tree();
    for path in ["", "/", ".", "/../a", "/a/../b", "../a", "/a/", "/a\0b"] {
        let error = tree.root.write(path, b"1", 0o644).unwrap_err();
        assert!(matches!(error, RootError::Outside { .. }), "{path:?}: {error}");
    }
}

#[test]
fn a_file_in_place_of_a_directory_is_an_error() {
    let tree = tree();
    tree.root.write("/etc", b"1", 0o644).unwrap();
    let error = tree.root.write("/etc/motd", b"1", 0o644).unwrap_err();
    assert_eq!(error.to_string(), "failed to write /etc/motd");
    assert!(tree.root.create_directory("/etc").is_err());
}

#[test]
fn the_error_names_a_missing_root() {
    let error = Root::open(Path::new("/no/such/root")).unwrap_err();
    assert_eq!(error.to_string(), "failed to open directory /no/such/root");
}

// covers: C04
#[test]
fn no_access_leaves_the_root_through_a_link() {
    let tree = tree();
    let outside = tree.folder.path().join("outside");
    fs::write(outside.join("secret"), "keep").unwrap();
    symlink(&outside, tree.at("evil")).unwrap();
    symlink(outside.join("secret"), tree.at("leak")).unwrap();
    symlink("../../../../../../../../etc/passwd", tree.at("up")).unwrap();
    let root = &tree.root;

    for path in ["/evil/secret", "/leak", "/up"] {
        assert_eq!(root.read(path).unwrap(), None, "{path}");
        assert!(!root.exists(path).unwrap(), "{path}");
    }
    assert_eq!(root.stat("/evil/secret").unwrap(), None);
    assert!(root.stat("/leak").unwrap().unwrap().is_link());
    assert!(root.list("/evil").unwrap().is_empty());
    assert!(root.directory("/evil").unwrap().is_none());
    assert!(!root.remove("/evil/secret").unwrap());
    assert!(!root.set_mode("/evil/secret", 0o777).unwrap());
    assert!(root.set_mode("/leak", 0o777).is_err(), "the link itself is not followed");
    assert!(root.link("/x", "/evil/new").is_err());
    assert!(root.rename("/evil/secret", "/stolen").is_err());
    root.remove_tree("/evil/secret").unwrap();
    assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), "keep");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    for path in ["/../x", "/a/../../x", ""] {
        assert!(root.remove(path).is_err() && root.read(path).is_err(), "{path:?}");
    }
}

#[test]
fn a_removed_tree_is_durable_when_the_call_returns() {
    let mut synced = Vec::new();
    for number in 1.. {
        let tree = tree();
        tree.root.write("/a/b/c", b"1", 0o600).unwrap();
        let faults = Arc::new(Faults::at(number, Fault::Once(Errno::IO)));
        let root = Root::open(&tree.at("")).unwrap().with_faults(Arc::clone(&faults));
        let removed = root.remove_tree("/a/b");
        let Some(failed) = faults.failed() else { break };
        assert!(removed.is_err(), "{failed}");
        synced.extend(failed.strip_prefix("fsync the directory of ").map(str::to_owned));
    }
    assert_eq!(synced, ["b"]);
}

#[test]
fn a_sync_of_names_reaches_the_kernel() {
    // Directories of /proc cannot be synced, so that the call shows.
    let root = Root::open(Path::new("/proc")).unwrap();
    assert!(root.sync_names("/sys").is_err());
    root.sync_names("/no-such-directory").unwrap();
}

#[test]
fn links_copies_and_renames_keep_their_type() {
    let tree = tree();
    let root = &tree.root;
    root.write("/a/file", b"1", 0o600).unwrap();
    root.link("/dev/null", "/a/link").unwrap();
    assert!(root.copy("/a/file", "/b/file").unwrap());
    assert!(root.copy("/a/link", "/b/link").unwrap());
    assert!(!root.copy("/a/none", "/b/none").unwrap());
    assert_eq!(root.stat("/b/file").unwrap().unwrap().mode & 0o7777, 0o600);
    assert_eq!(root.read_link("/b/link").unwrap().as_deref(), Some("/dev/null"));
    assert_eq!(root.destination("/b/link").unwrap().as_deref(), Some("/dev/null"));
    root.link("../a/link", "/b/relative").unwrap();
    assert_eq!(root.destination("/b/relative").unwrap().as_deref(), Some("/dev/null"));
    root.link("loop", "/b/loop").unwrap();
    assert!(root.destination("/b/loop").is_err());
    root.rename("/b/file", "/c/moved").unwrap();
    assert_eq!(root.read("/c/moved").unwrap().as_deref(), Some(b"1".as_slice()));
    assert_eq!(root.list("/b").unwrap(), ["link", "loop", "relative"]);
    assert!(!root.remove_empty_directory("/b").unwrap());
    assert_eq!(root.read("/a").unwrap_err().to_string(), "failed to read /a");
}
