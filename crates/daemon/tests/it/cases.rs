//! Updates of real trees, one directory each below `tests/cases`: the machine before, the configs,
//! and the machine after.
//!
//! | file | contents |
//! | --- | --- |
//! | `config.yaml` | the `spec` of the config that the machine has, then of the one it gets; one alone is what it gets, or with `drift.txt` what it has and gets again |
//! | `before/`, `after/` | the files of the machine, beside those that every simulated one has; none is no directory, as git keeps no empty ones: directories count only through their files |
//! | `before.modes.txt`, `modes.txt` | `0600 /path` or `0600 1000:1000 /path` of files that are not 0644 (0755 for executables), and of directories |
//! | `calls.txt` | the calls to the system, in order, and `drain` if pods had to be evicted first; none if absent |
//! | `policy.yaml` | the administrator's node disruption policies |
//! | `overrides.yaml` | storage changes that are allowed |
//! | `booted.yaml` | image and kernel arguments that the machine booted, if not those of its config |
//! | `force` | the force file exists |
//! | `unrecorded` | the machine lost the record of its config |
//! | `drift.txt` | the drift of `before/`: without `force` nothing is done about it |
//! | `refused.txt` | the reason why there is no plan; nothing is done |
//! | `error.txt` | the error of the update; everything is rolled back |
//! | `kept` | the error is that of a service: the files stay, and only the service is retried |
//! | `failing.txt` | the calls that fail until the test repairs them; then `after/` is reached |
//!
//! The records of originals (`orig`, `noorig`) count in cases that contain any.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown, symlink},
    panic::catch_unwind,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use mco_api::{
    MachineConfig, MachineConfigSpec,
    machine_configuration::{StorageOverride, disruption::NodeDisruptionPolicyConfig},
};
use mco_apply::{
    ParsedConfig, disk,
    execute::{self, ExecuteError, Outcome},
    ledger, verify,
};
use mco_cluster::report::chain;
use mco_core::{
    machine::Machine,
    plan::{self, Circumstances, Drain, Force, NodePlan, Refusal},
};
use mco_host::{
    Host, Root, SimulatedSystem, System as _,
    fault::{Fault, Faults},
};
use serde_json::{Value, json};

use crate::crash::{faulty, folder, open, recover, tree};

type Simulated = Host<SimulatedSystem>;
type Tree = BTreeMap<String, String>;

/// Records of the daemon; only the originals are part of a case.
const RECORDS: [&str; 2] = ["etc/machine-config-daemon/", "var/lib/machine-config-daemon/"];
const ORIGINALS: [&str; 2] =
    ["etc/machine-config-daemon/orig/", "etc/machine-config-daemon/noorig/"];

/// The one directory among them that configs write to.
const NO_REBOOT: &str = "etc/machine-config-daemon/no-reboot/";

struct Case {
    name: String,
    folder: PathBuf,
    old: MachineConfig,
    new: MachineConfig,
    booted: Option<MachineConfigSpec>,
    policies: NodeDisruptionPolicyConfig,
    overrides: Vec<StorageOverride>,
    calls: Vec<String>,
    failing: Vec<String>,
    drift: String,
    refused: Option<String>,
    error: Option<String>,
    shows_originals: bool,
}

/// A line of `modes.txt`.
struct Row {
    mode: u32,
    owner: Option<(u32, u32)>,
    path: String,
}

/// Returns every case, by name.
fn cases() -> Vec<Case> {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut folders: Vec<PathBuf> =
        fs::read_dir(all).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    assert!(!folders.is_empty(), "there are cases");
    folders.into_iter().map(Case::read).collect()
}

/// Parses the documents of a YAML file in its JSON form, which is all that cases need: flow style,
/// and comments on lines of their own.
fn documents(text: &str) -> Vec<Value> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let parsed = |text: &[&str]| serde_json::from_str(&text.join("\n")).expect("JSON in YAML");
    lines.split(|line| *line == "---").filter(|text| !text.is_empty()).map(parsed).collect()
}

fn config(name: &str, spec: &Value) -> MachineConfig {
    let object = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": name}, "spec": spec
    });
    serde_json::from_str(&object.to_string()).unwrap()
}

impl Case {
    fn read(folder: PathBuf) -> Self {
        let text = |name: &str| fs::read_to_string(folder.join(name)).ok();
        let lines = |name: &str| -> Vec<String> {
            text(name).unwrap_or_default().lines().map(str::to_owned).collect()
        };
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let mut specs = documents(&text("config.yaml").expect("config.yaml"));
        let new = specs.pop().expect("a config");
        let bare = json!({"config": {"ignition": {"version": "3.5.0"}}});
        let old = specs.pop().unwrap_or_else(|| match text("drift.txt") {
            Some(_) => new.clone(),
            None => bare,
        });
        let document = |name: &str| text(name).map(|text| documents(&text).remove(0));
        let overrides = document("overrides.yaml").unwrap_or_else(|| json!([]));
        let shows = |side: &str| ORIGINALS.iter().any(|it| folder.join(side).join(it).exists());
        Self {
            old: config("rendered-worker-old", &old),
            new: config("rendered-worker-new", &new),
            booted: document("booted.yaml").map(|spec| config("booted", &spec).spec),
            policies: document("policy.yaml")
                .map_or_else(Default::default, |it| serde_json::from_value(it).unwrap()),
            overrides: serde_json::from_value(overrides).unwrap(),
            calls: lines("calls.txt"),
            failing: lines("failing.txt"),
            drift: lines("drift.txt").join("\n"),
            refused: text("refused.txt").map(|text| text.trim_end().to_owned()),
            error: text("error.txt").map(|text| text.trim_end().to_owned()),
            shows_originals: shows("before") || shows("after"),
            name,
            folder,
        }
    }

    fn has(&self, file: &str) -> bool {
        self.folder.join(file).exists()
    }

    /// Creates the machine that has the old config.
    fn create_machine(&self, folder: &Path) {
        self.lay_out(folder, "before", "before.modes.txt");
        let mut host = open(Root::open(folder).unwrap());
        let machine = Machine::read(&self.old).unwrap();
        let booted = self.booted.as_ref().unwrap_or(&machine.spec);
        host.system.stage_os(&booted.os_image_url).unwrap();
        host.system.stage_kernel_arguments(&[], &booted.kernel_arguments).unwrap();
        // Locked if no config ever set it.
        host.system.set_password("core", machine.password_hash().unwrap_or("*")).unwrap();
        host.system.boot().unwrap();
        if !self.has("unrecorded") {
            disk::record_config(&host.root, &self.old).unwrap();
        }
        if self.has("force") {
            host.root.write(execute::FORCE_FILE, b"", 0o644).unwrap();
        }
    }

    /// Writes one side of the case into a tree, with the base files of every machine.
    fn lay_out(&self, folder: &Path, side: &str, modes: &str) {
        let from = self.folder.join(side);
        if from.exists() {
            copy(&from, folder, Modes::Plain);
        }
        SimulatedSystem::write_base_files(&Root::open(folder).unwrap()).unwrap();
        for Row { mode, owner, path } in self.modes(modes) {
            let path = folder.join(path.trim_start_matches('/'));
            if let Some((user, group)) = owner {
                // Only root can; the tests of other users do not check owners.
                let _ = lchown(&path, Some(user), Some(group));
            }
            if path.exists() {
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            }
        }
    }

    fn modes(&self, name: &str) -> Vec<Row> {
        let text = fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        let row = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (mode, path) = (words.first().expect("a mode"), words.last().expect("a path"));
            let owner = words.get(1).and_then(|word| word.split_once(':'));
            let ids = |(user, group): (&str, &str)| (user.parse().unwrap(), group.parse().unwrap());
            let mode = u32::from_str_radix(mode, 8).unwrap();
            Row { mode, owner: owner.map(ids), path: (*path).to_owned() }
        };
        text.lines().map(row).collect()
    }

    /// Returns the files of a machine that are part of the case: mode and contents, or the target
    /// of a link.
    fn files(&self, folder: &Path) -> Tree {
        let is_part = |path: &str| {
            !RECORDS.iter().any(|it| path.starts_with(it))
                || path.starts_with(NO_REBOOT)
                || (self.shows_originals && ORIGINALS.iter().any(|it| path.starts_with(it)))
        };
        let entry = |(path, what): (String, String)| {
            let mut words = what.splitn(3, ' ');
            let (mode, what) = (words.next()?, words.nth(1)?);
            // A directory exists for its files, and a link's own mode is meaningless.
            (!mode.starts_with("40") && is_part(&path)).then(|| match mode.strip_prefix("100") {
                Some(mode) => (path, format!("0{mode} {what:?}")),
                None => (path, what.to_owned()),
            })
        };
        tree(folder).into_iter().filter_map(entry).collect()
    }

    /// Returns the expected files at the end.
    fn after(&self) -> Tree {
        let folder = folder();
        self.lay_out(folder.path(), "after", "modes.txt");
        self.files(folder.path())
    }

    fn plan(&self, host: &Simulated) -> Result<NodePlan, Refusal> {
        let is_forced = host.root.exists(execute::FORCE_FILE).unwrap();
        let force = if is_forced { Force::Yes } else { Force::No };
        let overrides = self.overrides.clone();
        let at = Circumstances { force, overrides, ..Circumstances::default() };
        let (from, to) = (Machine::read(&self.old).unwrap(), Machine::read(&self.new).unwrap());
        plan::node(&from, &to, &plan::merge_policies(&self.policies), &at)
    }

    fn begin(&self, host: &mut Simulated, plan: NodePlan) -> Result<Outcome, ExecuteError> {
        for call in &self.failing {
            host.system.call_log().fail(call);
        }
        self.execute(host, plan)
    }

    fn execute(&self, host: &mut Simulated, plan: NodePlan) -> Result<Outcome, ExecuteError> {
        let parsed = |config: &MachineConfig| ParsedConfig::read(config.clone());
        execute::begin(host, &parsed(&self.old)?, &parsed(&self.new)?, plan, &mut |_| {})
    }

    /// Returns true if the daemon changes anything.
    fn proceeds(&self) -> bool {
        self.refused.is_none() && (self.drift.is_empty() || self.has("force"))
    }

    /// Returns true if the new config is applied in the end.
    fn can_end(&self) -> bool {
        self.error.is_none() || !self.failing.is_empty()
    }

    /// Executes the case as the daemon does, and lists all differences from the expectation.
    fn run(&self) -> Vec<String> {
        let folder = folder();
        self.create_machine(folder.path());
        let before = self.files(folder.path());
        let inodes = inodes(folder.path(), &before);
        let mut host = open(Root::open(folder.path()).unwrap());
        let mut complaints = self.text("drift", &self.drift, &drift(&host, &self.old));
        let mut want = before.clone();
        if self.proceeds() {
            complaints.extend(self.update(&mut host, folder.path(), &before));
            if self.can_end() {
                want = self.after();
                complaints.extend(self.text("drift after", "", &drift(&host, &self.new)));
                let recorded = disk::current_config(&host.root).unwrap();
                if recorded.as_ref() != Some(&self.new) {
                    complaints.push(format!("{}: the new config is not on record", self.name));
                }
            }
        } else if let Some(refused) = &self.refused {
            let found = self.plan(&host).map_or_else(|refusal| chain(&refusal), |_| String::new());
            complaints.extend(self.text("refusal", refused, &found));
        }
        complaints.extend(self.trees("", &want, &self.files(folder.path())));
        let has_end = self.proceeds() && self.can_end();
        complaints.extend(
            self.modes("modes.txt")
                .iter()
                .filter(|_| has_end)
                .filter_map(|row| self.stat(folder.path(), row)),
        );
        for (path, inode) in inodes {
            let is_same = before.get(&path) == want.get(&path);
            let stat = fs::symlink_metadata(folder.path().join(&path));
            if is_same && stat.is_ok_and(|stat| stat.ino() != inode) && self.error.is_none() {
                complaints.push(format!("{}: /{path}: written again for nothing", self.name));
            }
        }
        complaints
    }

    /// Executes the update, including the reboot.
    fn update(&self, host: &mut Simulated, folder: &Path, before: &Tree) -> Vec<String> {
        let mut calls = Vec::new();
        let plan = self.plan(host).unwrap();
        if matches!(plan.drain, Drain::Needed(_)) {
            calls.push("drain".to_owned());
        }
        let mut done = self.begin(host, plan);
        let mut complaints = Vec::new();
        if let Some(error) = &self.error {
            let found = done.as_ref().map_or_else(|error| chain(error), |_| String::new());
            complaints.extend(self.text("error", error, &found));
            if self.failing.is_empty() {
                calls.extend(host.system.call_log().calls());
                complaints.extend(self.text("calls", &self.calls.join("\n"), &calls.join("\n")));
                return complaints;
            }
            let kept = ledger::open(&host.root).unwrap();
            assert_eq!(kept.is_some(), self.has("kept"), "{}: an update on record", self.name);
            let found = self.files(folder);
            complaints.extend(match &kept {
                Some(_) => self.trees(", kept", &self.after(), &found),
                None => self.trees(", rolled back", before, &found),
            });
            for call in &self.failing {
                host.system.call_log().succeed(call);
            }
            done = if let Some((update, progress)) = kept {
                execute::proceed(host, &update, &progress, &mut |_| {})
            } else {
                let plan = self.plan(host).unwrap();
                self.execute(host, plan)
            };
        }
        match done {
            Ok(Outcome::Applied) => {}
            Ok(Outcome::RebootDue) => {
                execute::reboot(host, "rendered-worker-new").unwrap();
                host.system.boot().unwrap();
                ledger::close(&host.root).unwrap();
            }
            Err(error) => complaints.push(format!("{}: fails: {}", self.name, chain(&error))),
        }
        calls.extend(host.system.call_log().calls());
        complaints.extend(self.text("calls", &self.calls.join("\n"), &calls.join("\n")));
        complaints
    }

    /// Executes the case with a crash at every change of the disk, one run each.
    fn crash(&self) -> Vec<String> {
        if !self.proceeds() {
            return Vec::new();
        }
        let template = folder();
        self.create_machine(template.path());
        let before = self.files(template.path());
        let plan = self.plan(&open(Root::open(template.path()).unwrap())).unwrap();
        let after = if self.can_end() { self.after() } else { before.clone() };
        let mut complaints = Vec::new();
        for number in 1.. {
            let folder = folder();
            copy(template.path(), folder.path(), Modes::Same);
            let faults = Arc::new(Faults::at(number, Fault::Crash));
            let mut host = open(faulty(folder.path(), &faults));
            drop(self.begin(&mut host, plan.clone()));
            drop(host);
            let Some(at) = faults.failed() else { break };
            let root = Root::open(folder.path()).unwrap();
            let is_over = disk::current_config(&root).unwrap().as_ref() == Some(&self.new);
            let has_begun = is_over || ledger::open(&root).unwrap().is_some();
            drop(recover(folder.path()));
            let found = self.files(folder.path());
            let at = format!(", crashed at {number} {at}");
            // A failing update is being rolled back, or resumes and succeeds.
            let is_back = !self.failing.is_empty() && found == before;
            let want = if has_begun && !is_back { &after } else { &before };
            complaints.extend(self.trees(&at, want, &found));
            let mut host = open(Root::open(folder.path()).unwrap());
            let current = disk::current_config(&host.root).unwrap();
            if self.can_end() && current.as_ref() != Some(&self.new) {
                let plan = self.plan(&host).unwrap();
                let done = self.execute(&mut host, plan);
                complaints.extend(done.err().map(|error| format!("{}{at}: {error}", self.name)));
                drop(host);
                drop(recover(folder.path()));
                complaints.extend(self.trees(&at, &after, &self.files(folder.path())));
            }
            if complaints.len() > 8 {
                break;
            }
        }
        complaints
    }

    fn text(&self, what: &str, want: &str, found: &str) -> Vec<String> {
        if want == found {
            return Vec::new();
        }
        let diff = similar_asserts::SimpleDiff::from_str(want, found, "the case", "found");
        vec![format!("{}: {what}: {diff}", self.name)]
    }

    fn trees(&self, at: &str, want: &Tree, found: &Tree) -> Vec<String> {
        let paths: std::collections::BTreeSet<&String> = want.keys().chain(found.keys()).collect();
        let side =
            |tree: &Tree, path: &str| tree.get(path).map_or("nothing".to_owned(), Clone::clone);
        let row = |path: &&String| {
            let (want, found) = (side(want, path), side(found, path));
            let name = &self.name;
            (want != found).then(|| {
                format!("{name}{at}: /{path}\n    the case: {want}\n    found:    {found}")
            })
        };
        paths.iter().filter_map(row).collect()
    }

    fn stat(&self, folder: &Path, row: &Row) -> Option<String> {
        let Row { mode, owner, path } = row;
        let is_superuser = fs::metadata(folder).unwrap().uid() == 0;
        let found = fs::symlink_metadata(folder.join(path.trim_start_matches('/'))).ok();
        let of = |mode: u32, owner: Option<(u32, u32)>| {
            format!("{mode:04o} {:?}", owner.filter(|_| is_superuser))
        };
        let want = of(*mode, *owner);
        let found = found.map_or("nothing".to_owned(), |stat| {
            of(stat.mode() & 0o7777, owner.map(|_| (stat.uid(), stat.gid())))
        });
        (want != found).then(|| format!("{}: {path}: {want}, found {found}", self.name))
    }
}

/// Lists the drift of a machine, a line each.
fn drift(host: &Simulated, config: &MachineConfig) -> String {
    let found = verify::differences(host, &Machine::read(config).unwrap()).unwrap();
    found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// The modes and owners of copied files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Modes {
    /// Those that git tells apart.
    Plain,
    /// The same as before.
    Same,
}

fn copy(from: &Path, to: &Path, modes: Modes) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        let stat = fs::symlink_metadata(&from).unwrap();
        if stat.is_symlink() {
            symlink(fs::read_link(&from).unwrap(), &to).unwrap();
            continue;
        }
        if stat.is_dir() {
            fs::create_dir_all(&to).unwrap();
            copy(&from, &to, modes);
        } else {
            fs::write(&to, fs::read(&from).unwrap()).unwrap();
        }
        let is_program = stat.is_dir() || stat.mode() & 0o100 != 0;
        let mode = match modes {
            Modes::Same => stat.mode() & 0o7777,
            Modes::Plain if is_program => 0o755,
            Modes::Plain => 0o644,
        };
        fs::set_permissions(&to, fs::Permissions::from_mode(mode)).unwrap();
        if modes == Modes::Same && stat.uid() != fs::symlink_metadata(&to).unwrap().uid() {
            lchown(&to, Some(stat.uid()), Some(stat.gid())).unwrap();
        }
    }
}

fn inodes(folder: &Path, tree: &Tree) -> BTreeMap<String, u64> {
    let inode = |path: &String| fs::symlink_metadata(folder.join(path)).unwrap().ino();
    tree.keys().map(|path| (path.clone(), inode(path))).collect()
}

/// Runs a check on every case, on all processors, and fails with all complaints.
fn with_each(check: fn(&Case) -> Vec<String>) {
    let mut cases = cases();
    if fs::metadata(folder().path()).unwrap().uid() != 0 {
        eprintln!("skipped: cases with files of others, which this user cannot make");
        let is_given = |row: Row| row.owner.is_some();
        cases.retain(|case| !case.modes("before.modes.txt").into_iter().any(is_given));
    }
    let (next, complaints) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let checked = catch_unwind(|| check(case));
                    let stopped = |_| vec![format!("{}: stopped, see above", case.name)];
                    complaints.lock().unwrap().extend(checked.unwrap_or_else(stopped));
                }
            });
        }
    });
    let complaints = complaints.into_inner().unwrap();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

// covers: C30, C31, C32, C41, C42, C43, C44, C45, C47, C48, C49, C50, C52, C53, C54, C55
// covers: C60, C61, C62, C63, C64, C65, C66, C67, C68, C69, C70, C71, C72, C73, C74, C75
// covers: C76, C77, C78, C79, C91, C92, C93, C94, C95, C96, C97, C98, C99, C131, C136
#[test]
fn every_case_ends_as_its_folder_says() {
    with_each(Case::run);
}

// covers: C134
#[test]
fn every_case_ends_as_its_folder_says_wherever_it_crashes() {
    with_each(Case::crash);
}
