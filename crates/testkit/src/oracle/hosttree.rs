//! A disk, a row of configs, and what the reference made of the disk after each.
//!
//! Owners are part of it, so that only the superuser can play it; for anybody else every case passes.
//! After a step that failed the reference leaves what it had written so far; we leave nothing, and that
//! is what is checked then.

use std::collections::{BTreeMap, BTreeSet};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mco_api::MachineConfig;
use mco_core::{
    machine::Machine,
    plan::{self, Circumstances, Force, Phase, Step, default_policies},
};
use mco_daemon::{disk, execute, verify};
use mco_host::{Host, Owner, Root, SimulatedSystem, System as _, snapshot};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{difference, parsed, text};

/// Where the recording looks, and where we do.
const LOOKED_AT: [&str; 4] = ["/etc", "/home/core", "/usr/local", "/var/lib/oracle"];
const RECORDS: &str = "/etc/machine-config-daemon";
/// Longer contents are recorded by their hash.
const LONGEST: usize = 4096;
/// A service that no config names, whose reload is made to fail.
const HOOK: &str = "oracle-hook.service";

#[derive(Deserialize)]
struct Input {
    root: Start,
    steps: Vec<MachineConfig>,
    options: Vec<Options>,
}

#[derive(Deserialize)]
struct Start {
    #[serde(default)]
    rpm: Rpm,
    #[serde(default)]
    users: Vec<User>,
    #[serde(default)]
    groups: Vec<Group>,
    entries: Vec<Entry>,
}

#[derive(Default, Deserialize)]
struct Rpm {
    #[serde(default)]
    owned: Vec<String>,
}

#[derive(Deserialize)]
struct User {
    name: String,
    uid: u32,
    gid: u32,
    #[serde(default)]
    home: String,
    #[serde(default, rename = "passwordField")]
    password: Option<String>,
}

#[derive(Deserialize)]
struct Group {
    name: String,
    gid: u32,
}

#[derive(Deserialize)]
struct Entry {
    path: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    mode: String,
    #[serde(default)]
    uid: u32,
    #[serde(default)]
    gid: u32,
    #[serde(default)]
    content: String,
    #[serde(default)]
    target: String,
}

#[derive(Deserialize)]
struct Options {
    entry: String,
    #[serde(default)]
    force: bool,
    #[serde(default, rename = "postError")]
    post_error: String,
}

type Tree = BTreeMap<String, Value>;
type Simulated = Host<SimulatedSystem>;

pub(super) fn check(input: &str, expect: &Value) -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let Input { root: start, steps, options } = parsed(input)?;
    // In memory where there is such a place: nothing here has to outlive a power cut.
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let folder = folder.map_err(|error| error.to_string())?;
    let mut host = furnish(folder.path(), &start).map_err(|error| error.to_string())?;
    let first = tree(&host.root)?;
    let mut from = MachineConfig::new(&Machine::blank().name, Machine::blank().spec);
    let expected = expect.get("steps").and_then(Value::as_array).cloned().unwrap_or_default();
    for (number, ((to, options), expect)) in steps.iter().zip(&options).zip(&expected).enumerate() {
        let before = tree(&host.root)?;
        let at = |text: String| format!("step {number}: {text}");
        match (apply(&mut host, &from, to, options), text(expect, "error")) {
            (Ok(()), None) => {
                compare(&host, to, &first, expect).map_err(at)?;
                from = to.clone();
            }
            (Err(_), Some(_)) => {
                let left = tree(&host.root)?;
                if left != before {
                    return Err(at("a step that failed left something behind".to_owned()));
                }
            }
            (Ok(()), Some(error)) => return Err(at(format!("allowed, expected {error}"))),
            (Err(error), None) => return Err(at(format!("refused: {error}"))),
        }
        // What the reference leaves behind shows in all later trees.
        if text(expect, "error").is_some() {
            break;
        }
    }
    Ok(())
}

fn furnish(folder: &std::path::Path, start: &Start) -> Result<Simulated, mco_host::SystemError> {
    let root = Root::open(folder)?;
    let user = |User { name, uid, gid, home, .. }: &User| {
        format!("{name}:x:{uid}:{gid}::{home}:/bin/sh\n")
    };
    let passwd: String = start.users.iter().map(user).collect();
    let group = |Group { name, gid }: &Group| format!("{name}:x:{gid}:\n");
    root.write("/etc/passwd", passwd.as_bytes(), 0o644)?;
    root.write("/etc/group", start.groups.iter().map(group).collect::<String>().as_bytes(), 0o644)?;
    for entry in &start.entries {
        let owner = Owner { user: entry.uid, group: entry.gid };
        let mode = u32::from_str_radix(&entry.mode, 8).unwrap_or(0o755);
        match entry.kind.as_str() {
            "dir" => {
                root.create_directory(&entry.path)?;
                root.set_owner(&entry.path, owner)?;
                root.set_mode(&entry.path, mode)?;
            }
            "link" => root.link(&entry.target, &entry.path)?,
            _ => {
                let bytes = STANDARD.decode(&entry.content).unwrap_or_default();
                root.write_owned(&entry.path, &bytes, mode, Some(owner))?;
            }
        }
    }
    let mut system = SimulatedSystem::open(&root)?;
    system.own(start.rpm.owned.iter().cloned().collect::<BTreeSet<_>>());
    let core = start.users.iter().find(|user| user.name == "core");
    if let Some(password) = core.and_then(|core| core.password.as_deref()) {
        system.set_password("core", password)?;
    }
    system.journal().fail(&format!("reload {HOOK}"));
    Ok(Host { root, system })
}

fn apply(
    host: &mut Simulated,
    from: &MachineConfig,
    to: &MachineConfig,
    options: &Options,
) -> Result<(), String> {
    let read = |config: &MachineConfig| Machine::read(config).map_err(|error| error.to_string());
    let (source, target) = (read(from)?, read(to)?);
    let writes_only = options.entry == "write";
    let circumstances = Circumstances {
        phase: if writes_only { Phase::WayBack } else { Phase::Serving },
        force: if options.force { Force::Yes } else { Force::No },
        ..Circumstances::default()
    };
    let mut plan = plan::node(&source, &target, &default_policies(), &circumstances)
        .map_err(|error| error.to_string())?;
    if writes_only {
        let is_other =
            |step: &Step| matches!(step, Step::WriteKeys | Step::SetPassword | Step::RecordConfig);
        plan.steps.retain(|step| !is_other(step));
    }
    // The recording replaces the last action by a hook.
    let is_action = |step: &Step| {
        matches!(
            step,
            Step::Reboot | Step::ReloadService(_) | Step::RestartService(_) | Step::ReloadSystemd
        )
    };
    plan.steps.retain(|step| !is_action(step));
    if !options.post_error.is_empty() {
        plan.steps.push(Step::ReloadService(HOOK.to_owned()));
    }
    let done = execute::begin(host, from, to, plan, &mut |_| {});
    done.map(drop).map_err(|error| mco_cluster::report::chain(&error))
}

fn compare(
    host: &Simulated,
    config: &MachineConfig,
    first: &Tree,
    expect: &Value,
) -> Result<(), String> {
    let now = tree(&host.root)?;
    let mut changed = Tree::new();
    for (path, entry) in &now {
        if first.get(path) != Some(entry) {
            changed.insert(path.clone(), entry.clone());
        }
    }
    for path in first.keys().filter(|path| !now.contains_key(*path)) {
        changed.insert(path.clone(), json!({"path": path, "type": "absent"}));
    }
    let (records, changed): (Tree, Tree) =
        changed.into_iter().partition(|(path, _)| path.starts_with(RECORDS));
    for (name, found) in [("changed", changed), ("bookkeeping", records)] {
        let expected = expect.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
        let keyed = |entry: Value| (text(&entry, "path").unwrap_or_default().to_owned(), entry);
        let expected: Tree = expected.into_iter().map(keyed).collect();
        let (expected, found) = (json!(expected), json!(found));
        if let Some(difference) = difference(&expected, &found) {
            return Err(format!("{name} {difference}"));
        }
    }
    let machine = Machine::read(config).map_err(|error| error.to_string())?;
    let verdict = verify::files(host, &machine).map_or("ok".to_owned(), |drift| drift.to_string());
    if let Some(want) = text(expect, "validate").filter(|want| *want != verdict) {
        return Err(format!("validates as {verdict:?}, expected {want:?}"));
    }
    let units = expect.get("isEnabled").and_then(Value::as_object).cloned().unwrap_or_default();
    for (unit, want) in units {
        let found = host.system.unit_state(&unit).map_err(|error| error.to_string())?;
        // The recording has systemctl's exit code behind its word; of what is not there it says nothing.
        let want = want.as_str().and_then(|want| want.split(" (exit").next()).unwrap_or_default();
        let want = if want.starts_with("(exit") { "not-found" } else { want };
        if found != want {
            return Err(format!("{unit} is {found}, expected {want}"));
        }
    }
    let password = host.system.password("core").map_err(|error| error.to_string())?;
    match text(expect, "passwordField") {
        // The reference leaves an account without any password, which would let anybody in; or the
        // recording's machine keeps none.
        Some("" | "<no entry>") => Ok(()),
        Some(want) if password.as_deref() != Some(want) => {
            Err(format!("the password field is {password:?}, expected {want:?}"))
        }
        _ => Ok(()),
    }
}

/// Everything in the places that the recording looks at.
fn tree(root: &Root) -> Result<Tree, String> {
    let mut found = Tree::new();
    for path in LOOKED_AT {
        below(root, path, &mut found).map_err(|error| error.to_string())?;
    }
    found.retain(|path, _| !path.starts_with(&format!("{RECORDS}/mco-")));
    for path in [disk::CURRENT_CONFIG, disk::CURRENT_IMAGE] {
        // Ours are for the superuser only.
        if let Some(entry) = found.get_mut(path) {
            super::put(entry, "mode", json!("0644"));
        }
    }
    if let Ok(Some(config)) = disk::current_config(root) {
        let name = config.metadata.name.unwrap_or_default();
        if let Some(entry) = found.get_mut(disk::CURRENT_CONFIG).and_then(Value::as_object_mut) {
            for member in ["content", "sha256", "size"] {
                entry.remove(member);
            }
            entry.insert("holdsConfig".to_owned(), json!(name));
        }
    }
    Ok(found)
}

fn below(root: &Root, path: &str, found: &mut Tree) -> Result<(), mco_host::RootError> {
    let Some(stat) = root.stat(path)? else { return Ok(()) };
    let (user, group) = (stat.owner.user, stat.owner.group);
    let mut entry = json!({"path": path, "uid": user, "gid": group});
    if let Some(target) = root.read_link(path)? {
        super::put(&mut entry, "type", json!("link"));
        super::put(&mut entry, "target", json!(target));
    } else {
        super::put(&mut entry, "mode", json!(format!("{:04o}", stat.mode & 0o7777)));
        let kind = if stat.is_directory() { "dir" } else { "file" };
        super::put(&mut entry, "type", json!(kind));
        if stat.is_file() {
            let bytes = root.read(path)?.unwrap_or_default();
            if bytes.len() <= LONGEST {
                super::put(&mut entry, "content", json!(STANDARD.encode(&bytes)));
            } else {
                super::put(&mut entry, "sha256", json!(snapshot::hash(&bytes)));
                super::put(&mut entry, "size", json!(bytes.len()));
            }
        }
    }
    found.insert(path.to_owned(), entry);
    if stat.is_directory() {
        for name in root.list(path)? {
            below(root, &format!("{path}/{name}"), found)?;
        }
    }
    Ok(())
}
