//! A restored snapshot equals the tree before, whatever happened in between.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::Path,
};

use super::*;

/// Returns everything below a directory: name, mode, owner, contents.
fn tree(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut pending = vec![folder.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let stat = fs::symlink_metadata(&path).unwrap();
            let what = if stat.is_symlink() {
                format!("-> {}", fs::read_link(&path).unwrap().display())
            } else if stat.is_dir() {
                pending.push(path.clone());
                String::new()
            } else {
                fs::read_to_string(&path).unwrap()
            };
            let name = path.strip_prefix(folder).unwrap().display().to_string();
            found.insert(name, format!("{:o} {}:{} {what}", stat.mode(), stat.uid(), stat.gid()));
        }
    }
    found
}

fn wanted(paths: &[&str], trees: &[&str], units: &[&str]) -> SnapshotPaths {
    let set = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
    SnapshotPaths { paths: set(paths), trees: set(trees), units: set(units) }
}

// covers: C91
#[test]
fn files_links_directories_and_enablement_come_back_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &str| folder.path().join(path);
    let root = Root::open(folder.path()).unwrap();
    root.write("/etc/a", b"old", 0o640).unwrap();
    root.write("/etc/twice", b"old", 0o600).unwrap();
    root.write("/home/core/.ssh/known_hosts", b"h", 0o600).unwrap();
    root.write("/etc/systemd/system/u.service", b"[Install]\nWantedBy=a.target", 0o644).unwrap();
    symlink("a", at("etc/link")).unwrap();
    unit::enable(&root, "u.service").unwrap();
    let before = tree(folder.path());

    let list = wanted(
        &[
            "/etc/a",
            "/etc/twice",
            "/etc/link",
            "/etc/new/deep/file",
            "/etc/systemd/system/u.service",
        ],
        &["/home/core/.ssh"],
        &["u.service"],
    );
    let (taken, pack) = Snapshot::take(&root, &list).unwrap();
    let same = taken.contents.len();
    assert_eq!(same, 3, "equal contents are kept once");

    root.write("/etc/a", b"new", 0o644).unwrap();
    root.remove("/etc/twice").unwrap();
    root.write("/etc/link", b"a file", 0o644).unwrap();
    root.write("/etc/new/deep/file", b"new", 0o644).unwrap();
    root.remove_tree("/home/core/.ssh").unwrap();
    root.link("/elsewhere", "/home/core/.ssh").unwrap();
    root.write("/etc/systemd/system/u.service", b"[Install]\nWantedBy=b.target", 0o644).unwrap();
    unit::enable(&root, "u.service").unwrap();
    fs::write(at("etc/.a.mco-new"), "half").unwrap();
    assert_ne!(tree(folder.path()), before);

    taken.restore(&root, &pack).unwrap();
    assert_eq!(tree(folder.path()), before);
    let inode = fs::metadata(at("etc/a")).unwrap().ino();
    taken.restore(&root, &pack).unwrap();
    assert_eq!(fs::metadata(at("etc/a")).unwrap().ino(), inode, "unchanged files are kept");
}

#[test]
fn foreign_files_in_a_new_directory_stay() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::open(folder.path()).unwrap();
    let (taken, pack) = Snapshot::take(&root, &wanted(&["/etc/new/file"], &[], &[])).unwrap();
    root.write("/etc/new/file", b"ours", 0o644).unwrap();
    root.write("/etc/new/other", b"theirs", 0o644).unwrap();
    taken.restore(&root, &pack).unwrap();
    assert_eq!(root.read("/etc/new/file").unwrap(), None);
    assert!(root.read("/etc/new/other").unwrap().is_some());
}

#[test]
fn a_corrupt_pack_is_reported_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::open(folder.path()).unwrap();
    root.write("/etc/a", b"old", 0o644).unwrap();
    let (taken, mut pack) = Snapshot::take(&root, &wanted(&["/etc/a"], &[], &[])).unwrap();
    root.write("/etc/a", b"new", 0o644).unwrap();
    pack.truncate(5);
    let error = taken.restore(&root, &pack).unwrap_err();
    assert_eq!(error.to_string(), "backup of /etc/a is corrupt");
    assert_eq!(root.read("/etc/a").unwrap().as_deref(), Some(&b"new"[..]));
}

#[test]
fn a_label_survives_replacement_if_the_disk_has_labels() {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::open(folder.path()).unwrap();
    root.write("/a", b"old", 0o644).unwrap();
    let file = fs::File::open(folder.path().join("a")).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::fsetxattr(&file, "user.label", b"x", flags).is_err() {
        eprintln!("skipped: this disk keeps no extended attributes");
        return;
    }
    root.write("/a", b"new", 0o644).unwrap();
    let label = Attribute { name: "user.label".to_owned(), value: b"x".to_vec() };
    assert_eq!(root.attributes("/a").unwrap(), std::slice::from_ref(&label));
    let (taken, pack) = Snapshot::take(&root, &wanted(&["/a"], &[], &[])).unwrap();
    root.remove("/a").unwrap();
    taken.restore(&root, &pack).unwrap();
    assert_eq!(root.attributes("/a").unwrap(), [label]);
    assert_eq!(fs::metadata(folder.path().join("a")).unwrap().permissions().mode() & 0o777, 0o644);
}

/// An access control list that lets the user 1000 read, in the kernel's format.
fn access_list() -> Vec<u8> {
    let nobody = u32::MAX;
    let entries = [
        (1_u16, 6_u16, nobody),
        (2, 4, 1000),
        (4, 4, nobody),
        (0x10, 4, nobody),
        (0x20, 4, nobody),
    ];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        bytes.extend([&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat());
    }
    bytes
}

// covers: C91
#[test]
fn access_control_lists_and_capabilities_come_back() {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let root = Root::open(folder.path()).unwrap();
    root.write("/d/plain", b"old", 0o644).unwrap();
    root.write("/d/ping", b"old", 0o755).unwrap();
    // The list of the directory is for new entries: a restored file must not have it.
    let rights = [
        ("d", "system.posix_acl_default", access_list()),
        ("d", "system.posix_acl_access", access_list()),
        ("d/ping", "system.posix_acl_access", access_list()),
        ("d/ping", "security.capability", [&[1, 0, 0, 2][..], &[0, 32], &[0; 14]].concat()),
    ];
    for (path, name, value) in rights {
        let file = fs::File::open(folder.path().join(path)).unwrap();
        if let Err(error) =
            rustix::fs::fsetxattr(&file, name, &value, rustix::fs::XattrFlags::empty())
        {
            eprintln!("skipped: {name} cannot be set: {error}");
            return;
        }
    }
    let of = |path: &str| (root.stat(path).unwrap(), root.attributes(path).unwrap());
    let all = || ["/d", "/d/plain", "/d/ping"].map(of);
    let before = all();
    assert_eq!(before.each_ref().map(|(_, found)| found.len()), [2, 0, 2]);
    let (taken, pack) =
        Snapshot::take(&root, &wanted(&["/d/plain", "/d/ping"], &["/d"], &[])).unwrap();
    root.write("/d/ping", b"new", 0o755).unwrap();
    let rights = root.attributes("/d/ping").unwrap();
    assert!(!rights.iter().any(|it| it.name == "security.capability"), "{rights:?}");
    root.remove_tree("/d").unwrap();
    taken.restore(&root, &pack).unwrap();
    assert_eq!(all(), before);
}
