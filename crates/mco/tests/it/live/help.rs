//! Every example of the help of every command.

#![expect(clippy::disallowed_methods, reason = "the test starts programs and reads their output")]

use mco_testkit::api::Programs;

use super::{Cluster, Live};
use crate::{Folder, config, mco, workspace};

on_both! {
    every_example_of_every_command_runs,
    kubectl_runs_the_plugin,
}

/// Parts of examples that run until they are stopped, change this machine, or need another machine. Their
/// flags are checked, and nothing is run.
const CHECKED: [&str; 19] = [
    "mco apiserver ",
    "mco daemon ",
    "mco server ",
    "mco join ",
    "mco host ",
    "mco down",
    "mco manual /usr",
    "mco operator bootstrap",
    "mco controller bootstrap",
    "mco rollout status",
    "mco node drain worker-0 --timeout",
    "mco install --dry-run=server",
    "mco install --namespace",
    " --follow",
    " https://example.com",
    " --root /",
    " -w",
    " -f ",
    "mco up",
];

/// Beginnings of examples with another exit code than 0 on the cluster of the test, which differs from its
/// config and has no controller; a line that ends with `$` is complete. The first match counts.
const OTHER_CODES: [(&str, i32); 17] = [
    // No daemon answers.
    ("mco uninstall --yes --forget", 1),
    ("mco status", 2),
    ("mco doctor", 2),
    ("mco logs", 1),
    ("mco diff worker-0 worker-1", 2),
    ("mco diff", 1),
    ("mco rollout undo worker$", 1),
    ("mco rollout undo worker --to 3", 1),
    ("mco drift worker-0 --adopt", 1),
    ("mco node approve worker-3", 1),
    ("mco node force", 1),
    ("mco pointer", 1),
    ("mco token revoke", 1),
    ("mco plan -f cluster.yaml -f change.yaml --fail-on", 3),
    ("mco cat worker-0:", 1),
    ("mco cat worker:", 1),
    ("kubectl get mc rendered-worker-… -o json | mco cat", 1),
];

/// An example that the embedded API server answers with a conflict, because it stores other defaults in the
/// definitions of kinds than those that are applied.
const CONFLICT: &str = "mco crds | kubectl apply --server-side -f -";

/// Returns the exit code of an example.
fn code(line: &str) -> i32 {
    let complete = format!("{line}$");
    OTHER_CODES.iter().find(|(start, _)| complete.starts_with(start)).map_or(0, |(_, code)| *code)
}

/// Returns the help of a command.
fn help(words: &[String]) -> String {
    let words: Vec<&str> = words.iter().map(String::as_str).chain(["--help"]).collect();
    let output = mco(&words).output().unwrap();
    assert!(output.status.success(), "{words:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the examples of a command and of all commands below it.
fn examples(words: &[String]) -> Vec<String> {
    let help = help(words);
    let section = |title: &str| {
        let (_, rest) = help.split_once(&format!("{title}:\n")).unwrap_or_default();
        rest.lines().take_while(|line| !line.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    // A line that ends with a backslash continues; two spaces separate a command from its description.
    let text = section("Examples").join("\n").replace("\\\n", " ");
    let lines = text.lines().map(|line| line.trim().split("  ").next().unwrap_or_default());
    let mut found: Vec<String> =
        lines.filter(|line| line.contains("mco ")).map(str::to_owned).collect();
    for line in section("Commands") {
        let name = line.strip_prefix("  ").filter(|rest| !rest.starts_with(' '));
        let name = name.and_then(|rest| rest.split(' ').next()).filter(|name| *name != "help");
        if let Some(name) = name {
            found.extend(examples(&[words, &[name.to_owned()]].concat()));
        }
    }
    found
}

/// A MachineConfig with every entry that the examples name.
fn custom() -> String {
    config(
        "99-worker-custom",
        "osImageURL: example.com/os@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n\
         kernelArguments: [nosmt]\n\
         config:\n  ignition: {version: 3.2.0}\n  storage:\n    files:\n    \
         - {path: /etc/chrony.conf, contents: {source: 'data:,a'}}\n    \
         - {path: /etc/motd, contents: {source: 'data:,a'}}\n    \
         - {path: /etc/crio/crio.conf.d/00-default, contents: {source: 'data:,a'}}\n    \
         - {path: /etc/kubernetes/kubelet.conf, contents: {source: 'data:,a'}}\n  systemd:\n    units:\n    \
         - {name: custom.service, enabled: true, contents: '[Service]\n\n        ExecStart=/bin/true'}\n    \
         - {name: kubelet.service, contents: '[Service]\n\n        ExecStart=/bin/true', dropins: \
         [{name: 10-env.conf, contents: '[Service]'}, {name: 10-mco-default-env.conf, contents: '[Service]'}]}",
    )
}

/// Writes the files that the examples name.
async fn write_files(live: &Live) {
    let folder: &Folder = &live.folder;
    let pools = std::fs::read(workspace().join("examples/pools.yaml")).unwrap();
    let more = folder.read("more.yaml").into_bytes();
    for name in ["manifests", "manifests-main", "manifests-branch"] {
        folder.write(&format!("{name}/pools.yaml"), &pools);
        folder.write(&format!("{name}/99-worker-custom.yaml"), custom().as_bytes());
        folder.write(&format!("{name}/base.yaml"), folder.read("base.yaml").as_bytes());
    }
    folder.write("manifests-branch/more.yaml", &more);
    for name in
        ["99-worker-new.yaml", "change.yaml", "new.yaml", "new/new.yaml", "deploy/more.yaml"]
    {
        folder.write(name, &more);
    }
    for name in ["99-worker-custom.yaml", "rendered.yaml", "rendered-worker.yaml"] {
        folder.write(name, custom().as_bytes());
    }
    folder.write("old.yaml", custom().as_bytes());
    folder.write("rendered-worker-old.yaml", custom().as_bytes());
    folder.write("rendered-worker-new.yaml", &more);
    folder.write("deploy/kustomization.yaml", b"resources: [more.yaml]\n");
    let pool = "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\n\
                metadata: {name: worker}\nspec: {paused: false}\n";
    folder.write("pool.yaml", pool.as_bytes());
    let kinds = "mc,mcp,controllerconfig,nodes,pods,pdb,machineconfiguration";
    let cluster = live.ok(&["get", kinds, "-A", "-o", "yaml"]).await;
    folder.write("cluster.yaml", cluster.as_bytes());
    let kubeconfig = std::fs::read(&live.cluster.kubeconfig).unwrap();
    folder.write("FILE", &kubeconfig);
}

async fn every_example_of_every_command_runs(live: Live) {
    write_files(&live).await;
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_mco"), live.folder.path("mco")).unwrap();
    let examples_dir = workspace().join("examples").canonicalize().unwrap();
    std::os::unix::fs::symlink(examples_dir, live.folder.path("examples")).unwrap();
    let kubectl = Programs::find().ok().map(|programs| programs.kubernetes("kubectl"));
    let kubectl = kubectl.filter(|program| program.exists());
    if let Some(program) = &kubectl {
        std::os::unix::fs::symlink(program, live.folder.path("kubectl")).unwrap();
    }
    let mut lines = examples(&[]);
    assert!(lines.len() > 120, "{}", lines.len());
    lines.dedup();
    // The last ones, because they delete the kinds.
    lines.sort_by_key(|line| line.starts_with("mco uninstall"));
    let mut faults = Vec::new();
    for line in lines.iter().filter(|line| kubectl.is_some() || !line.contains("kubectl")) {
        // `mco pointer … > worker.ign` empties it.
        live.folder.write("worker.ign", br#"{"ignition": {"version": "3.4.0"}}"#);
        if !line.starts_with("mco uninstall") {
            let restore = ["apply", "-q", "--force-conflicts", "-f", "99-worker-custom.yaml"];
            live.ok(&[&restore[..], &["-f", "motd.yaml"]].concat()).await;
        }
        let is_story_list = line.contains("--scenario list");
        let is_checked = CHECKED.iter().any(|part| match *part {
            // Only `mco logs` has this flag without a value.
            " -f " => line.starts_with("mco logs") && format!("{line} ").contains(part),
            " -w" => line.ends_with(part),
            part => line.contains(part),
        });
        let command = match is_checked && !is_story_list {
            true => format!("{line} --help"),
            // A script of a shell is printed, and not installed.
            false if line.starts_with("mco completion") => {
                line.split(" >").next().unwrap().to_owned()
            }
            false => line.replace("rendered-worker-…", &live.second),
        };
        let want = if is_checked { 0 } else { code(line) };
        let script = format!("set -o pipefail; PATH=\"$PWD:$PATH\"; {command}");
        let run = snapbox::cmd::Command::new("bash").args(["-c", &script]).env("NO_COLOR", "1");
        let run =
            run.current_dir(live.folder.path(".")).env("KUBECONFIG", &live.cluster.kubeconfig);
        let run = run.env("TOKEN", "abcdef.0123456789abcdef");
        let output = tokio::task::spawn_blocking(move || run.output().unwrap()).await.unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_conflict = line == CONFLICT && errors.contains("Apply failed with");
        let is_wanted = output.status.code() == Some(want) || is_conflict;
        if !is_wanted || errors.contains("panicked") {
            faults.push(format!("{line}\n  {:?} {errors}", output.status.code()));
        }
    }
    assert!(faults.is_empty(), "{} examples failed:\n{}", faults.len(), faults.join("\n"));
}

async fn kubectl_runs_the_plugin(live: Live) {
    let Ok(programs) = Programs::find() else { return };
    let kubectl = programs.kubernetes("kubectl");
    if !kubectl.exists() {
        return;
    }
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_mco"), live.folder.path("kubectl-mco")).unwrap();
    let run = |words: &[&str]| {
        let command = snapbox::cmd::Command::new(&kubectl).arg("mco").args(words);
        let path = std::env::join_paths([live.folder.path("."), "/usr/bin".into(), "/bin".into()]);
        let command = command.env("PATH", path.unwrap()).env("NO_COLOR", "1");
        let command = command.env("KUBECONFIG", &live.cluster.kubeconfig);
        let output = command.current_dir(live.folder.path(".")).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, text, errors) = run(&["rollout", "pause", "worker"]);
    assert!(code == Some(0) && text.ends_with("/worker paused\n"), "{text}{errors}");
    let (_, text, _) = run(&["status", "worker-0"]);
    assert!(text.contains("run `kubectl mco rollout resume worker` to continue"), "{text}");
    let (_, text, _) = run(&["rollout", "--help"]);
    assert!(text.contains("  kubectl mco rollout undo worker "), "{text}");
    let (code, _, errors) = run(&["get", "mc", "--dir", "gone"]);
    assert!(code == Some(1) && errors.contains("start one with `kubectl mco up`"), "{errors}");
}
