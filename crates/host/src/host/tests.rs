//! Files, units and keys on a real tree.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::PathBuf,
};

use mco_ignition::config::Dropin;

use super::*;
use crate::simulated::SimulatedSystem;

struct Machine {
    folder: tempfile::TempDir,
    host: Host<SimulatedSystem>,
}

fn machine() -> Machine {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::open(folder.path()).unwrap();
    SimulatedSystem::write_base_files(&root).unwrap();
    let system = SimulatedSystem::open(&root).unwrap();
    Machine { folder, host: Host { root, system } }
}

impl Machine {
    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path.trim_start_matches('/'))
    }

    fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.at(path)).ok()
    }
}

fn file(path: &str, text: &str) -> File {
    let mut file = File { path: path.to_owned(), ..File::default() };
    file.contents.source = Some(format!("data:,{text}"));
    file
}

fn unit(name: &str, text: &str) -> Unit {
    Unit { name: name.to_owned(), contents: Some(text.to_owned()), ..Unit::default() }
}

// covers: C60, C61, C62, C63
#[test]
fn a_file_is_written_with_mode_and_owner_or_refused_by_name() {
    let mut machine = machine();
    let mut wanted = file("/etc/deep/a", "x");
    wanted.mode = Some(0o640);
    wanted.user.id = Some(4321);
    wanted.group.name = Some("core".to_owned());
    machine.host.write_file(&wanted).unwrap();
    let found = fs::metadata(machine.at("/etc/deep/a")).unwrap();
    assert_eq!(found.permissions().mode() & 0o7777, 0o640);
    if rustix::process::geteuid().is_root() {
        assert_eq!((found.uid(), found.gid()), (4321, 1000));
    }

    wanted.user.id = None;
    wanted.user.name = Some("nobody-here".to_owned());
    assert_eq!(
        machine.host.write_file(&wanted).unwrap_err().to_string(),
        "failed to retrieve file ownership for file \"/etc/deep/a\": failed to retrieve UserID for username: nobody-here"
    );
    let mut odd = file("/etc/b", "x");
    odd.contents.compression = Some("zstd".to_owned());
    assert_eq!(
        machine.host.write_file(&odd).unwrap_err().to_string(),
        "could not decode file \"/etc/b\""
    );
    odd.append.push(config::Resource::default());
    assert_eq!(
        machine.host.write_file(&odd).unwrap_err().to_string(),
        "found an append section when writing files. Append is not supported"
    );
}

// covers: C136
#[test]
fn an_unchanged_file_is_not_written_again() {
    let mut machine = machine();
    machine.host.write_file(&file("/etc/a", "x")).unwrap();
    let inode = |machine: &Machine| fs::metadata(machine.at("/etc/a")).unwrap().ino();
    let first = inode(&machine);
    machine.host.write_file(&file("/etc/a", "x")).unwrap();
    assert_eq!(inode(&machine), first);
    machine.host.write_file(&file("/etc/a", "y")).unwrap();
    assert_ne!(inode(&machine), first);
}

// covers: C64, C65
#[test]
fn shipped_files_are_restored_and_others_removed() {
    let mut machine = machine();
    for path in ["/usr/etc/motd", "/etc/motd"] {
        machine.host.root.write(path, b"welcome", 0o600).unwrap();
    }
    machine.host.root.write("/var/lib/kubelet/config.json", b"{}", 0o600).unwrap();
    for path in ["/etc/motd", "/etc/own", "/var/lib/kubelet/config.json"] {
        machine.host.write_file(&file(path, "ours")).unwrap();
        machine.host.write_file(&file(path, "ours2")).unwrap();
    }
    let copy = "/etc/machine-config-daemon/orig/etc/motd.mcdorig";
    assert_eq!(machine.text(copy).as_deref(), Some("welcome"));
    for path in ["/etc/own", "/var/lib/kubelet/config.json"] {
        let stamp = format!("/etc/machine-config-daemon/noorig{path}.mcdnoorig");
        assert_eq!(machine.text(&stamp).as_deref(), Some(""), "{path}");
    }

    // Twice, as after a crash before the first could be recorded.
    for _ in 0..2 {
        for path in ["/etc/motd", "/etc/own"] {
            machine.host.remove_file(&file(path, "ours2")).unwrap();
        }
        assert_eq!(machine.text("/etc/motd").as_deref(), Some("welcome"));
        assert_eq!(machine.text("/etc/own"), None);
        assert_eq!(machine.text(copy), None);
    }
    let mode = fs::metadata(machine.at("/etc/motd")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600, "with its previous mode");
}

// covers: C69, C70
#[test]
fn units_and_dropins_come_and_go() {
    let mut machine = machine();
    let dropin =
        |text: &str| Dropin { name: "10.conf".to_owned(), contents: Some(text.to_owned()) };
    let path = "/etc/systemd/system/a.service.d/10.conf";
    machine.host.write_dropin("a.service", &dropin("[Service]")).unwrap();
    assert_eq!(machine.text(path).as_deref(), Some("[Service]"));
    machine.host.write_dropin("a.service", &dropin("")).unwrap();
    assert_eq!(machine.text(path), None);
    machine.host.write_dropin("a.service", &dropin("[Service]")).unwrap();
    machine.host.remove_dropin("a.service", &dropin("[Service]")).unwrap();
    assert_eq!(machine.text(path), None);

    let path = machine.at("/etc/systemd/system/a.service");
    machine.host.write_unit(&unit("a.service", "[Unit]")).unwrap();
    machine.host.mask_unit("a.service").unwrap();
    machine.host.mask_unit("a.service").unwrap();
    assert_eq!(fs::read_link(&path).unwrap(), PathBuf::from("/dev/null"));
    machine.host.write_unit(&unit("a.service", "[Unit]")).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "[Unit]");
    machine.host.remove_unit(&unit("a.service", "[Unit]")).unwrap();
    assert!(!path.exists());
    machine.host.mask_unit("a.service").unwrap();
    machine.host.unmask_unit("a.service").unwrap();
    assert!(fs::symlink_metadata(&path).is_err());
    let left = fs::read_dir(path.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["a.service.d"], "no temporary file is left");
}

#[test]
fn a_unit_file_of_others_stays_when_its_drop_in_is_removed() {
    let mut machine = machine();
    let path = machine.at("/etc/systemd/system/theirs.service");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "[Service]").unwrap();
    let only = |contents: Option<&str>| Unit {
        contents: contents.map(str::to_owned),
        ..unit("theirs.service", "")
    };
    for contents in [None, Some("")] {
        machine.host.remove_unit(&only(contents)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "[Service]");
    }
}

#[test]
fn a_missing_unit_is_not_enabled_and_a_system_unit_is() {
    let mut machine = machine();
    machine.host.enable_unit(&unit("gone.service", "")).unwrap();
    machine.host.enable_unit(&unit("kubelet.service", "")).unwrap();
    assert_eq!(machine.host.system.unit_state("kubelet.service").unwrap(), "enabled");
    machine.host.disable_unit("kubelet.service").unwrap();
    assert_eq!(machine.host.system.unit_state("kubelet.service").unwrap(), "disabled");
    assert_eq!(
        machine.host.system.call_log().calls(),
        ["enable kubelet.service", "disable kubelet.service"]
    );
}

// covers: C75
#[test]
fn keys_are_written_to_the_references_path_only() {
    let mut machine = machine();
    let outside = tempfile::tempdir().unwrap();
    symlink(outside.path(), machine.at("/home/core/.ssh")).unwrap();
    assert!(machine.host.write_keys(&["one", "two"]).unwrap());
    assert_eq!(machine.text(KEYS).as_deref(), Some("one\ntwo\n"));
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    for (path, mode) in
        [(KEYS, 0o600), ("/home/core/.ssh", 0o700), ("/home/core/.ssh/authorized_keys.d", 0o700)]
    {
        let found = fs::metadata(machine.at(path)).unwrap();
        assert_eq!(found.permissions().mode() & 0o7777, mode, "{path}");
    }
    assert!(machine.host.write_keys(&[]).unwrap());
    assert_eq!(machine.text(KEYS).as_deref(), Some(""));
    fs::write(machine.at("/etc/passwd"), "root:x:0:0::/:/bin/sh\n").unwrap();
    assert!(!machine.host.write_keys(&["three"]).unwrap());
}

#[test]
fn a_leaked_link_is_removed_unless_the_config_has_its_unit() {
    let mut machine = machine();
    let unit_file = "[Install]\nRequiredBy=network-online.target";
    let unit = unit("node-valid-hostname.service", unit_file);
    machine.host.write_unit(&unit).unwrap();
    machine.host.enable_unit(&unit).unwrap();
    let link = machine.at(LEAKED_LINKS[0]);
    let mut config = mco_core::machine::Machine::blank();
    config.config.systemd.units.push(unit);
    machine.host.remove_leaked_links(&config).unwrap();
    assert!(fs::symlink_metadata(&link).is_ok());
    machine.host.remove_leaked_links(&mco_core::machine::Machine::blank()).unwrap();
    assert!(fs::symlink_metadata(&link).is_err());
}

#[test]
fn a_boot_activates_the_staged_deployment_and_empties_run() {
    let mut machine = machine();
    let before = machine.host.system.facts().unwrap();
    machine.host.root.write("/run/force", b"", 0o644).unwrap();
    machine.host.root.write("/run/a/b", b"", 0o644).unwrap();
    for _ in 0..2 {
        machine.host.system.stage_os("image").unwrap();
        machine.host.system.stage_kernel_arguments(&[], &["a b".to_owned()]).unwrap();
    }
    assert_eq!(machine.host.system.facts().unwrap(), before);
    machine.host.system.reboot("because").unwrap();

    let mut again = SimulatedSystem::open(&machine.host.root).unwrap();
    assert_eq!(again.facts().unwrap(), before, "a new process is no new boot");
    assert!(again.wants_reboot());
    again.boot().unwrap();
    let after = again.facts().unwrap();
    assert_ne!(after.boot_id, before.boot_id);
    assert_eq!(after.booted_image.as_deref(), Some("image"));
    assert_eq!(after.kernel_arguments, ["a", "b"]);
    assert!(!again.wants_reboot());
    assert_eq!(fs::read_dir(machine.at("/run")).unwrap().count(), 0);
}
