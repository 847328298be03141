//! rpm-ostree and bootc, played by scripts that keep state in a directory as the real ones do.

use std::{fs, io::Write as _, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use super::*;

mod deployments;
mod images;

/// A machine whose tools are scripts.
struct Machine {
    folder: tempfile::TempDir,
}

/// Records every call; `booted` and `staged` are files with one deployment each, `kargs` the
/// arguments. `fail-VERB` has that many calls of the verb fail.
const RPM_OSTREE: &str = r#"#!/bin/sh
cd "$STATE" || exit 9
echo "rpm-ostree $*" >> calls
if [ "$(cat "fail-$1" 2>/dev/null || echo 0)" -gt 0 ]; then
  echo $(($(cat "fail-$1") - 1)) > "fail-$1"
  echo "error: no route to registry" >&2
  exit 1
fi
stage() { [ -e staged ] || sed 's/"booted":true/"booted":false,"staged":true/' booted > staged; }
case "$1" in
--version) printf "rpm-ostree:\n Version: '2024.4'\n Features:\n  - rust\n"; [ -e old ] || echo "  - container" ;;
status)
  printf '{"deployments":['
  [ -e staged ] && { cat staged; printf ,; }
  cat booted; printf ']}' ;;
cleanup) rm -f staged ;;
rebase) stage; sed -i "s|\"container-image-reference\":\"[^\"]*\"|\"container-image-reference\":\"$3\"|" staged ;;
kargs)
  [ $# -eq 1 ] && { cat kargs; exit 0; }
  shift; stage; line=$(cat kargs)
  for word in "$@"; do
    case "$word" in
    --delete-if-present=*) line=$(echo " $line " | sed "s| ${word#*=} | |g") ;;
    --append=*) line="$line ${word#*=}" ;;
    esac
  done
  echo $line > kargs ;;
update|override)
  stage; words=""
  while [ $# -gt 0 ]; do
    case "$1" in
    --install) [ -e swallow ] || words="$words\"$2\","; shift ;;
    esac
    shift
  done
  [ -e lose ] && rm -f staged || sed -i "s|\"packages\":\[|\"packages\":[$words|; s|,\]|]|g" staged ;;
esac
"#;

const BOOTC: &str = r#"#!/bin/sh
cd "$STATE" || exit 9
echo "bootc $*" >> calls
case "$1" in
status) printf '{"apiVersion":"org.containers.bootc/v1","status":{"booted":{"image":{"image":{"image":"%s","transport":"registry"}}}}}' "$(cat image)" ;;
switch) [ -e fail ] && { echo "error: unauthorized" >&2; exit 1; }; echo "$2" > staged ;;
esac
"#;

impl Machine {
    fn new() -> Self {
        let machine = Self { folder: tempfile::tempdir().unwrap() };
        machine.install("rpm-ostree", RPM_OSTREE);
        machine.install("bootc", BOOTC);
        machine.booted(&[], &[]);
        machine.put("kargs", "root=/dev/x rw quiet\n");
        machine.put("image", "registry.example/os:1");
        machine
    }

    fn install(&self, name: &str, script: &str) {
        self.put(name, script);
        let path = self.folder.path().join(name);
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Returns the machine's own files.
    fn root(&self) -> Root {
        let path = self.folder.path().join("root");
        fs::create_dir_all(&path).unwrap();
        Root::open(&path).unwrap()
    }

    fn stage(&self, os: Backend, image: &str) -> Result<(), SystemError> {
        os.stage_os(&self.root(), self, image)
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), text).unwrap();
    }

    fn booted(&self, packages: &[&str], removed: &[&str]) {
        // As rpm-ostree prints them: name with version, name, epoch, version, release, architecture.
        let with_versions = |name: &&str| {
            serde_json::json!([format!("{name}-5-1.x86_64"), name, 0, "5", "1", "x86_64"])
        };
        let removals: Vec<_> = removed.iter().map(with_versions).collect();
        let deployment = serde_json::json!({
            "booted": true, "id": "os-c1.0", "checksum": "c1",
            "container-image-reference": "ostree-unverified-registry:registry.example/os:1",
            "requested-packages": packages, "packages": packages,
            "requested-base-removals": removed, "base-removals": removals,
        });
        self.put("booted", &deployment.to_string());
    }

    /// Returns the calls, without queries.
    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.path().join("calls")).unwrap_or_default();
        let is_question = |line: &str| {
            line.contains(" status ")
                || ["rpm-ostree kargs", "rpm-ostree --version"].contains(&line)
        };
        let is_change = |line: &&str| !is_question(line);
        text.lines().filter(is_change).map(str::to_owned).collect()
    }
}

impl CommandRunner for Machine {
    fn run(&self, command: &[&str]) -> Result<String, SystemError> {
        let (program, arguments) = command.split_first().unwrap();
        let name = Path::new(program).file_name().unwrap();
        let output = Command::new(self.folder.path().join(name))
            .args(arguments)
            .env("STATE", self.folder.path())
            .output()
            .unwrap();
        if output.status.success() {
            return Ok(String::from_utf8(output.stdout).unwrap());
        }
        let fault = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(SystemError::Command { command: command.join(" "), fault })
    }

    fn pause(&self, time: Duration) {
        let calls = fs::OpenOptions::new().append(true).open(self.folder.path().join("calls"));
        writeln!(calls.unwrap(), "pause {}", time.as_secs()).unwrap();
    }
}

fn list(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

// covers: C85, C87
#[test]
fn an_image_is_staged_with_retries_and_one_that_is_booted_is_not_pulled() {
    let os = Backend::RpmOstree;
    let machine = Machine::new();
    assert_eq!(os.booted_image(&machine).unwrap().as_deref(), Some("registry.example/os:1"));
    machine.stage(os, "registry.example/os:1").unwrap();
    assert_eq!(machine.calls(), ["rpm-ostree cleanup -p"]);
    machine.put("fail-rebase", "2");
    machine.stage(os, "registry.example/os:2").unwrap();
    let rebase =
        "rpm-ostree rebase --experimental ostree-unverified-registry:registry.example/os:2";
    let tried = ["rpm-ostree cleanup -p", rebase, "pause 5", rebase, "pause 10", rebase];
    assert_eq!(machine.calls()[1..], tried);
    machine.put("fail-rebase", "9");
    let error = machine.stage(os, "registry.example/os:3").unwrap_err().to_string();
    assert!(error.starts_with("failed to update OS to registry.example/os:3 after retries: "));
    assert!(
        error.ends_with("no route to registry: timed out waiting for the condition"),
        "{error}"
    );
}

// covers: C21
#[test]
fn a_machine_without_image_support_is_refused_with_a_hint() {
    let machine = Machine::new();
    machine.put("old", "");
    let error = machine.stage(Backend::RpmOstree, "registry.example/os:2").unwrap_err();
    assert_eq!(
        error.to_string(),
        "rpm-ostree of this machine is too old for container images (it lacks the feature \
         container); reinstall the machine from a newer boot image"
    );
    assert_eq!(machine.calls(), ["rpm-ostree cleanup -p"], "nothing is tried");
    machine.stage(Backend::RpmOstree, "registry.example/os:1").unwrap();
}

// covers: C78
#[test]
fn kernel_arguments_go_in_one_call_and_not_twice() {
    let machine = Machine::new();
    let stage = |remove: &[&str], add: &[&str]| {
        Backend::RpmOstree.stage_kernel_arguments(&machine, &list(remove), &list(add)).unwrap();
    };
    for _ in 0..2 {
        stage(&["quiet"], &["nosmt a=1", "nosmt"]);
    }
    let call =
        "rpm-ostree kargs --delete-if-present=quiet --append=nosmt --append=a=1 --append=nosmt";
    assert_eq!(machine.calls(), [call]);
    stage(&["nosmt a=1", "nosmt"], &[]);
    assert_eq!(
        fs::read_to_string(machine.folder.path().join("kargs")).unwrap(),
        "root=/dev/x rw\n"
    );
}

// covers: C80, C81
#[test]
fn a_kernel_replaces_the_default_one_and_is_replaced_by_it() {
    let machine = Machine::new();
    Backend::RpmOstree.stage_kernel(&machine, "realtime").unwrap();
    let remove = "rpm-ostree override remove kernel kernel-core kernel-modules kernel-modules-core \
                  kernel-modules-extra --install kernel-rt-core --install kernel-rt-modules \
                  --install kernel-rt-modules-extra";
    assert_eq!(machine.calls(), [remove]);
    // As after a reboot.
    fs::remove_file(machine.folder.path().join("staged")).unwrap();
    machine.booted(&["kernel-rt-core", "usbguard"], &["kernel", "kernel-core"]);
    Backend::RpmOstree.stage_kernel(&machine, "default").unwrap();
    let reset = "rpm-ostree override reset kernel kernel-core --uninstall kernel-rt-core";
    assert_eq!(machine.calls()[1..], [reset]);
    // A kernel that is booted is not staged once more.
    fs::remove_file(machine.folder.path().join("staged")).unwrap();
    let realtime = ["kernel-rt-core", "kernel-rt-modules", "kernel-rt-modules-extra"];
    machine.booted(&realtime, &["kernel", "kernel-core"]);
    Backend::RpmOstree.stage_kernel(&machine, "realtime").unwrap();
    assert_eq!(machine.calls().len(), 2);
    if std::env::consts::ARCH != "aarch64" {
        let error = Backend::RpmOstree.stage_kernel(&machine, "64k-pages").unwrap_err();
        assert_eq!(error.to_string(), "64k-pages is only supported for aarch64 architecture");
    }
}

// covers: C82, C83
#[test]
fn extensions_come_and_go_and_other_layered_packages_stay() {
    let machine = Machine::new();
    machine.booted(&["sysstat", "vim"], &[]);
    let stage = |names: &[&str]| Backend::RpmOstree.stage_extensions(&machine, &list(names));
    stage(&["usbguard", "kerberos"]).unwrap();
    let update = "rpm-ostree update --install usbguard --install krb5-workstation \
                  --install libkadm5 --uninstall sysstat";
    assert_eq!(machine.calls(), [update]);
    let refused = |error: SystemError| error.to_string();
    let unknown = stage(&["usbguard", "nope"]).map_err(refused).unwrap_err();
    assert_eq!(unknown, "invalid extensions found: [nope]");

    let machine = Machine::new();
    let stage = |names: &[&str]| Backend::RpmOstree.stage_extensions(&machine, &list(names));
    machine.put("swallow", "");
    let missing = stage(&["kerberos"]).map_err(refused).unwrap_err();
    let text = "the following extension packages are missing from the staged deployment: \
                [krb5-workstation libkadm5]";
    assert_eq!(missing, text);
    machine.put("lose", "");
    let lost = stage(&["kerberos"]).map_err(refused).unwrap_err();
    assert_eq!(lost, "no staged deployment found after applying extensions");
}

#[test]
fn bootc_switches_images_and_refuses_other_changes() {
    let machine = Machine::new();
    let os = Backend::Bootc;
    machine.stage(os, "registry.example/os:1").unwrap();
    assert!(machine.calls().is_empty(), "it is booted already");
    machine.stage(os, "registry.example/os:2").unwrap();
    assert_eq!(machine.calls(), ["bootc switch registry.example/os:2"]);
    machine.put("fail", "");
    let error = machine.stage(os, "registry.example/os:3").unwrap_err();
    assert!(error.to_string().ends_with("error: unauthorized"), "{error}");
    let error = os.stage_kernel_arguments(&machine, &[], &list(&["nosmt"])).unwrap_err();
    assert!(error.to_string().contains("build them into the image"), "{error}");
}

// covers: C129
#[test]
fn a_package_based_system_is_detected_and_refuses_images() {
    let machine = Machine::new();
    let error = Backend::None
        .stage_kernel_arguments(&machine, &list(&["quiet"]), &list(&["nosmt"]))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "this machine cannot change kernel arguments (remove quiet, add nosmt): it has neither \
         rpm-ostree nor bootc"
    );
    let folder = tempfile::tempdir().unwrap();
    let root = Root::open(folder.path()).unwrap();
    let detect = || Backend::detect(&root).unwrap();
    root.write("/usr/bin/bootc", b"", 0o755).unwrap();
    assert_eq!(detect(), Backend::None, "the tool alone is not enough");
    root.write("/run/ostree-booted", b"", 0o644).unwrap();
    assert_eq!(detect(), Backend::Bootc);
    root.write("/usr/bin/rpm-ostree", b"", 0o755).unwrap();
    assert_eq!(detect(), Backend::RpmOstree);
}
