//! Images and packages that a machine has or must pull, with scripts that check exact commands.

use super::*;
use crate::os::{repository, storage};

/// podman with the images in `images`, a JSON list, and with default storage.
const PODMAN: &str = r#"#!/bin/sh
cd "$STATE" || exit 9
echo "podman $*" >> calls
if [ "$(cat "fail-podman-$1" 2>/dev/null || echo 0)" -gt 0 ]; then
  echo $(($(cat "fail-podman-$1") - 1)) > "fail-podman-$1"
  echo "Error: no route" >&2
  exit 125
fi
case "$1" in
images) cat images 2>/dev/null || echo "[]" ;;
system) printf '{"store":{"graphDriverName":"overlay","graphRoot":"/var/lib/containers/storage"}}' ;;
create) echo 0123abc ;;
cp) mkdir -p "root$3/usr/share/rpm-ostree/extensions" ;;
esac
"#;

/// Any other program; `fail-NAME` makes it fail, `says-NAME` is its output.
const OTHER: &str = r#"#!/bin/sh
cd "$STATE" || exit 9
name=$(basename "$0")
echo "$name $*" >> calls
[ -e "fail-$name" ] && { echo "$name: no" >&2; exit 1; }
cat "says-$name" 2>/dev/null || true
"#;

const IMAGE: &str = "registry.example/os@sha256:2222";
const CLEAN: &str = "rpm-ostree cleanup -p";

fn machine() -> (Machine, Root) {
    let machine = Machine::new();
    machine.install("podman", PODMAN);
    for name in ["systemctl", "mokutil", "journalctl", "ostree", "chcon", "nmstatectl"] {
        machine.install(name, OTHER);
    }
    let root = machine.root();
    root.write("/usr/bin/podman", b"", 0o755).unwrap();
    (machine, root)
}

fn found(machine: &Machine, digests: &[&str]) {
    let list = serde_json::json!([{"Id": "9999", "Digest": "sha256:2222", "RepoDigests": digests}]);
    machine.put("images", &list.to_string());
}

fn look(image: &str) -> String {
    format!("podman images --format=json --filter reference={image}")
}

// covers: C86
#[test]
fn a_local_image_needs_no_registry_whatever_the_policy() {
    let (machine, root) = machine();
    found(&machine, &["registry.example/os@sha256:1111", IMAGE]);
    let rebase = format!(
        "rpm-ostree rebase --experimental ostree-unverified-image:containers-storage:{IMAGE}"
    );
    machine.stage(Backend::RpmOstree, IMAGE).unwrap();
    assert_eq!(machine.calls(), [CLEAN.to_owned(), look(IMAGE), rebase.clone()]);
    let staged = fs::read_to_string(machine.folder.path().join("staged")).unwrap();
    machine.put("booted", &staged.replace(r#""booted":false,"staged":true"#, r#""booted":true"#));
    let booted = Backend::RpmOstree.booted_image(&machine).unwrap();
    assert_eq!(booted.as_deref(), Some(IMAGE), "what is booted is the same image");

    machine.booted(&[], &[]);
    let policy = r#"{"default":[{"type":"reject"}],"transports":{"docker":{}}}"#;
    root.write("/etc/containers/policy.json", policy.as_bytes(), 0o644).unwrap();
    machine.put("calls", "");
    machine.put("fail-rebase", "1");
    let error = machine.stage(Backend::RpmOstree, IMAGE).unwrap_err().to_string();
    let start = format!("failed to update OS from local storage: {IMAGE}: error running ");
    assert!(error.starts_with(&start) && error.ends_with("no route to registry"), "{error}");
    let reload = ["systemctl daemon-reload", "systemctl try-restart rpm-ostreed"];
    let mut want = vec![CLEAN.to_owned(), look(IMAGE)];
    want.push("podman system info --format=json".to_owned());
    want.extend(reload.map(str::to_owned));
    want.push(rebase);
    want.extend(reload.map(str::to_owned));
    assert_eq!(machine.calls(), want);
    for path in [storage::DROPIN, storage::OWN_POLICY] {
        assert!(!root.exists(path).unwrap(), "the machine's policy is restored: {path}");
    }
    let own = root.read("/etc/containers/policy.json").unwrap().unwrap();
    assert_eq!(own, policy.as_bytes(), "the policy file is unchanged");
}

// covers: C86
#[test]
fn an_image_known_only_by_its_tag_comes_from_the_registry() {
    let (machine, _root) = machine();
    found(&machine, &["registry.example/os@sha256:1111"]);
    machine.stage(Backend::RpmOstree, "registry.example/os:2").unwrap();
    let rebase =
        "rpm-ostree rebase --experimental ostree-unverified-registry:registry.example/os:2";
    assert_eq!(machine.calls().last().map(String::as_str), Some(rebase));
}

// covers: C84
#[test]
fn packages_are_provided_during_the_update_only() {
    let (machine, root) = machine();
    root.write("/var/lib/kubelet/config.json", b"{}", 0o600).unwrap();
    root.write("/sys/fs/selinux/enforce", b"1", 0o644).unwrap();
    machine.put("fail-podman-pull", "1");
    let image = "registry.example/extensions:2";
    repository::provide(&root, &machine, image).unwrap();
    let pull = format!("podman pull -q --authfile /var/lib/kubelet/config.json {image}");
    let content = "/run/mco-extensions/os-extensions-content-update";
    assert_eq!(
        machine.calls(),
        [
            look(image),
            pull.clone(),
            "pause 5".to_owned(),
            pull,
            format!(
                "podman create --net=none \
                 --annotation=org.openshift.machineconfigoperator.pivot=true --name \
                 ostree-container-pivot-extensions {image}"
            ),
            format!("podman cp ostree-container-pivot-extensions:/ {content}"),
            format!("chcon -R -t var_run_t {content}"),
            "podman rm -f ostree-container-pivot-extensions".to_owned(),
        ]
    );
    let file = String::from_utf8(root.read(repository::FILE).unwrap().unwrap()).unwrap();
    assert_eq!(
        file,
        format!(
            "[coreos-extensions]\nenabled=1\nmetadata_expire=1m\n\
             baseurl={content}/usr/share/rpm-ostree/extensions/\ngpgcheck=0\n\
             skip_if_unavailable=False\n"
        )
    );
    // The daemon crashes here; the next one removes the leftovers.
    machine.put("calls", "");
    Backend::RpmOstree.prepare(&root, &machine, MachineRole::Worker).unwrap();
    assert_eq!(
        machine.calls(),
        ["podman rm -f --ignore ostree-container-pivot-extensions"],
        "and nothing else"
    );
    assert!(!root.exists(repository::FILE).unwrap() && !root.exists(content).unwrap());
}

// covers: C24, C28, C29
#[test]
fn a_machine_is_prepared_at_each_start_and_a_control_plane_syncs_each_object() {
    let (machine, root) = machine();
    root.write("/etc/os-release", b"ID=rhcos\nRHEL_VERSION=9.6\n", 0o644).unwrap();
    root.write("/usr/bin/nmstatectl", b"", 0o755).unwrap();
    let names = "nmstatectl persist-nic-names --root / --kargs-out /run/mco-nic-kargs";
    for (role, extra) in [
        (MachineRole::Worker, None),
        (
            MachineRole::ControlPlane,
            Some("ostree --repo=/sysroot/ostree/repo config set core.per-object-fsync true"),
        ),
    ] {
        machine.put("calls", "");
        Backend::RpmOstree.prepare(&root, &machine, role).unwrap();
        let want: Vec<&str> = [names].into_iter().chain(extra).collect();
        assert_eq!(machine.calls(), want, "{role:?}: the previous deployment is kept");
    }
    assert_eq!(
        root.read_link("/run/ostree/auth.json").unwrap().as_deref(),
        Some("/var/lib/kubelet/config.json")
    );
    machine.put("fail-nmstatectl", "");
    let error = Backend::RpmOstree.prepare(&root, &machine, MachineRole::Worker).unwrap_err();
    assert!(error.to_string().contains("persist-nic-names"), "the error is returned: {error}");
}

// covers: C88
#[test]
fn the_boot_loader_is_updated_first_and_a_failure_does_not_block() {
    let (machine, root) = machine();
    root.write("/etc/os-release", b"ID=rhcos\nRHEL_VERSION=9.6\n", 0o644).unwrap();
    root.create_directory("/sys/firmware/efi").unwrap();
    machine.put("says-mokutil", "SecureBoot enabled\n");
    let stage = || {
        machine.put("calls", "");
        machine.stage(Backend::RpmOstree, IMAGE).unwrap();
        machine.calls()
    };
    let rebase = format!("rpm-ostree rebase --experimental ostree-unverified-registry:{IMAGE}");
    let unit = "systemctl start bootloader-update.service";
    let (ask, look) = ("mokutil --sb-state", look(IMAGE));
    assert_eq!(stage(), [CLEAN, ask, unit, &look, &rebase]);
    machine.put("says-mokutil", "SecureBoot disabled\n");
    assert_eq!(stage(), [CLEAN, ask, &look, &rebase]);
    machine.put("says-mokutil", "SecureBoot enabled\n");
    machine.put("fail-systemctl", "");
    machine.put("fail-podman-run", "1");
    let run = format!(
        "podman run --env INVOCATION_ID=00000000000000000000000000000001 --privileged --pid=host \
         --net=host --rm -v /boot:/boot:rslave -v /dev:/dev {IMAGE} bootupctl update"
    );
    let pull = format!("podman pull -q {IMAGE}");
    assert_eq!(stage(), [CLEAN, ask, unit, &look, &pull, &run, &look, &rebase], "as a last resort");
}

// covers: C33
#[test]
fn the_journal_of_the_last_boot_is_read() {
    let (machine, _root) = machine();
    machine.put("says-journalctl", "Finalizing\nerror: opendir: no space\n");
    let fault = finalize::fault(&machine).unwrap();
    assert_eq!(fault.as_deref(), Some("error: opendir: no space"));
    let call = "journalctl -b -1 -o cat _UID=0 -u ostree-finalize-staged.service";
    assert_eq!(machine.calls(), [call]);
}
