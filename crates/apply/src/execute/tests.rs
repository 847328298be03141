//! Failed steps are named and rolled back.

use std::path::Path;

use mco_core::plan::{self, Circumstances, default_policies};
use mco_host::{Root, SimulatedSystem};
use serde_json::{Value, json};

use super::*;

/// Returns a directory in memory if there is one: the tests write much and need no durability.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn config(name: &str, ignition: &Value, rest: &Value) -> MachineConfig {
    let mut spec = rest.clone();
    spec["config"] = ignition.clone();
    let object = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": name}, "spec": spec
    });
    serde_json::from_str(&object.to_string()).unwrap()
}

fn old() -> MachineConfig {
    let ignition = json!({
        "ignition": {"version": "3.5.0"},
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["one"]}]},
        "storage": {"files": [
            {"path": "/etc/changed", "contents": {"source": "data:,1"}},
            {"path": "/etc/gone", "contents": {"source": "data:,1"}},
            {"path": "/etc/motd", "contents": {"source": "data:,ours"}},
            {"path": "/etc/same", "contents": {"source": "data:,1"}, "mode": 0o600}
        ]},
        "systemd": {"units": [
            {"name": "gone.service", "contents": "[Install]\nWantedBy=m.target", "enabled": true},
            {"name": "moved.service", "contents": "[Install]\nWantedBy=a.target", "enabled": true},
            {"name": "kubelet.service", "dropins": [{"name": "a.conf", "contents": "[Service]"}]}
        ]}
    });
    config("rendered-worker-old", &ignition, &json!({"kernelArguments": ["quiet"]}))
}

/// Returns a machine that has the old config.
fn machine(folder: &Path) -> Host<SimulatedSystem> {
    let root = Root::open(folder).unwrap();
    SimulatedSystem::write_base_files(&root).unwrap();
    for path in ["/usr/etc/motd", "/etc/motd"] {
        root.write(path, b"welcome", 0o644).unwrap();
    }
    let system = SimulatedSystem::open(&root).unwrap();
    let mut host = Host { root, system };
    crate::first_boot::provision(&mut host, &old()).unwrap();
    host.system.boot().unwrap();
    host
}

fn begin(
    host: &mut Host<SimulatedSystem>,
    from: &MachineConfig,
    to: &MachineConfig,
    plan: NodePlan,
    observer: StepObserver<'_>,
) -> Result<Outcome, ExecuteError> {
    let parsed = |config: &MachineConfig| ParsedConfig::read(config.clone());
    super::begin(host, &parsed(from)?, &parsed(to)?, plan, observer)
}

fn planned(from: &MachineConfig, to: &MachineConfig) -> NodePlan {
    let (from, to) = (parse(from).unwrap(), parse(to).unwrap());
    plan::node(&from, &to, &default_policies(), &Circumstances::default()).unwrap()
}

#[test]
fn a_failed_reload_has_the_references_text() {
    let folder = folder();
    let mut host = machine(folder.path());
    host.system.call_log().fail("reload crio.service");
    let mut to = old();
    let ignition = to.spec.config.as_ref().unwrap().get().replace(
        r#"{"contents":{"source":"data:,1"},"path":"/etc/gone"}"#,
        r#"{"contents":{"source":"data:,1"},"path":"/etc/gone"},{"path":"/etc/containers/policy.json"}"#,
    );
    to.spec.config = Some(mco_api::RawConfig::from_json(ignition).unwrap());
    let plan = planned(&old(), &to);
    assert!(!plan.reboots(), "{plan}");
    let failed = begin(&mut host, &old(), &to, plan.clone(), &mut |_| {}).unwrap_err();
    assert_eq!(
        failed.to_string(),
        "could not apply update: reloading crio.service configuration failed. \
         Error: error running systemctl reload crio.service: exit status 1"
    );
}

/// Returns a machine whose update is complete except for a service that cannot be reloaded.
fn unreloaded(folder: &Path) -> Host<SimulatedSystem> {
    let mut host = machine(folder);
    host.system.call_log().fail("reload crio.service");
    let mut to = old();
    to.metadata.name = Some("rendered-worker-new".to_owned());
    let ignition = to.spec.config.as_ref().unwrap().get().replace(
        r#"{"contents":{"source":"data:,1"},"path":"/etc/gone"}"#,
        r#"{"path":"/etc/containers/policy.json"}"#,
    );
    to.spec.config = Some(mco_api::RawConfig::from_json(ignition).unwrap());
    let mut plan = planned(&old(), &to);
    plan.steps.retain(|step| *step != Step::Reboot);
    plan.steps.push(Step::ReloadService("crio.service".to_owned()));
    begin(&mut host, &old(), &to, plan, &mut |_| {}).unwrap_err();
    host
}

const POLICY: &str = "/etc/containers/policy.json";

// covers: C54
#[test]
fn a_failed_reload_keeps_the_files_and_only_the_service_is_retried() {
    let folder = folder();
    let mut host = unreloaded(folder.path());
    let written = host.root.version(POLICY).unwrap();
    assert!(written.is_some());
    for is_fixed in [false, true] {
        if is_fixed {
            host.system.call_log().succeed("reload crio.service");
        }
        let (update, progress) = ledger::open(&host.root).unwrap().unwrap();
        assert_eq!((progress.stage, progress.done), (Stage::Applying, update.plan.steps.len() - 1));
        let mut steps = Vec::new();
        let mut observer = |step: &Step| steps.push(step.to_string());
        let done = proceed(&mut host, &update, &progress, &mut observer);
        assert_eq!(steps, ["reload crio.service"]);
        assert_eq!(done.is_ok(), is_fixed, "{done:?}");
        assert_eq!(host.root.version(POLICY).unwrap(), written, "it is not written again");
    }
    assert!(ledger::open(&host.root).unwrap().is_none());
    assert_eq!(disk::current_name(&host.root).unwrap().as_deref(), Some("rendered-worker-new"));
}

#[test]
fn an_update_whose_service_fails_can_be_withdrawn() {
    let folder = folder();
    let mut host = unreloaded(folder.path());
    assert!(!host.root.exists("/etc/gone").unwrap() && host.root.exists(POLICY).unwrap());
    let (update, progress) = ledger::open(&host.root).unwrap().unwrap();
    withdraw(&mut host, &update, &progress).unwrap();
    assert!(host.root.exists("/etc/gone").unwrap() && !host.root.exists(POLICY).unwrap());
    assert!(ledger::open(&host.root).unwrap().is_none());
    assert_eq!(disk::current_name(&host.root).unwrap().as_deref(), Some("rendered-worker-old"));
}

#[test]
fn a_machine_with_another_engine_has_no_crio_to_reload() {
    let folder = folder();
    let mut host = machine(folder.path());
    host.root.remove("/usr/lib/systemd/system/crio.service").unwrap();
    for name in ["crio", "crio.service"] {
        service::reload(&mut host.system, name, "rendered-worker-new").unwrap();
        service::restart(&mut host.system, name, "rendered-worker-new").unwrap();
    }
    // Any other missing service is an error.
    host.system.call_log().fail("reload missing.service");
    assert!(service::reload(&mut host.system, "missing.service", "rendered-worker-new").is_err());
    let calls = host.system.call_log().calls();
    assert!(!calls.iter().any(|call| call.contains("crio")), "{calls:?}");
}

/// The record has the contents of all files, secrets too.
#[test]
fn the_record_of_an_update_is_for_the_superuser_only() {
    let folder = folder();
    let mut host = machine(folder.path());
    let to = config("rendered-worker-new", &json!({"ignition": {"version": "3.5.0"}}), &json!({}));
    let done = begin(&mut host, &old(), &to, planned(&old(), &to), &mut |_| {}).unwrap();
    assert_eq!(done, Outcome::RebootDue);
    let mut pending = vec!["/var/lib/machine-config-daemon".to_owned()];
    let mut found = Vec::new();
    while let Some(path) = pending.pop() {
        let stat = host.root.stat(&path).unwrap().unwrap();
        if stat.is_directory() {
            let names = host.root.list(&path).unwrap();
            pending.extend(names.iter().map(|name| format!("{path}/{name}")));
        } else {
            assert_eq!(stat.mode & 0o077, 0, "{path}: {:o}", stat.mode);
            found.push(path);
        }
    }
    assert!(found.len() >= 3, "ledger, progress and backup: {found:?}");
}

// covers: C77
#[test]
fn the_kubelets_credentials_are_for_the_superuser_only() {
    let folder = folder();
    let mut host = machine(folder.path());
    let mut new = old();
    new.metadata.name = Some("rendered-worker-new".to_owned());
    begin(&mut host, &old(), &new, planned(&old(), &new), &mut |_| {}).unwrap();
    // Of OpenShift, kubeadm behind a link, K3s and MicroK8s.
    host.root.link("/var/lib/kubelet/own.conf", "/etc/kubernetes/kubelet.conf").unwrap();
    let paths = [
        "/etc/kubernetes/kubeconfig",
        "/var/lib/kubelet/own.conf",
        "/var/lib/rancher/k3s/agent/kubelet.kubeconfig",
        "/var/snap/microk8s/current/credentials/kubelet.config",
    ];
    host.root.create_directory("/var/snap/microk8s/7").unwrap();
    host.root.link("7", "/var/snap/microk8s/current").unwrap();
    for path in paths {
        host.root.write(path, b"secret", 0o644).unwrap();
    }
    begin(&mut host, &new, &old(), planned(&new, &old()), &mut |_| {}).unwrap();
    for path in paths {
        assert_eq!(host.root.stat(path).unwrap().unwrap().mode & 0o7777, 0o600, "{path}");
    }
    assert!(ledger::reopen(&host.root).unwrap());
    let (update, progress) = ledger::open(&host.root).unwrap().unwrap();
    roll_back(&mut host, &update, &progress).unwrap();
    for path in paths {
        assert_eq!(host.root.stat(path).unwrap().unwrap().mode & 0o7777, 0o644, "{path}");
    }
}

/// kubeadm keeps credentials where other configs have the kubelet's settings.
#[test]
fn settings_at_the_path_of_credentials_keep_their_mode() {
    let folder = folder();
    let mut host = machine(folder.path());
    let path = "/etc/kubernetes/kubelet.conf";
    let ignition = json!({
        "ignition": {"version": "3.5.0"},
        "storage": {"files": [{"path": path, "mode": 0o644, "contents": {"source": "data:,1"}}]},
    });
    let new = config("rendered-worker-new", &ignition, &json!({}));
    begin(&mut host, &old(), &new, planned(&old(), &new), &mut |_| {}).unwrap();
    assert_eq!(host.root.stat(path).unwrap().unwrap().mode & 0o7777, 0o644);
}

// covers: C90
#[test]
fn a_failed_reboot_is_an_error() {
    let folder = folder();
    let mut host = machine(folder.path());
    host.system.call_log().fail("reboot");
    let error = reboot(&mut host, "rendered-worker-new").unwrap_err();
    assert_eq!(error.to_string(), "reboot command failed, something is seriously wrong");
}

// covers: C84
#[test]
fn packages_are_provided_while_something_is_staged() {
    let folder = folder();
    let mut host = machine(folder.path());
    let rest = json!({
        "osImageURL": "image-2", "baseOSExtensionsContainerImage": "extensions-2",
        "kernelType": "realtime", "extensions": ["usbguard"], "kernelArguments": ["quiet"],
    });
    let old = old();
    let ignition: Value = serde_json::from_str(old.spec.config.as_ref().unwrap().get()).unwrap();
    let to = config("rendered-worker-new", &ignition, &rest);
    let asked = |host: &Host<SimulatedSystem>| -> Vec<String> {
        let is_about = |call: &String| call.contains("stage-") || call.contains("packages");
        host.system.call_log().calls().into_iter().filter(is_about).collect()
    };
    let begun = asked(&host).len();
    host.system.call_log().fail("stage-kernel realtime");
    begin(&mut host, &old, &to, planned(&old, &to), &mut |_| {}).unwrap_err();
    let tried = ["provide-packages extensions-2", "stage-os image-2", "stage-kernel realtime"];
    assert_eq!(asked(&host)[begun..][..3], tried);
    assert_eq!(asked(&host)[begun + 3], "withdraw-packages", "before the rollback");

    host.system.call_log().succeed("stage-kernel realtime");
    let begun = asked(&host).len();
    let done = begin(&mut host, &old, &to, planned(&old, &to), &mut |_| {}).unwrap();
    assert_eq!(done, Outcome::RebootDue);
    let all = [tried.as_slice(), &["stage-extensions -[] +[usbguard]", "withdraw-packages"]];
    assert_eq!(asked(&host)[begun..], all.concat());

    // A config without extensions needs none.
    let begun = asked(&host).len();
    let rest = json!({"osImageURL": "image-2", "baseOSExtensionsContainerImage": "extensions-2"});
    let plain = config("rendered-worker-plain", &ignition, &rest);
    begin(&mut host, &old, &plain, planned(&old, &plain), &mut |_| {}).unwrap();
    assert!(!asked(&host)[begun..].iter().any(|call| call.contains("packages")));
}

/// Returns a machine that is about to reboot into a config with other contents of a file.
fn rebooting(folder: &Path) -> Host<SimulatedSystem> {
    let mut host = machine(folder);
    let ignition = json!({
        "ignition": {"version": "3.5.0"},
        "storage": {"files": [{"path": "/etc/changed", "contents": {"source": "data:,2"}}]},
    });
    let to = config("rendered-worker-new", &ignition, &json!({"kernelArguments": ["nosmt"]}));
    let done = begin(&mut host, &old(), &to, planned(&old(), &to), &mut |_| {}).unwrap();
    assert_eq!(done, Outcome::RebootDue);
    host
}

// covers: C135
#[test]
fn a_machine_that_rebooted_in_the_middle_of_the_steps_reboots_after_them() {
    let folder = folder();
    let mut host = machine(folder.path());
    let to = config("rendered-worker-new", &json!({"ignition": {"version": "3.5.0"}}), &json!({}));
    let plan = planned(&old(), &to);
    assert!(plan.reboots());
    let (from, target) = (parse(&old()).unwrap(), parse(&to).unwrap());
    let update = ledger::begin(&host, (&old(), &from), (&to, &target), plan).unwrap();
    // The power is cut after the first step.
    let progress = Progress { done: 1, ..Progress::default() };
    host.system.boot().unwrap();
    let done = proceed(&mut host, &update, &progress, &mut |_| {}).unwrap();
    assert_eq!(done, Outcome::RebootDue);
    let resume = |host: &Host<SimulatedSystem>| {
        let (update, progress) = ledger::open(&host.root).unwrap().unwrap();
        ledger::resume(&progress, &update.boot_id, &host.system.facts().unwrap().boot_id)
    };
    assert_eq!(resume(&host), ledger::Resume::Reboot);
    host.system.boot().unwrap();
    assert_eq!(resume(&host), ledger::Resume::Verify);
}

#[test]
fn nothing_is_changed_if_the_backup_is_missing_or_damaged() {
    for (bytes, fault) in [(None, "missing"), (Some(b"other"), "damaged")] {
        let folder = folder();
        let mut host = rebooting(folder.path());
        let (update, progress) = ledger::open(&host.root).unwrap().unwrap();
        let path = ledger::pack_path(&update.pack);
        match bytes {
            None => assert!(host.root.remove(&path).unwrap()),
            Some(bytes) => host.root.write(&path, bytes, 0o600).unwrap(),
        }
        let error = roll_back(&mut host, &update, &progress).unwrap_err();
        let text =
            format!("the backup {path} is {fault}, so that the update cannot be rolled back");
        assert!(error.to_string().starts_with(&text), "{error}");
        assert_eq!(host.root.read("/etc/changed").unwrap().unwrap(), b"2", "{fault}");
        assert_eq!(host.root.read("/etc/gone").unwrap(), None, "{fault}");
        assert!(ledger::open(&host.root).unwrap().is_some(), "{fault}");
    }
}

#[test]
fn a_ledger_of_a_newer_program_is_refused_and_one_without_a_version_is_read() {
    let folder = folder();
    let host = rebooting(folder.path());
    let bytes = host.root.read(ledger::LEDGER).unwrap().unwrap();
    let mut json: Value = serde_json::from_slice(&bytes).unwrap();
    let mut open = |version: Option<u32>| {
        json.as_object_mut().unwrap().remove("version");
        if let Some(version) = version {
            json["version"] = version.into();
        }
        host.root.write(ledger::LEDGER, json.to_string().as_bytes(), 0o600).unwrap();
        ledger::open(&host.root)
    };
    assert!(open(None).unwrap().is_some());
    assert!(open(Some(1)).unwrap().is_some());
    let error = open(Some(2)).unwrap_err().to_string();
    assert!(error.contains("has version 2 of its format"), "{error}");
}

#[test]
fn an_abandoned_update_is_forgotten_and_everything_is_written_again() {
    let folder = folder();
    let mut host = rebooting(folder.path());
    host.root.write(ledger::LEDGER, b"{", 0o600).unwrap();
    let seen = crate::observe::disk_view(&mut host).unwrap();
    let why = seen.unreadable.unwrap();
    assert!(why.starts_with("failed to parse") && seen.update.is_none(), "{why}");
    assert!(ledger::abandon(&host.root).unwrap());
    let seen = crate::observe::disk_view(&mut host).unwrap();
    assert!(seen.force && seen.unreadable.is_none() && seen.update.is_none(), "{seen:?}");
    assert_eq!(host.root.read("/etc/changed").unwrap().unwrap(), b"2", "nothing else changes");
    assert!(host.root.exists(FORCE_FILE).unwrap());
    // The machine reboots before its daemon acts, which empties /run.
    host.system.boot().unwrap();
    assert!(!host.root.exists(FORCE_FILE).unwrap());
    assert!(crate::observe::disk_view(&mut host).unwrap().force, "the reboot does not matter");
    force::withdraw(&host.root).unwrap();
    assert!(!ledger::abandon(&host.root).unwrap(), "nothing is left");
    assert!(!crate::observe::disk_view(&mut host).unwrap().force);
}

#[test]
fn an_unfinished_update_that_an_older_program_recorded_in_etc_is_resumed() {
    let folder = folder();
    let mut host = rebooting(folder.path());
    crate::confirm::prepare(&host, crate::confirm::DEADLINE).unwrap();
    let before = ledger::open(&host.root).unwrap().unwrap();
    let (old, new) = ("/etc/machine-config-daemon", "/var/lib/machine-config-daemon");
    let pack = format!("mco-before/{}", before.0.pack);
    let records = ["mco-update.json", "mco-update-progress.json", "mco-confirm.json", &pack];
    for name in records {
        let bytes = host.root.read(&format!("{new}/{name}")).unwrap().unwrap();
        host.root.write(&format!("{old}/{name}"), &bytes, 0o600).unwrap();
        host.root.remove(&format!("{new}/{name}")).unwrap();
    }
    assert_eq!(ledger::open(&host.root).unwrap().unwrap(), before);
    assert!(crate::confirm::policy(&host.root).unwrap().is_some());
    for name in records {
        assert!(!host.root.exists(&format!("{old}/{name}")).unwrap(), "{name}");
    }
    roll_back(&mut host, &before.0, &before.1).unwrap();
    assert_eq!(host.root.read("/etc/changed").unwrap().unwrap(), b"1");
}

// covers: C135
#[test]
fn a_staged_deployment_that_is_lost_is_noticed_although_image_and_arguments_do_not_show_it() {
    let ignition = json!({"ignition": {"version": "3.5.0"}});
    let from = config("rendered-worker-from", &ignition, &json!({"kernelArguments": ["quiet"]}));
    let changes = [
        json!({"kernelArguments": ["quiet"], "extensions": ["usbguard"]}),
        json!({"kernelArguments": ["quiet"], "kernelType": "realtime"}),
        json!({"kernelArguments": []}),
    ];
    for rest in changes {
        let folder = folder();
        let root = Root::open(folder.path()).unwrap();
        SimulatedSystem::write_base_files(&root).unwrap();
        let system = SimulatedSystem::open(&root).unwrap();
        let mut host = Host { root, system };
        crate::first_boot::provision(&mut host, &from).unwrap();
        host.system.boot().unwrap();
        let to = config("rendered-worker-to", &ignition, &rest);
        begin(&mut host, &from, &to, planned(&from, &to), &mut |_| {}).unwrap();
        let (update, progress) = ledger::open(&host.root).unwrap().unwrap();
        assert!(progress.staged, "{rest}");
        let is_booted = |host: &mut Host<SimulatedSystem>| {
            crate::observe::disk_view(host).unwrap().update.unwrap().is_booted
        };
        // The power is cut before the staged deployment is finalized.
        host.system.restore_staged(update.staged.as_deref().unwrap()).unwrap();
        host.system.boot().unwrap();
        assert!(!is_booted(&mut host), "{rest}: the machine runs its previous system");
        apply_again(&mut host, &update, &mut |_| {}).unwrap();
        host.system.boot().unwrap();
        assert!(is_booted(&mut host), "{rest}");
    }
}

#[test]
fn a_config_that_is_rolled_back_after_an_abandoned_update_is_not_forced_again() {
    let folder = folder();
    let mut host = machine(folder.path());
    force::record_abandoned(&host.root).unwrap();
    let to = config("rendered-worker-new", &json!({"ignition": {"version": "3.5.0"}}), &json!({}));
    let (from, target) = (parse(&old()).unwrap(), parse(&to).unwrap());
    let forced = Circumstances { force: plan::Force::Yes, ..Circumstances::default() };
    let plan = plan::node(&from, &target, &default_policies(), &forced).unwrap();
    begin(&mut host, &old(), &to, plan, &mut |_| {}).unwrap();
    let seen = crate::observe::disk_view(&mut host).unwrap();
    assert!(!seen.force && !seen.abandoned, "the update writes everything");
    host.system.boot().unwrap();
    let (update, _) = ledger::open(&host.root).unwrap().unwrap();
    roll_back_booted(&mut host, &update, "ill").unwrap();
    host.system.boot().unwrap();
    let (update, progress) = ledger::open(&host.root).unwrap().unwrap();
    assert!(matches!(
        roll_back_failed(&mut host, &update, &progress),
        Err(ExecuteError::Undone(_))
    ));
    let seen = crate::observe::disk_view(&mut host).unwrap();
    assert!(seen.force, "the next config is written in full, too");
    assert!(seen.abandoned, "but nobody asks for another attempt with this one");
    assert_eq!(seen.rolled_back.unwrap().config, "rendered-worker-new");
}

// covers: C129, C135
#[test]
fn a_removed_argument_that_an_old_menu_booted_is_noticed() {
    let ignition = json!({"ignition": {"version": "3.5.0"}});
    let from = config("rendered-worker-from", &ignition, &json!({"kernelArguments": ["nosmt"]}));
    let to = config("rendered-worker-to", &ignition, &json!({}));
    for (booted, menu, want) in [
        ("ro nosmt", "linux /vmlinuz ro", false),
        ("ro", "linux /vmlinuz ro", true),
        // The machine had it before the configs, and keeps it.
        ("ro nosmt", "linux /vmlinuz ro nosmt", true),
    ] {
        let folder = folder();
        let root = Root::open(folder.path()).unwrap();
        let write = |path: &str, text: &str| root.write(path, text.as_bytes(), 0o644).unwrap();
        write("/etc/default/grub.d/init.cfg", "");
        write("/usr/sbin/update-grub", "");
        write("/proc/cmdline", "ro nosmt");
        write("/proc/sys/kernel/random/boot_id", "one");
        let system = mco_host::SystemdSystem::open(folder.path()).unwrap();
        let mut host = Host { root: root.try_clone().unwrap(), system };
        let (old, new) = (parse(&from).unwrap(), parse(&to).unwrap());
        let plan = planned(&from, &to);
        let stage = Stage::Rebooting;
        ledger::begin(&host, (&from, &old), (&to, &new), plan).unwrap();
        ledger::advance(&host.root, &Progress { stage, done: 9, ..Progress::default() }).unwrap();
        write("/boot/grub/grub.cfg", menu);
        write("/proc/cmdline", booted);
        write("/proc/sys/kernel/random/boot_id", "two");
        let seen = crate::observe::disk_view(&mut host).unwrap();
        assert_eq!(seen.update.unwrap().is_booted, want, "{booted}: {menu}");
    }
}
