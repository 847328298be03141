//! The lab itself: it starts, its machines behave like machines, and it is removed completely.

#![expect(
    clippy::disallowed_methods,
    reason = "reads the host's processes and cgroups, and the clock"
)]

use std::{
    fs,
    io::{BufRead as _, BufReader},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::Path,
    process::{Child, Command, Stdio},
    time::Instant,
};

use mco_testkit::{
    PATIENCE,
    api::wait,
    lab::{Lab, LabPrerequisites, Network, OstreeMachine, OstreePrerequisites, Plan, Tool},
};
use rustix::process::{Pid, Signal, kill_process};

/// Returns the lab's prerequisites. Prints the reason and returns `None` if one is missing.
fn ingredients() -> Option<LabPrerequisites> {
    match LabPrerequisites::find() {
        Ok(found) => Some(found),
        Err(missing) => {
            eprintln!("skipped: {missing}");
            None
        }
    }
}

#[tokio::test]
async fn three_machines_start_behave_like_machines_and_are_removed() {
    let Some(ingredients) = ingredients() else { return };
    let start = Instant::now();
    let plan = Plan { machines: 3, mco: None };
    let lab = Lab::up(&ingredients, &plan).await.expect("the lab starts");
    let memory = lab.memory();
    eprintln!(
        "lab: {} machines Ready after {:.1} s; memory of its processes {} MiB",
        lab.machines().len(),
        start.elapsed().as_secs_f32(),
        memory.processes >> 20
    );
    let id = lab.id().to_owned();
    let folder = lab.folder().to_owned();
    assert!(!left(&id, &folder).is_empty(), "the running lab is found");

    files_are_visible_inside_and_outside(&lab);
    a_machine_reboots_from_inside(&lab).await;
    a_machine_boots_after_a_power_cut(&lab).await;
    a_machine_can_be_disconnected(&lab);

    lab.down().expect("the lab stops");
    assert_eq!(left(&id, &folder), Vec::<String>::new(), "the lab is removed completely");
}

fn files_are_visible_inside_and_outside(lab: &Lab) {
    let (first, second) = (&lab.machine("m1").expect("m1"), &lab.machine("m2").expect("m2"));
    first.write("/etc/from-outside", "hello\n").expect("written");
    assert_eq!(first.ask(&["cat", "/etc/from-outside"]).expect("read"), "hello\n");
    first.ask(&["sh", "-c", "echo hello > /var/from-inside"]).expect("written");
    assert_eq!(first.read("/var/from-inside").expect("read").as_deref(), Some("hello\n"));
    assert_eq!(second.read("/etc/from-outside").expect("read"), None, "disks are not shared");
    assert_eq!(second.ask(&["hostname"]).expect("a name").trim(), second.name());
}

fn boot_id(machine: &mco_testkit::lab::Machine) -> String {
    machine.ask(&["cat", "/proc/sys/kernel/random/boot_id"]).expect("a boot id")
}

async fn a_machine_reboots_from_inside(lab: &Lab) {
    let machine = lab.machine("m1").expect("a machine");
    let before = boot_id(machine);
    machine.reboot().expect("the machine reboots");
    assert_ne!(boot_id(machine), before);
    assert_eq!(machine.read("/etc/from-outside").expect("read").as_deref(), Some("hello\n"));
    let journal = machine.ask(&["journalctl", "--list-boots", "--quiet"]).expect("a journal");
    assert_eq!(journal.lines().count(), 2, "{journal}");
    lab.wait_ready(machine).await.expect("the node is Ready again");
}

async fn a_machine_boots_after_a_power_cut(lab: &Lab) {
    let machine = lab.machine("m2").expect("a machine");
    let before = boot_id(machine);
    machine.power_cut().expect("the machine is killed");
    assert!(machine.run(&["true"]).is_err(), "a stopped machine runs nothing");
    assert!(!machine.journal(Some("kubelet"), 5).expect("a journal").is_empty());
    machine.boot().expect("the machine boots");
    assert_ne!(boot_id(machine), before);
    lab.wait_ready(machine).await.expect("the node is Ready again");
}

fn a_machine_can_be_disconnected(lab: &Lab) {
    let machine = lab.machine("m3").expect("a machine");
    let reaches_the_api = |seconds: &str| {
        // Until the kernel has found its neighbour again, an attempt fails at once.
        let connect = "until (exec 3<>/dev/tcp/10.77.0.1/443) 2>&-; do sleep 0.2; done";
        let tried = machine.run(&["timeout", seconds, "bash", "-c", connect]);
        tried.expect("bash is there").status.success()
    };
    assert!(reaches_the_api("30"));
    machine.set_network(Network::Cut).expect("cut");
    assert!(!reaches_the_api("2"));
    machine.set_network(Network::Connected).expect("connected");
    assert!(reaches_the_api("30"));
}

/// Starts a process with a lab of one machine. Returns the process and the lab's id.
fn process_with_lab() -> (Child, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    let started = command.args(["serve", "1"]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = started.expect("the process starts");
    let output = BufReader::new(child.stdout.take().expect("standard output is piped"));
    let mut lines = output.lines().map_while(Result::ok);
    let id = lines.find_map(|line| line.strip_prefix("ready ").map(str::to_owned));
    (child, id.expect("the lab starts"))
}

#[test]
fn a_lab_is_removed_after_its_process_was_killed() {
    let Some(ingredients) = ingredients() else { return };
    let labs = ingredients.labs();
    let (mut child, id) = process_with_lab();
    let folder = labs.join(&id);
    assert!(!left(&id, &folder).is_empty(), "the running lab is found");
    child.kill().expect("killed");
    child.wait().expect("dead");
    // The lab's supervisor removes it.
    let gone = wait("the lab to be gone", PATIENCE, || left(&id, &folder).is_empty().then_some(()));
    gone.unwrap_or_else(|error| panic!("{error}: {:?}", left(&id, &folder)));

    let (mut child, id) = process_with_lab();
    let folder = labs.join(&id);
    let path = format!("/proc/{0}/task/{0}/children", child.id());
    let children = fs::read_to_string(path).expect("/proc is readable");
    // The supervisor is a shell, unlike the programs of the control plane.
    let supervisor = children.split_whitespace().find(|pid| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.starts_with(b"sh\0-c\0")
    });
    let supervisor: i32 = supervisor.expect("the lab has a supervisor").parse().expect("a number");
    kill_process(Pid::from_raw(supervisor).expect("a process"), Signal::KILL).expect("killed");
    child.kill().expect("killed");
    child.wait().expect("dead");
    assert!(folder.exists(), "without a supervisor the folder stays");
    ingredients.sweep().expect("the next start removes the lab");
    assert_eq!(left(&id, &folder), Vec::<String>::new());
}

#[test]
fn a_machine_with_deployments_is_removed_when_its_test_fails() {
    let ingredients = match OstreePrerequisites::find() {
        Ok(found) => found,
        Err(missing) => {
            eprintln!("skipped: {missing}");
            return;
        }
    };
    let mut folder = None;
    let test = AssertUnwindSafe(|| {
        let program = Path::new(env!("CARGO_BIN_EXE_lab"));
        let machine = OstreeMachine::up(&ingredients, program, Tool::RpmOstree).expect("it boots");
        folder = Some(machine.folder().to_owned());
        // As a failed assertion, without its message.
        resume_unwind(Box::new(()));
    });
    assert!(catch_unwind(test).is_err());
    let folder = folder.expect("the machine was there");
    let id = folder.file_name().expect("a name").to_string_lossy().into_owned();
    let gone =
        wait("the machine to be gone", PATIENCE, || left(&id, &folder).is_empty().then_some(()));
    gone.unwrap_or_else(|error| panic!("{error}: {:?}", left(&id, &folder)));
}

/// Lists processes, cgroups, mounts and files of a lab.
fn left(id: &str, folder: &Path) -> Vec<String> {
    let mut left = Vec::new();
    let mark = format!("mco-lab-{id}");
    for entry in fs::read_dir("/proc").expect("processes").flatten() {
        let groups = fs::read_to_string(entry.path().join("cgroup")).unwrap_or_default();
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).into_owned();
        if groups.contains(&mark) || words.contains(&*folder.to_string_lossy()) {
            left.push(format!("process {}", entry.path().display()));
        }
    }
    let mut groups = vec![Path::new("/sys/fs/cgroup").to_owned()];
    while let Some(group) = groups.pop() {
        for entry in fs::read_dir(&group).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().contains(&mark) {
                left.push(format!("cgroup {}", entry.path().display()));
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                groups.push(entry.path());
            }
        }
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let ours = |line: &&str| line.contains(&*folder.to_string_lossy());
    left.extend(mounts.lines().filter(ours).map(|line| format!("mount {line}")));
    if folder.exists() {
        left.push(format!("folder {}", folder.display()));
    }
    left
}
