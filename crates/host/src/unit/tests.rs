//! Links come out as `systemctl --root` makes them.

use std::{fmt::Write as _, fs, path::Path};

use super::*;

struct Tree {
    folder: tempfile::TempDir,
    root: Root,
}

fn tree(files: &[(&str, &str)]) -> Tree {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::open(folder.path()).unwrap();
    for (path, text) in files {
        root.write(path, text.as_bytes(), 0o644).unwrap();
    }
    Tree { folder, root }
}

impl Tree {
    /// Every link below the folder of units, as `path>target`.
    fn links(&self) -> String {
        let mut found = Vec::new();
        collect(&self.folder.path().join("etc/systemd/system"), "", &mut found);
        found.sort();
        found.join(" ")
    }
}

fn collect(folder: &Path, prefix: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.push(format!("{name}/"));
            collect(&entry.path(), &format!("{name}/"), found);
        } else if kind.is_symlink() {
            let mut text = name;
            write!(text, ">{}", fs::read_link(entry.path()).unwrap().display()).unwrap();
            found.push(text);
        }
    }
}

const A: &str = "/etc/systemd/system/a.service";

// covers: C68
#[test]
fn a_unit_is_linked_from_where_it_asks_to_be() {
    let tree = tree(&[(
        A,
        "[Unit]\nWantedBy=no\n[Install]\nWantedBy=multi-user.target \\\n  x.target\nRequiredBy=r.service\nAlias=z.service\n# WantedBy=n\n",
    )]);
    assert_eq!(state(&tree.root, "a.service").unwrap(), "disabled");
    enable(&tree.root, "a.service").unwrap();
    enable(&tree.root, "a.service").unwrap();
    assert_eq!(
        tree.links(),
        "multi-user.target.wants/ multi-user.target.wants/a.service>/etc/systemd/system/a.service \
         r.service.requires/ r.service.requires/a.service>/etc/systemd/system/a.service \
         x.target.wants/ x.target.wants/a.service>/etc/systemd/system/a.service \
         z.service>/etc/systemd/system/a.service"
    );
    assert_eq!(state(&tree.root, "a.service").unwrap(), "enabled");
    disable(&tree.root, "a.service").unwrap();
    assert_eq!(tree.links(), "", "empty folders go as well");
}

// covers: C72
#[test]
fn a_changed_wanted_by_leaves_no_stale_link() {
    let tree = tree(&[(A, "[Install]\nWantedBy=old.target")]);
    enable(&tree.root, "a.service").unwrap();
    tree.root.write(A, b"[Install]\nWantedBy=new.target", 0o644).unwrap();
    enable(&tree.root, "a.service").unwrap();
    assert_eq!(
        tree.links(),
        "new.target.wants/ new.target.wants/a.service>/etc/systemd/system/a.service"
    );
}

// covers: C71
#[test]
fn also_takes_others_along_and_the_systems_own_units_can_be_enabled() {
    let tree = tree(&[
        (
            "/usr/lib/systemd/system/a.service",
            "[Install]\nWantedBy=m.target\nAlso=a.socket gone.socket",
        ),
        ("/usr/lib/systemd/system/a.socket", "[Install]\nWantedBy=sockets.target\nAlso=a.service"),
    ]);
    enable(&tree.root, "a.service").unwrap();
    assert_eq!(
        tree.links(),
        "m.target.wants/ m.target.wants/a.service>/usr/lib/systemd/system/a.service \
         sockets.target.wants/ sockets.target.wants/a.socket>/usr/lib/systemd/system/a.socket"
    );
    disable(&tree.root, "a.service").unwrap();
    assert_eq!(tree.links(), "");
}

#[test]
fn an_instance_is_linked_to_its_template() {
    let tree = tree(&[(
        "/etc/systemd/system/t@.service",
        "[Install]\nWantedBy=m-%i.target\nDefaultInstance=d",
    )]);
    enable(&tree.root, "t@x.service").unwrap();
    enable(&tree.root, "t@.service").unwrap();
    assert_eq!(
        tree.links(),
        "m-d.target.wants/ m-d.target.wants/t@d.service>/etc/systemd/system/t@.service \
         m-x.target.wants/ m-x.target.wants/t@x.service>/etc/systemd/system/t@.service"
    );
    disable(&tree.root, "t@x.service").unwrap();
    assert!(tree.links().starts_with("m-d"), "{}", tree.links());
}

#[test]
fn what_is_masked_or_missing_cannot_be_enabled() {
    let tree = tree(&[("/usr/lib/systemd/system/a.service", "[Install]\nWantedBy=m.target")]);
    tree.root.link("/dev/null", A).unwrap();
    assert_eq!(state(&tree.root, "a.service").unwrap(), "masked");
    assert_eq!(
        enable(&tree.root, "a.service").unwrap_err().to_string(),
        "Failed to enable unit: Unit file /etc/systemd/system/a.service is masked."
    );
    disable(&tree.root, "a.service").unwrap();
    assert_eq!(state(&tree.root, "a.service").unwrap(), "masked", "disabling does not unmask");
    assert_eq!(
        enable(&tree.root, "b.service").unwrap_err().to_string(),
        "Failed to enable unit, unit b.service does not exist."
    );
    assert_eq!(state(&tree.root, "b.service").unwrap(), "not-found");
}

#[test]
fn presets_decide_by_the_first_match_and_enable_by_default() {
    let tree = tree(&[
        ("/usr/lib/systemd/system/a.service", "[Install]\nWantedBy=m.target"),
        ("/usr/lib/systemd/system-preset/90-default.preset", "enable a*\ndisable *\n"),
        ("/usr/lib/systemd/system-preset/50-x.preset", "# enable b.service\nenable b?.service\n"),
    ]);
    preset(&tree.root, "a.service").unwrap();
    assert_eq!(state(&tree.root, "a.service").unwrap(), "enabled");
    tree.root.write("/etc/systemd/system-preset/10.preset", b"disable a.service", 0o644).unwrap();
    preset(&tree.root, "a.service").unwrap();
    assert_eq!(state(&tree.root, "a.service").unwrap(), "disabled");
    assert!(preset(&tree.root, "none.service").is_err());
    assert!(preset::enables(&tree.root, "bb.service").unwrap());
    assert!(!preset::enables(&tree.root, "b.service").unwrap());
}
