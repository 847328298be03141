//! The lab itself: it comes up, its machines behave like machines, and nothing of it stays behind.

#![expect(
    clippy::disallowed_methods,
    reason = "looks at the host's processes and cgroups, and at the clock"
)]

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::Instant,
};

use mco_testkit::{
    PATIENCE,
    api::wait,
    lab::{Ingredients, Lab, Network, Plan},
};
use rustix::process::{Pid, Signal, kill_process};

/// What a lab is made from, or a line that says why this test proves nothing here.
fn ingredients() -> Option<Ingredients> {
    match Ingredients::find() {
        Ok(found) => Some(found),
        Err(missing) => {
            eprintln!("skipped: {missing}");
            None
        }
    }
}

#[tokio::test]
async fn three_machines_come_up_behave_like_machines_and_leave_nothing() {
    let Some(ingredients) = ingredients() else { return };
    let start = Instant::now();
    let plan = Plan { machines: 3, mco: None };
    let lab = Lab::up(&ingredients, &plan).await.expect("a lab");
    let memory = lab.memory();
    eprintln!(
        "lab: {} machines Ready after {:.1} s; its processes take {} MiB",
        lab.machines().len(),
        start.elapsed().as_secs_f32(),
        memory.processes >> 20
    );
    let id = lab.id().to_owned();
    let folder = lab.folder().to_owned();
    assert!(!left(&id, &folder).is_empty(), "what is looked for below is there now");

    its_files_are_seen_from_both_sides(&lab);
    it_reboots_from_inside(&lab).await;
    it_comes_back_after_a_power_cut(&lab).await;
    it_can_be_cut_off(&lab);

    lab.down().expect("an end");
    assert_eq!(left(&id, &folder), Vec::<String>::new(), "nothing of the lab is left");
}

fn its_files_are_seen_from_both_sides(lab: &Lab) {
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

async fn it_reboots_from_inside(lab: &Lab) {
    let machine = lab.machine("m1").expect("a machine");
    let before = boot_id(machine);
    machine.reboot().expect("it reboots");
    assert_ne!(boot_id(machine), before);
    assert_eq!(machine.read("/etc/from-outside").expect("read").as_deref(), Some("hello\n"));
    let journal = machine.ask(&["journalctl", "--list-boots", "--quiet"]).expect("a journal");
    assert_eq!(journal.lines().count(), 2, "{journal}");
    lab.wait_ready(machine).await.expect("Ready again");
}

async fn it_comes_back_after_a_power_cut(lab: &Lab) {
    let machine = lab.machine("m2").expect("a machine");
    let before = boot_id(machine);
    machine.power_cut().expect("no power");
    assert!(machine.run(&["true"]).is_err(), "nothing runs in it");
    assert!(!machine.journal(Some("kubelet"), 5).expect("a journal").is_empty());
    machine.boot().expect("power again");
    assert_ne!(boot_id(machine), before);
    lab.wait_ready(machine).await.expect("Ready again");
}

fn it_can_be_cut_off(lab: &Lab) {
    let machine = lab.machine("m3").expect("a machine");
    let reaches_the_api = |seconds: &str| {
        let connect = "exec 3<>/dev/tcp/10.77.0.1/443";
        let tried = machine.run(&["timeout", seconds, "bash", "-c", connect]);
        tried.expect("bash is there").status.success()
    };
    assert!(reaches_the_api("30"));
    machine.set_network(Network::Cut).expect("cut");
    assert!(!reaches_the_api("2"));
    machine.set_network(Network::Connected).expect("connected");
    assert!(reaches_the_api("30"));
}

/// A process that has a lab of one machine, and the lab's name.
fn someone_with_a_lab() -> (Child, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    let started = command.args(["serve", "1"]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = started.expect("it starts");
    let output = BufReader::new(child.stdout.take().expect("its output is ours"));
    let mut lines = output.lines().map_while(Result::ok);
    let id = lines.find_map(|line| line.strip_prefix("ready ").map(str::to_owned));
    (child, id.expect("a lab"))
}

#[test]
fn nothing_is_left_of_a_lab_whose_process_was_killed() {
    let Some(ingredients) = ingredients() else { return };
    let labs = ingredients.labs();
    let (mut child, id) = someone_with_a_lab();
    let folder = labs.join(&id);
    assert!(!left(&id, &folder).is_empty(), "what is looked for below is there now");
    child.kill().expect("killed");
    child.wait().expect("dead");
    // Its keeper does it, without anybody asking.
    let gone = wait("the lab to be gone", PATIENCE, || left(&id, &folder).is_empty().then_some(()));
    gone.unwrap_or_else(|error| panic!("{error}: {:?}", left(&id, &folder)));

    let (mut child, id) = someone_with_a_lab();
    let folder = labs.join(&id);
    let path = format!("/proc/{0}/task/{0}/children", child.id());
    let keepers = fs::read_to_string(path).expect("its children");
    // Those with the keeper's words, not the programs of the control plane.
    let keeper = keepers.split_whitespace().find(|pid| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.starts_with(b"sh\0-c\0")
    });
    let keeper: i32 = keeper.expect("a keeper").parse().expect("a number");
    kill_process(Pid::from_raw(keeper).expect("a process"), Signal::KILL).expect("killed");
    child.kill().expect("killed");
    child.wait().expect("dead");
    assert!(folder.exists(), "nobody is left to do it");
    ingredients.sweep().expect("the next start does it");
    assert_eq!(left(&id, &folder), Vec::<String>::new());
}

/// Processes, cgroups, mounts and files of a lab.
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
