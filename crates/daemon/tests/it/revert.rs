//! An update to any config and back ends exactly where it began, or is refused before anything
//! changes.

use std::{collections::BTreeSet, fs, path::Path};

use mco_api::MachineConfig;
use mco_apply::{
    ParsedConfig, disk,
    execute::{self, Outcome},
    ledger, verify,
};
use mco_cluster::report::chain;
use mco_core::{
    machine::Machine,
    plan::{self, Circumstances, default_policies},
};
use mco_host::{Host, Root, SimulatedSystem};
use serde_json::{Value, json};

use crate::crash::{folder, open, tree};

type Simulated = Host<SimulatedSystem>;

/// Number of pairs of configs.
const PAIRS: u64 = 1000;

/// Files of configs: above and below one another, over files, links and directories of the system,
/// and where units live.
const PATHS: [&str; 24] = [
    "/etc/p",
    "/etc/p/a",
    "/etc/p/a/b",
    "/etc/p/a/b/c",
    "/etc/p/b",
    "/etc/motd",
    "/etc/motd/x",
    "/etc/shipped.d",
    "/etc/shipped.d/keep.conf",
    "/etc/shipped.d/keep.conf/x",
    "/etc/shipped.d/new",
    "/etc/empty.d",
    "/etc/empty.d/a",
    "/etc/link",
    "/etc/link/x",
    "/etc/through",
    "/etc/through/a",
    "/etc/systemd",
    "/etc/systemd/system/u.service",
    "/etc/systemd/system/u.service/x",
    "/etc/systemd/system/u.service.d/10.conf",
    "/etc/systemd/system/v.service.d",
    "/etc/systemd/system/v.service.d/10.conf/x",
    "/var/q/a",
];

const UNITS: [&str; 4] = ["u.service", "v.service", "w@.service", "w@i.service"];

const UNIT_TEXTS: [&str; 5] = [
    "[Service]\nExecStart=/bin/true\n",
    "[Install]\nWantedBy=m.target\n",
    "[Install]\nWantedBy=n.target\nAlias=z.service\n",
    "[Install]\nWantedBy=m.target\nAlso=v.service\n",
    "[Install]\nRequiredBy=m.target\nDefaultInstance=i\n",
];

const DROPIN_TEXTS: [&str; 3] =
    ["", "[Unit]\nDescription=d\n", "[Install]\nWantedBy=d.target\nAlso=v.service\n"];

/// A sequence of numbers that a seed determines (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % limit as u64).unwrap()
    }

    fn of<'t, T: ?Sized>(&mut self, list: &[&'t T]) -> &'t T {
        list[self.below(list.len())]
    }

    fn config(&mut self, name: &str) -> MachineConfig {
        let paths: BTreeSet<&str> = (0..self.below(5)).map(|_| self.of(&PATHS)).collect();
        let files: Vec<Value> = paths.iter().map(|path| self.file(path)).collect();
        let names: BTreeSet<&str> = (0..self.below(4)).map(|_| self.of(&UNITS)).collect();
        let units: Vec<Value> = names.iter().map(|name| self.unit(name)).collect();
        let object = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": name},
            "spec": {"config": {
                "ignition": {"version": "3.5.0"},
                "storage": {"files": files},
                "systemd": {"units": units},
            }},
        });
        serde_json::from_str(&object.to_string()).unwrap()
    }

    fn file(&mut self, path: &str) -> Value {
        let contents = format!("data:,{}", self.below(3));
        let mut file = json!({"path": path, "contents": {"source": contents}});
        match self.below(4) {
            0 => file["mode"] = json!(0o600),
            1 => file["user"] = json!({"id": 1000}),
            2 => file["group"] = json!({"id": 7}),
            _ => {}
        }
        file
    }

    fn unit(&mut self, name: &str) -> Value {
        let mut unit = json!({"name": name});
        if self.below(4) > 0 {
            unit["contents"] = json!(self.of(&UNIT_TEXTS));
        }
        match self.below(4) {
            0 => unit["enabled"] = json!(true),
            1 => unit["enabled"] = json!(false),
            _ => {}
        }
        match self.below(6) {
            0 => unit["mask"] = json!(true),
            1 => unit["mask"] = json!(false),
            _ => {}
        }
        let names: BTreeSet<&str> =
            (0..self.below(3)).map(|_| self.of(&["10.conf", "20.conf"])).collect();
        let dropin = |name: &&str| json!({"name": name, "contents": self.of(&DROPIN_TEXTS)});
        unit["dropins"] = names.iter().map(dropin).collect();
        unit
    }
}

/// Creates a machine with files, links, directories and units of its operating system.
fn create_machine(folder: &Path) -> Simulated {
    let root = Root::open(folder).unwrap();
    SimulatedSystem::write_base_files(&root).unwrap();
    for path in ["/usr/etc/motd", "/etc/motd"] {
        root.write(path, b"welcome", 0o644).unwrap();
    }
    for path in ["/usr/etc/shipped.d/keep.conf", "/etc/shipped.d/keep.conf"] {
        root.write(path, b"kept", 0o640).unwrap();
    }
    root.create_directory("/etc/empty.d").unwrap();
    root.set_mode("/etc/empty.d", 0o700).unwrap();
    root.link("motd", "/etc/link").unwrap();
    root.link("../usr/etc/motd", "/usr/etc/link").unwrap();
    root.create_directory("/etc/elsewhere").unwrap();
    root.link("elsewhere", "/etc/through").unwrap();
    root.link("elsewhere", "/usr/etc/through").unwrap();
    root.write("/run/ostree-booted", b"", 0o644).unwrap();
    let unit = "[Install]\nWantedBy=m.target\n";
    root.write("/usr/lib/systemd/system/v.service", unit.as_bytes(), 0o644).unwrap();
    let preset = "disable *\n";
    root.write("/usr/lib/systemd/system-preset/99.preset", preset.as_bytes(), 0o644).unwrap();
    open(root)
}

#[derive(Debug, PartialEq)]
enum Applied {
    Yes,
    /// Refused before anything changed.
    Refused(String),
    /// Rolled back.
    Failed(String),
}

/// Does what the daemon does, with the reboot.
fn apply(host: &mut Simulated, from: &MachineConfig, to: &MachineConfig) -> Applied {
    let parsed = |config: &MachineConfig| ParsedConfig::read(config.clone()).unwrap();
    let (from, to) = (parsed(from), parsed(to));
    let (policies, at) = (default_policies(), Circumstances::default());
    let plan = match plan::node(&from.machine, &to.machine, &policies, &at) {
        Ok(plan) => plan,
        Err(refusal) => return Applied::Refused(chain(&refusal)),
    };
    if let Err(error) = host.check_paths(&from.machine, &to.machine, &plan) {
        return Applied::Refused(chain(&error));
    }
    match execute::begin(host, &from, &to, plan, &mut |_| {}) {
        Ok(Outcome::Applied) => {}
        Ok(Outcome::RebootDue) => {
            execute::reboot(host, "new").unwrap();
            host.system.boot().unwrap();
            // Not part of the simulated boot.
            host.root.write("/run/ostree-booted", b"", 0o644).unwrap();
            ledger::close(&host.root).unwrap();
        }
        Err(error) => return Applied::Failed(chain(&error)),
    }
    Applied::Yes
}

/// Returns the differences of two trees. Directories that configs leave behind do not count, as in
/// the reference.
fn differences(
    before: &std::collections::BTreeMap<String, String>,
    after: &std::collections::BTreeMap<String, String>,
) -> Vec<String> {
    let paths: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differs = |path: &&String| match (before.get(*path), after.get(*path)) {
        (None, Some(new)) => !new.starts_with("40755 "),
        (old, new) => old != new,
    };
    let shown = |path: &String| format!("{path}: {:?} -> {:?}", before.get(path), after.get(path));
    paths.into_iter().filter(differs).map(shown).collect()
}

/// Number of pairs by their result.
#[derive(Debug, Default)]
struct Count {
    invalid: usize,
    reverted: usize,
    refused: usize,
}

fn play(seed: u64, count: &mut Count) -> Result<(), String> {
    let mut random = Random(seed);
    let (a, b) = (random.config("rendered-worker-a"), random.config("rendered-worker-b"));
    if Machine::read(&a).is_err() || Machine::read(&b).is_err() {
        count.invalid += 1;
        return Ok(());
    }
    let folder = folder();
    let mut host = create_machine(folder.path());
    let blank = Machine::blank();
    let bare = MachineConfig::new(&blank.name, blank.spec);
    let start = tree(folder.path());
    let first = apply(&mut host, &bare, &a);
    if let Applied::Failed(cause) = &first {
        return Err(format!("begun, and rolled back: {cause}"));
    }
    if first != Applied::Yes {
        let left = differences(&start, &tree(folder.path()));
        return if left.is_empty() { Ok(()) } else { Err(format!("failed and left {left:#?}")) };
    }
    let before = tree(folder.path());
    match apply(&mut host, &a, &b) {
        Applied::Yes => {
            let machine = Machine::read(&b).unwrap();
            if let Some(drift) = verify::files(&host, &machine) {
                return Err(format!("drift after the update: {drift}"));
            }
            let back = apply(&mut host, &b, &a);
            if back != Applied::Yes {
                return Err(format!("the way back: {back:?}"));
            }
            count.reverted += 1;
        }
        Applied::Refused(_) => count.refused += 1,
        Applied::Failed(cause) => return Err(format!("begun, and rolled back: {cause}")),
    }
    assert_eq!(disk::current_config(&host.root).unwrap().as_ref(), Some(&a));
    let left = differences(&before, &tree(folder.path()));
    if left.is_empty() { Ok(()) } else { Err(format!("differs: {left:#?}")) }
}

// covers: C64, C91
#[test]
fn any_update_and_its_revert_end_where_they_began() {
    let first = std::env::var("MCO_REVERT_SEED").ok().and_then(|text| text.parse().ok());
    let seeds = first.map_or(0..PAIRS, |seed| seed..seed + 1);
    let mut count = Count::default();
    let mut faults = Vec::new();
    for seed in seeds {
        if let Err(fault) = play(seed, &mut count) {
            let mut random = Random(seed);
            let configs = [random.config("a"), random.config("b")];
            let text = configs.map(|it| it.spec.config.unwrap().get().to_owned()).join("\n");
            faults.push(format!("seed {seed}: {fault}\n{text}"));
        }
    }
    assert!(
        faults.is_empty(),
        "{} faults, {count:?}\n{}",
        faults.len(),
        faults[..faults.len().min(5)].join("\n")
    );
    if first.is_none() {
        // Most pairs must be worth something.
        assert!(count.reverted > 150 && count.refused > 150, "{count:?}");
    }
}

#[test]
fn a_file_becomes_a_directory_and_a_file_again() {
    let config = |name: &str, path: &str| -> MachineConfig {
        let file = json!({"path": path, "contents": {"source": "data:,1"}});
        let object = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": name},
            "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [file]}}},
        });
        serde_json::from_str(&object.to_string()).unwrap()
    };
    let folder = folder();
    let mut host = create_machine(folder.path());
    let blank = Machine::blank();
    let bare = MachineConfig::new(&blank.name, blank.spec);
    let (file, below) = (config("rendered-worker-a", "/etc/foo"), config("b", "/etc/foo/bar"));
    for (from, to) in [(&bare, &file), (&file, &below), (&below, &file), (&file, &bare)] {
        assert_eq!(apply(&mut host, from, to), Applied::Yes);
    }
    assert!(!folder.path().join("etc/foo").exists());
    // A file of the administrator in the directory refuses the update before it begins.
    assert_eq!(apply(&mut host, &bare, &below), Applied::Yes);
    fs::write(folder.path().join("etc/foo/mine"), "").unwrap();
    let Applied::Refused(text) = apply(&mut host, &below, &file) else { panic!("not refused") };
    assert!(text.starts_with("cannot write /etc/foo: /etc/foo/mine is a file"), "{text}");
}

#[test]
fn an_alias_and_a_unit_of_its_name_replace_each_other() {
    let config = |name: &str, units: &Value| -> MachineConfig {
        let object = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": name},
            "spec": {"config": {"ignition": {"version": "3.5.0"}, "systemd": {"units": units}}},
        });
        serde_json::from_str(&object.to_string()).unwrap()
    };
    let alias = json!({"name": "u.service", "enabled": true,
        "contents": "[Install]\nWantedBy=n.target\nAlias=z.service\n"});
    let own = json!({"name": "z.service", "contents": "[Service]\nExecStart=/bin/true\n"});
    let (a, b) = (config("a", &json!([alias])), config("b", &json!([own])));
    let folder = folder();
    let mut host = create_machine(folder.path());
    let blank = Machine::blank();
    let bare = MachineConfig::new(&blank.name, blank.spec);
    assert_eq!(apply(&mut host, &bare, &a), Applied::Yes);
    let before = tree(folder.path());
    for (from, to) in [(&a, &b), (&b, &a)] {
        assert_eq!(apply(&mut host, from, to), Applied::Yes);
    }
    assert_eq!(differences(&before, &tree(folder.path())), [""; 0]);
}
