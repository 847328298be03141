//! Deployments that come and go, on a model of a machine that is as strict as rpm-ostree, ostree
//! and bootc: a second rollback goes forward again, a cleanup removes whatever is pending, a package
//! cannot be requested twice, and nothing is pulled without a network.

use std::sync::{Mutex, MutexGuard};

use serde_json::{Value, json};

use super::*;

#[derive(Clone, Debug, Default, PartialEq)]
struct Deployment {
    checksum: String,
    serial: u32,
    image: String,
    arguments: Vec<String>,
    packages: Vec<String>,
    removals: Vec<String>,
    staged: bool,
}

impl Deployment {
    fn id(&self) -> String {
        format!("os-{}.{}", self.checksum, self.serial)
    }
}

#[derive(Debug)]
struct State {
    /// The first one is booted next.
    list: Vec<Deployment>,
    booted: String,
    has_network: bool,
    calls: Vec<String>,
    /// The call with this number kills the daemon after it is done.
    killed_at: Option<usize>,
}

/// A machine that rpm-ostree or bootc drives.
struct Model(Mutex<State>);

impl Model {
    fn new() -> Self {
        let first = Deployment {
            checksum: "c1".to_owned(),
            image: "registry.example/os:1".to_owned(),
            arguments: list(&["root=/dev/x"]),
            ..Deployment::default()
        };
        let booted = first.id();
        let state = State {
            list: vec![first],
            booted,
            has_network: true,
            calls: Vec::new(),
            killed_at: None,
        };
        Self(Mutex::new(state))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Boots the first deployment and drops all but it and the one booted before.
    fn reboot(&self) {
        let mut state = self.state();
        let old = state.booted.clone();
        state.list[0].staged = false;
        state.booted = state.list[0].id();
        let new = state.booted.clone();
        state.list.retain(|it| it.id() == new || it.id() == old);
    }

    fn ids(&self) -> Vec<String> {
        self.state().list.iter().map(Deployment::id).collect()
    }

    fn next(&self) -> Deployment {
        self.state().list[0].clone()
    }

    /// Returns the commands that change something.
    fn changes(&self) -> Vec<String> {
        let is_change = |call: &&String| {
            !call.contains("status") && !call.ends_with("kargs") && !call.ends_with("--version")
        };
        self.state().calls.iter().filter(is_change).cloned().collect()
    }
}

impl State {
    fn booted_index(&self) -> usize {
        self.list.iter().position(|it| it.id() == self.booted).unwrap()
    }

    /// Stages a change of the deployment that is booted next.
    fn stage(&mut self, change: impl FnOnce(&mut Deployment)) {
        let base = if self.list[0].staged {
            self.list.remove(0)
        } else {
            self.list[self.booted_index()].clone()
        };
        let mut new = Deployment { staged: true, ..base };
        change(&mut new);
        let taken = self.list.iter().filter(|it| it.checksum == new.checksum).map(|it| it.serial);
        new.serial = taken.max().map_or(0, |serial| serial + 1);
        self.list.insert(0, new);
    }

    fn rpm_ostree(&mut self, words: &[&str]) -> Result<String, String> {
        match words {
            ["--version"] => return Ok("rpm-ostree:\n Features:\n  - container\n".to_owned()),
            ["status", "--json"] => return Ok(self.rpm_ostree_status().to_string()),
            ["kargs"] => return Ok(self.list[0].arguments.join(" ")),
            ["kargs", changes @ ..] => self.stage(|it| {
                for change in changes {
                    match change.split_once('=') {
                        Some(("--append", word)) => it.arguments.push(word.to_owned()),
                        Some((_, word)) => it.arguments.retain(|have| have != word),
                        None => panic!("{change}"),
                    }
                }
            }),
            ["cleanup", "-p"] => {
                let booted = self.booted_index();
                self.list.drain(..booted);
            }
            ["rollback"] => {
                let booted = self.booted_index();
                let other = if booted == 0 { 1 } else { booted };
                if other >= self.list.len() {
                    return Err("error: No rollback deployment found".to_owned());
                }
                let it = self.list.remove(other);
                self.list.insert(0, it);
            }
            ["rebase", "--experimental", image] => self.rebase(image)?,
            ["override", "reset", rest @ ..] => self.reset(rest)?,
            ["override", "remove", rest @ ..] | ["update", rest @ ..] => self.install(rest)?,
            other => panic!("{other:?}"),
        }
        Ok(String::new())
    }

    fn rebase(&mut self, image: &str) -> Result<(), String> {
        if !self.has_network {
            return Err("error: no route to registry".to_owned());
        }
        let base = &self.list[0];
        if base.packages.iter().any(|it| it.starts_with("kernel-rt")) {
            return Err("error: Could not depsolve transaction".to_owned());
        }
        let image = image.rsplit("registry:").next().unwrap_or(image).to_owned();
        self.stage(|it| {
            it.checksum = format!("c-{image}");
            it.image = image;
        });
        Ok(())
    }

    fn reset(&mut self, words: &[&str]) -> Result<(), String> {
        let base = if self.list[0].staged {
            self.list[0].clone()
        } else {
            self.list[self.booted_index()].clone()
        };
        let (mut removals, mut packages) = (base.removals, base.packages);
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let (list, name) = match *word {
                "--uninstall" => (&mut packages, *words.next().unwrap()),
                name => (&mut removals, name),
            };
            let at = list.iter().position(|have| have == name);
            list.remove(at.ok_or(format!("error: No overrides present for '{name}'"))?);
        }
        self.stage(|it| (it.removals, it.packages) = (removals, packages));
        Ok(())
    }

    fn install(&mut self, words: &[&str]) -> Result<(), String> {
        let base = if self.list[0].staged {
            self.list[0].clone()
        } else {
            self.list[self.booted_index()].clone()
        };
        let (mut removals, mut packages) = (base.removals, base.packages);
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--install" => {
                    let name = (*words.next().unwrap()).to_owned();
                    if packages.contains(&name) {
                        return Err(format!(
                            "error: Package/capability '{name}' is already requested"
                        ));
                    }
                    packages.push(name);
                }
                "--uninstall" => {
                    let name = *words.next().unwrap();
                    let at = packages.iter().position(|have| have == name);
                    let missing =
                        || format!("error: Package/capability '{name}' is not currently requested");
                    packages.remove(at.ok_or_else(missing)?);
                }
                name if removals.iter().any(|have| have == name) => {
                    return Err(format!("error: Override already exists for package '{name}'"));
                }
                name => removals.push(name.to_owned()),
            }
        }
        self.stage(|it| (it.removals, it.packages) = (removals, packages));
        Ok(())
    }

    fn rpm_ostree_status(&self) -> Value {
        let deployment = |it: &Deployment| {
            // As rpm-ostree prints them: name with version, name, epoch, version and so on.
            let with_versions =
                |name: &String| json!([format!("{name}-5-1.x86_64"), name, 0, "5", "1", "x86_64"]);
            let removals: Vec<Value> = it.removals.iter().map(with_versions).collect();
            json!({
                "id": it.id(), "checksum": it.checksum, "serial": it.serial,
                "booted": it.id() == self.booted, "staged": it.staged,
                "container-image-reference": format!("ostree-unverified-registry:{}", it.image),
                "requested-packages": it.packages, "packages": it.packages,
                "requested-base-removals": it.removals, "base-removals": removals,
            })
        };
        json!({"deployments": self.list.iter().map(deployment).collect::<Vec<_>>()})
    }

    fn bootc(&mut self, words: &[&str]) -> Result<String, String> {
        match words {
            ["status", "--json"] => {
                let booted = self.booted_index();
                let entry = |it: &Deployment| {
                    json!({
                        "image": {"image": {"image": it.image, "transport": "registry"}},
                        "ostree": {"checksum": it.checksum, "deploySerial": it.serial},
                    })
                };
                let staged = self.list.iter().find(|it| it.staged).map(entry);
                let mut others = self.list.iter().filter(|it| !it.staged && it.id() != self.booted);
                let queued = !self.list[0].staged && booted != 0;
                return Ok(json!({"apiVersion": "org.containers.bootc/v1", "status": {
                    "staged": staged, "booted": entry(&self.list[booted]),
                    "rollback": others.next().map(entry), "rollbackQueued": queued,
                }})
                .to_string());
            }
            ["switch", image] => self.rebase(image)?,
            // Staged deployments are dropped, and a queued rollback is taken back.
            ["rollback"] => {
                self.list.retain(|it| !it.staged);
                if self.list.len() < 2 {
                    return Err("error: No rollback available".to_owned());
                }
                self.list.swap(0, 1);
            }
            other => panic!("{other:?}"),
        }
        Ok(String::new())
    }
}

impl CommandRunner for Model {
    fn run(&self, command: &[&str]) -> Result<String, SystemError> {
        let mut state = self.state();
        let name = command[0].rsplit('/').next().unwrap();
        let call = [&[name], &command[1..]].concat().join(" ");
        state.calls.push(call.clone());
        let done = match name {
            "rpm-ostree" => state.rpm_ostree(&command[1..]),
            "bootc" => state.bootc(&command[1..]),
            "ostree" => {
                assert_eq!(command[1..], ["admin", "undeploy", "0"]);
                assert!(state.list[0].staged, "only what is staged is dropped");
                state.list.remove(0);
                Ok(String::new())
            }
            // No secure boot, no podman.
            _ => Err("not found".to_owned()),
        };
        let killed = state.killed_at == Some(state.calls.len());
        let fault = if killed { Err("killed".to_owned()) } else { done };
        fault.map_err(|fault| SystemError::Command { command: call, fault })
    }

    fn pause(&self, _: Duration) {}
}

fn root() -> (tempfile::TempDir, Root) {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::open(folder.path()).unwrap();
    (folder, root)
}

/// Stages a change, boots it, and returns the id of the deployment before.
fn update(os: Backend, machine: &Model) -> String {
    let before = os.staged(machine).unwrap().unwrap();
    match os {
        Backend::RpmOstree => {
            os.stage_kernel_arguments(machine, &[], &list(&["nosmt"])).unwrap();
        }
        Backend::Bootc | Backend::None => {
            let (_folder, root) = root();
            os.stage_os(&root, machine, "registry.example/os:2").unwrap();
        }
    }
    machine.reboot();
    assert_ne!(os.staged(machine).unwrap().unwrap(), before, "another deployment is booted");
    before
}

// covers: C91
#[test]
fn going_back_needs_no_network_and_can_be_interrupted_anywhere() {
    for os in [Backend::RpmOstree, Backend::Bootc] {
        // Without an interruption first, then with one after each of the calls.
        for killed_at in 0..8 {
            let machine = Model::new();
            let good = machine.next();
            let before = update(os, &machine);
            machine.state().has_network = false;
            machine.state().calls.clear();
            machine.state().killed_at = Some(killed_at);
            let first = os.restage(&machine, &before);
            machine.state().killed_at = None;
            for _ in 0..2 {
                let again = os.restage(&machine, &before).unwrap();
                assert_eq!(again, Restored::NeedsReboot, "{os:?} {killed_at} {first:?}");
                assert_eq!(machine.next(), good, "{os:?} {killed_at}");
            }
            machine.reboot();
            assert_eq!(os.restage(&machine, &before).unwrap(), Restored::Done);
            assert_eq!(machine.next(), good);
        }
    }
}

// covers: C91
#[test]
fn a_change_that_is_not_booted_yet_is_dropped() {
    for os in [Backend::RpmOstree, Backend::Bootc] {
        let machine = Model::new();
        let before = os.staged(&machine).unwrap().unwrap();
        let (_folder, root) = root();
        assert!(!os.has_staged(&machine).unwrap(), "{os:?}");
        os.stage_os(&root, &machine, "registry.example/os:2").unwrap();
        assert!(os.has_staged(&machine).unwrap(), "{os:?}");
        machine.state().has_network = false;
        for _ in 0..2 {
            assert_eq!(os.restage(&machine, &before).unwrap(), Restored::Done);
            assert_eq!(machine.ids(), ["os-c1.0"], "{os:?}");
            assert!(!os.has_staged(&machine).unwrap(), "{os:?}");
        }
        let error = os.restage(&machine, "os-gone.0").unwrap_err().to_string();
        assert_eq!(error, "the machine has no deployment os-gone.0 to go back to");
    }
}

// covers: C91
#[test]
fn a_ledger_of_an_older_program_names_a_commit_or_an_image() {
    for (os, before) in [(Backend::RpmOstree, "c1"), (Backend::Bootc, "registry.example/os:1")] {
        let machine = Model::new();
        let good = machine.next();
        let (_folder, root) = root();
        os.stage_os(&root, &machine, "registry.example/os:2").unwrap();
        machine.reboot();
        for _ in 0..2 {
            assert_eq!(os.restage(&machine, before).unwrap(), Restored::NeedsReboot, "{os:?}");
            assert_eq!(machine.next(), good, "{os:?}");
        }
        machine.reboot();
        assert_eq!(os.restage(&machine, before).unwrap(), Restored::Done, "{os:?}");
    }
    // A change of kernel arguments leaves two deployments of one commit.
    let machine = Model::new();
    update(Backend::RpmOstree, &machine);
    machine.state().calls.clear();
    let error = Backend::RpmOstree.restage(&machine, "c1").unwrap_err().to_string();
    assert_eq!(error, "the machine has no deployment c1 to go back to");
    assert_eq!(machine.changes(), [""; 0]);
}

// covers: C80, C83
#[test]
fn a_realtime_kernel_and_extensions_are_applied_again_with_a_new_image() {
    let os = Backend::RpmOstree;
    let machine = Model::new();
    let (_folder, root) = root();
    os.stage_kernel(&machine, "realtime").unwrap();
    os.stage_extensions(&machine, &list(&["usbguard"])).unwrap();
    machine.reboot();
    machine.state().calls.clear();
    // Every step may be repeated after a crash.
    os.stage_os(&root, &machine, "registry.example/os:2").unwrap();
    for _ in 0..2 {
        os.stage_kernel(&machine, "realtime").unwrap();
        os.stage_extensions(&machine, &list(&["usbguard"])).unwrap();
    }
    let staged = machine.next();
    assert_eq!(staged.image, "registry.example/os:2");
    let wanted = ["usbguard", "kernel-rt-core", "kernel-rt-modules", "kernel-rt-modules-extra"];
    assert_eq!(staged.packages, wanted, "{:#?}", machine.changes());
    assert!(staged.removals.contains(&"kernel-core".to_owned()));
    os.stage_os(&root, &machine, "registry.example/os:2").unwrap();
    os.stage_kernel(&machine, "realtime").unwrap();
    assert_eq!(machine.next().packages, wanted, "from the first step again");
}

// covers: C85
#[test]
fn no_image_is_no_opinion() {
    for os in [Backend::RpmOstree, Backend::Bootc, Backend::None] {
        let machine = Model::new();
        let (_folder, root) = root();
        os.stage_os(&root, &machine, "").unwrap();
        assert!(machine.state().calls.is_empty(), "{os:?}");
    }
}
