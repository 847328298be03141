//! Links equal those of `systemctl --root`.

use std::{fmt::Write as _, fs, path::Path};

use super::*;

mod generated;

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
    /// Returns every link below the directory of units, as `path>target`.
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
fn a_unit_is_linked_as_its_file_asks() {
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
    assert_eq!(tree.links(), "", "empty directories are removed as well");
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
fn also_enables_others_and_system_units_can_be_enabled() {
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
fn a_masked_or_missing_unit_cannot_be_enabled() {
    let tree = tree(&[("/usr/lib/systemd/system/a.service", "[Install]\nWantedBy=m.target")]);
    tree.root.link("/dev/null", A).unwrap();
    assert_eq!(state(&tree.root, "a.service").unwrap(), "masked");
    assert_eq!(
        enable(&tree.root, "a.service").unwrap_err().to_string(),
        "Failed to enable unit, unit /etc/systemd/system/a.service is masked."
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

#[test]
fn an_invalid_link_is_refused_in_systemctls_words() {
    let cases = [
        ("Alias=not b.socket", "cannot alias a.service as not."),
        ("Alias=x/y.service", "invalid unit reference \"x/y.service\"."),
        ("WantedBy=foo", "\"foo\" is not a valid unit name."),
        ("Alias=taken.service", "file \"/etc/systemd/system/taken.service\" already exists."),
        ("Alias=other.service", "already exists and is a symlink to \"/etc/x.service\"."),
    ];
    for (install, want) in cases {
        let tree = tree(&[
            (A, &format!("[Install]\nWantedBy=m.target\n{install}")),
            ("/etc/systemd/system/taken.service", "[Service]"),
        ]);
        tree.root.link("/etc/x.service", "/etc/systemd/system/other.service").unwrap();
        let error = enable(&tree.root, "a.service").unwrap_err().to_string();
        assert!(error.contains(want), "{install}: {error}");
        assert!(!tree.links().contains("m.target"), "no link is created");
    }
    let tree = tree(&[("/etc/systemd/system/t@.service", "[Install]\nWantedBy=m.target")]);
    assert_eq!(
        enable(&tree.root, "t@.service").unwrap_err().to_string(),
        "Failed to enable t@.service, destination unit m.target is a non-template unit."
    );
    assert_eq!(state(&tree.root, "t@.service").unwrap(), "disabled");
    preset(&tree.root, "t@.service").unwrap();
}

#[test]
fn a_masked_unit_keeps_its_links_and_an_alias_resolves_to_its_unit() {
    let tree = tree(&[
        ("/usr/lib/systemd/system/a.service", "[Install]\nWantedBy=m.target\nAlias=b.service"),
        ("/usr/lib/systemd/system-preset/90.preset", "disable *"),
    ]);
    enable(&tree.root, "a.service").unwrap();
    tree.root.link("/dev/null", A).unwrap();
    disable(&tree.root, "a.service").unwrap();
    preset(&tree.root, "a.service").unwrap();
    assert!(tree.links().contains("m.target.wants/a.service"), "{}", tree.links());
    tree.root.remove(A).unwrap();
    assert_eq!(state(&tree.root, "b.service").unwrap(), "alias");
    preset(&tree.root, "b.service").unwrap();
    assert_eq!(state(&tree.root, "a.service").unwrap(), "enabled", "not by its alias");
    disable(&tree.root, "b.service").unwrap();
    assert_eq!(tree.links(), "");
}

/// Runs `systemctl --root` on a tree; none if the program is not installed.
fn systemctl(folder: &Path, words: &[&str]) -> Option<std::process::Output> {
    let root = format!("--root={}", folder.display());
    std::process::Command::new("systemctl").arg(root).args(words).output().ok()
}

#[test]
fn every_unit_is_linked_as_by_systemctl_itself() {
    let units = [
        ("plain.service", "[Install]\nWantedBy=m.target r.service\nRequiredBy=m.target\n"),
        ("alias.service", "[Install]\nAlias=other.service\nWantedBy=m.target\n"),
        ("also.service", "[Install]\nWantedBy=m.target\nAlso=also.socket none.socket\n"),
        ("also.socket", "[Socket]\nListenStream=1\n[Install]\nWantedBy=sockets.target\n"),
        ("t@.service", "[Install]\nDefaultInstance=d\nWantedBy=m.target\nAlias=u@.service\n"),
        ("n@.service", "[Install]\nWantedBy=t@.service\n"),
        ("invalid@.service", "[Install]\nWantedBy=m.target\n"),
        ("static.service", "[Service]\nExecStart=/bin/true\n"),
        ("self.service", "[Install]\nAlias=self.service m.target.wants/self.service\n"),
        ("spec.service", "[Install]\nWantedBy=%p-x.target %N.target 100%%.target\n"),
    ];
    let names = ["t@x.service", "other.service", "gone.service", "u@d.service"];
    let names = || units.iter().map(|(name, _)| *name).chain(names);
    for verb in ["enable", "disable", "preset"] {
        for name in names() {
            let (ours, theirs) = (furnished(&units), furnished(&units));
            let Some(output) = systemctl(theirs.folder.path(), &[verb, name]) else {
                eprintln!("skipped: there is no systemctl to compare with");
                return;
            };
            let done = match verb {
                "enable" => enable(&ours.root, name),
                "disable" => disable(&ours.root, name),
                _ => preset(&ours.root, name),
            };
            let printed = String::from_utf8_lossy(&output.stderr).into_owned();
            if verb == "enable" {
                assert_eq!(done.is_ok(), output.status.success(), "{verb} {name}: {printed}");
            }
            if done.is_ok() {
                assert_eq!(ours.links(), theirs.links(), "{verb} {name}: {printed}");
            }
            for asked in names() {
                let output = systemctl(theirs.folder.path(), &["is-enabled", asked]).unwrap();
                let printed = String::from_utf8_lossy(&output.stdout).trim().to_owned();
                let printed = if printed.is_empty() { "not-found".to_owned() } else { printed };
                if done.is_ok() {
                    let found = state(&ours.root, asked).unwrap();
                    assert_eq!(found, printed, "{asked} after {verb} {name}");
                }
            }
        }
    }
}

/// Builds a tree with units, some of which are enabled.
fn furnished(units: &[(&str, &str)]) -> Tree {
    let tree = tree(&[("/usr/lib/systemd/system-preset/90.preset", "enable p*\ndisable *\n")]);
    for (name, text) in units {
        tree.root.write(&format!("{ETC}/{name}"), text.as_bytes(), 0o644).unwrap();
    }
    for unit in ["plain.service", "alias.service", "also.service", "t@x.service"] {
        enable(&tree.root, unit).unwrap();
    }
    tree
}
