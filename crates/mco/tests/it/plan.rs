//! `mco plan` predicts actions, deciding rules, the order of the nodes and blocked drains.

use snapbox::str;

use crate::{Folder, config, mco};

const POOL: &str = "apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata: {name: worker}
spec:
  machineConfigSelector: {matchLabels: {machineconfiguration.openshift.io/role: worker}}
  nodeSelector: {matchLabels: {node-role.kubernetes.io/worker: ''}}
  maxUnavailable: 2
";

const EMPTY: &str = "config: {ignition: {version: 3.2.0}}";

fn file(path: &str, text: &str) -> String {
    format!(
        "config:\n  ignition: {{version: 3.2.0}}\n  storage:\n    files:\n    - {{path: {path}, \
         contents: {{source: 'data:,{text}'}}}}"
    )
}

/// Returns a worker; `words` may contain `down` and `cordoned`.
fn node(name: &str, words: &str) -> String {
    let has = |word: &str| words.split(' ').any(|found| found == word);
    let ready = if has("down") { "False" } else { "True" };
    format!(
        "---\napiVersion: v1\nkind: Node\nmetadata:\n  name: {name}\n  labels: \
         {{node-role.kubernetes.io/worker: ''}}\nspec: {{unschedulable: {}}}\nstatus: {{conditions: \
         [{{type: Ready, status: '{ready}'}}]}}\n",
        has("cordoned")
    )
}

/// Returns a directory with the current manifests in `now.yaml`, and a change that adds a file in
/// `change.yaml`.
fn folder(current: &str, path: &str, nodes: &str) -> Folder {
    let now = format!("{POOL}---\n{}", config("50-a", current));
    let change = config("50-a", &file(path, "b"));
    let files = [("now.yaml", now), ("change.yaml", change), ("nodes.yaml", nodes.to_owned())];
    Folder::new(&files.each_ref().map(|(name, text)| (*name, text.as_bytes())))
}

const CHANGE: [&str; 5] = ["plan", "-f", "now.yaml", "-f", "change.yaml"];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    CHANGE.into_iter().chain(more.iter().copied()).collect()
}

#[test]
fn the_deciding_rule_is_printed() {
    let rows = [
        ("/etc/foo", "reboot", "no policy covers it", true),
        ("/etc/containers/policy.json", "reload crio.service", "policy for /etc/containers", false),
        ("/var/lib/kubelet/config.json", "nothing", "policy for /var/lib/kubelet", false),
    ];
    for (path, action, rule, reboots) in rows {
        let folder = folder(EMPTY, path, "");
        let out = folder.mco(&with(&[])).output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        let line = text.lines().find(|line| line.contains(path)).unwrap_or_default().to_owned();
        assert!(line.contains(action) && line.contains(rule), "{text}");
        assert_eq!(text.contains("drain (reboot), reboot"), reboots, "{text}");
    }
}

#[test]
fn fail_on_selects_the_exit_code() {
    let rows: [(&str, &[&str], i32); 8] = [
        ("/etc/foo", &[], 0),
        ("/etc/foo", &["--fail-on", "reboot"], 3),
        ("/etc/foo", &["--fail-on", "drain"], 3),
        ("/etc/foo", &["--fail-on", "service"], 0),
        ("/etc/containers/policy.json", &["--fail-on", "reboot"], 0),
        ("/etc/containers/policy.json", &["--fail-on", "service"], 3),
        ("/etc/containers/policy.json", &["--fail-on", "change"], 3),
        ("/run/machine-config-daemon-force", &[], 4),
    ];
    for (path, more, code) in rows {
        let out = folder(EMPTY, path, "").mco(&with(more)).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert_eq!(out.status.code(), Some(code), "{path} {more:?}\n{text}");
    }
}

#[test]
fn a_change_without_effect_passes_fail_on() {
    let same = folder(&file("/etc/foo", "%62"), "/etc/foo", "");
    let out = same.mco(&with(&["--fail-on", "reboot"])).output().unwrap();
    assert_eq!(out.status.code(), Some(0), "equal contents in another encoding cause no reboot");
    let folder = folder(&file("/etc/foo", "b"), "/etc/foo", "");
    let out = folder.mco(&with(&["--fail-on", "change"])).output().unwrap();
    assert_eq!(out.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&out.stdout).starts_with("pool worker: no change, "));
}

#[test]
fn waves_follow_max_unavailable_and_skip_cordoned_nodes() {
    let nodes: String = [("a", ""), ("b", ""), ("c", ""), ("d", "cordoned")]
        .map(|(name, words)| node(name, words))
        .concat();
    let folder = folder(EMPTY, "/etc/foo", &nodes);
    let args = with(&["--nodes", "nodes.yaml", "--time", "reboot=10m", "-o", "json"]);
    let out = folder.mco(&args).output().unwrap();
    let value: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let pool = &value["pools"][0];
    assert_eq!(
        pool["waves"],
        serde_json::json!([["a"], ["b"], ["c"]]),
        "d occupies one of two slots"
    );
    assert_eq!(pool["nodes"][3]["waits"], "cordoned by the user");
    assert_eq!(pool["nodes"][0]["wave"], 1);
    assert_eq!(pool["seconds"], 3 * (120 + 5 + 600));
    assert_eq!(pool["size"]["limit"], 1_572_864);
    assert!(pool["steps"].as_array().unwrap().iter().any(|step| step == "write /etc/foo"));
}

#[test]
fn the_node_disruption_policy_is_applied() {
    let folder = folder(EMPTY, "/etc/foo/bar", "");
    folder.write(
        "policy.yaml",
        b"apiVersion: operator.openshift.io/v1
kind: MachineConfiguration
metadata: {name: cluster}
spec:
  nodeDisruptionPolicy:
    files:
    - path: /etc/foo
      actions: [{type: Restart, restart: {serviceName: foo.service}}]
",
    );
    folder
        .mco(&with(&["--policy", "policy.yaml", "--fail-on", "reboot"]))
        .assert()
        .success()
        .stdout_eq(str![[r#"
pool worker: rendered-worker-[..] -> rendered-worker-[..]
  CHANGE                    ACTION                REASON
  file /etc/foo/bar added   restart foo.service   policy for /etc/foo
  each node: no drain (no action asks for it), restart foo.service, about 10s
  size: [..] of 1572864 bytes, 0.0 %

"#]]);
}

#[test]
fn a_blocked_drain_is_predicted() {
    let args = [
        "plan",
        "-f",
        "examples",
        "--without",
        "50-worker-kernel-arguments",
        "--pool",
        "worker",
        "--nodes",
        "examples/fleet/nodes.yaml",
        "--pods",
        "examples/fleet/pods.yaml",
        "--fail-on",
        "blocked",
    ];
    let out = mco(&args).output().unwrap();
    assert_eq!(out.status.code(), Some(3));
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(
        text.contains(
            "blocked: worker-1: pod shop/db-0: PodDisruptionBudget shop/db requires 1 of 1 pods"
        ),
        "{text}"
    );
}

#[test]
fn every_step_is_listed_with_steps() {
    let folder = folder(EMPTY, "/etc/foo", "");
    let out = folder.mco(&with(&["--steps"])).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(text.contains("    1. write /etc/foo\n"), "{text}");
    assert!(text.contains("reboot\n"), "{text}");
}

#[test]
fn a_missing_change_is_an_error() {
    let folder = folder(EMPTY, "/etc/foo", "");
    // One file is a change of a cluster.
    let alone = folder.mco(&["plan", "-f", "now.yaml"]).env("HOME", folder.path("."));
    let alone = alone.env_remove("KUBECONFIG").env_remove("KUBERNETES_SERVICE_HOST");
    alone.assert().code(1).stderr_eq(str![[r#"
error: no cluster in .mco
hint: start one with `mco up`, or name another with --kubeconfig FILE or --dir DIR

"#]]);
    folder.mco(&["plan", "-f", "now.yaml", "--without", "99-nope"]).assert().code(1).stderr_eq(
        str![[r#"
error: unknown MachineConfig "99-nope" in --without
hint: name a MachineConfig of the first -f

"#]],
    );
    folder.mco(&with(&["--time", "reboot=soon"])).assert().code(2);
}
