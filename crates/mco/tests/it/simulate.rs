//! `mco simulate` rolls out a change in virtual time.

use snapbox::str;

use crate::{Folder, config, mco};

const FILE: &str = "config: {ignition: {version: 3.2.0}, storage: {files: \
                    [{path: /etc/a, mode: 0644, contents: {source: 'data:,TEXT'}}]}}";

/// Returns a dump with two workers, a pod on the first worker, and a PodDisruptionBudget.
fn folder(min_available: u8) -> Folder {
    let node = |name: &str| {
        format!(
            "---\napiVersion: v1\nkind: Node\nmetadata:\n  name: {name}\n  labels: \
             {{node-role.kubernetes.io/worker: ''}}\nstatus: {{conditions: [{{type: Ready, status: \
             'True'}}]}}\n"
        )
    };
    let pod = "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: web\n  namespace: shop\n  labels: \
               {app: web}\n  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web, \
               uid: '1', controller: true}]\nspec: {nodeName: worker-a, containers: []}\n";
    let budget = format!(
        "---\napiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {{name: web, namespace: \
         shop}}\nspec: {{minAvailable: {min_available}, selector: {{matchLabels: {{app: web}}}}}}\n"
    );
    let dump = [
        config("50-a", &FILE.replace("TEXT", "one")),
        node("worker-a"),
        node("worker-b"),
        pod.to_owned(),
        budget,
    ]
    .concat();
    let change = config("50-a", &FILE.replace("TEXT", "two"));
    Folder::new(&[("dump.yaml", dump.as_bytes()), ("change.yaml", change.as_bytes())])
}

#[test]
fn the_timeline_and_the_result_are_printed() {
    let folder = folder(0);
    let simulate = &["simulate", "-f", "dump.yaml", "--change", "change.yaml"];
    folder.mco(simulate).assert().success().stdout_eq(str![[r#"
00:00:01  worker    target set to rendered-worker-[..]
00:00:01  worker-a  targeted to rendered-worker-[..]
00:00:01  worker-a  cordoned
00:00:31  worker-a  drained
00:00:51  worker-a  rebooting
00:04:51  worker-a  booted rendered-worker-[..]
00:04:52  worker-a  uncordoned
00:04:52  worker-a  updated to rendered-worker-[..]
00:04:52  worker-b  targeted to rendered-worker-[..]
...
pool worker: 2 of 2 nodes run rendered-worker-[..]; at most 1 unavailable at a time, maxUnavailable 1
2 reboots, 00:0[..] in total

"#]]);
}

#[test]
fn a_budget_that_blocks_a_drain_is_named() {
    let folder = folder(1);
    let simulate = &["simulate", "-f", "dump.yaml", "--change", "change.yaml"];
    folder.mco(simulate).assert().code(1).stdout_eq(str![[r#"
...
pool worker: 0 of 2 nodes run rendered-worker-[..]; at most 1 unavailable at a time, maxUnavailable 1
  worker-a: drain blocked: PodDisruptionBudget shop/web protects pod shop/web
  worker-b: waits: no free slot: maxUnavailable nodes are unavailable or updating
0 reboots, 48:20:00 in total

"#]]);
}

#[test]
fn a_generated_fleet_completes_despite_faults() {
    let folder = folder(0);
    let args = [
        "simulate",
        "-f",
        "dump.yaml",
        "--change",
        "change.yaml",
        "--nodes",
        "40",
        "--faults",
        "all=10%",
        "--seed",
        "3",
        "-o",
        "json",
    ];
    let first = folder.mco(&args).output().unwrap();
    let value: serde_json::Value = serde_json::from_slice(&first.stdout).unwrap();
    assert_eq!(value["complete"], true, "{value:#}");
    assert_eq!(value["pools"][0]["updated"], 40);
    assert_eq!(value["pools"][0]["mostOut"], 1);
    assert!(value["timeline"].as_array().unwrap().len() > 200);
    assert_eq!(
        folder.mco(&args).output().unwrap().stdout,
        first.stdout,
        "runs with the same seed are equal"
    );
}

#[test]
fn an_unknown_fault_lists_the_known_ones() {
    let folder = folder(0);
    let simulate = ["simulate", "-f", "dump.yaml", "--change", "change.yaml", "--faults", "x"];
    folder.mco(&simulate).assert().code(1).stderr_eq(str![[r#"
error: --faults: unknown fault "x"; the faults are controller-restart, leader-change, stale-cache, conflict, daemon-crash, slow-apply, failed-apply, lost-machine, late-ready, old-boot, blip, and all
hint: run `mco simulate --help` for the list of faults

"#]]);
}

#[test]
fn a_dump_without_nodes_is_an_error() {
    let examples = ["simulate", "-f", "examples/", "--change", "examples/99-worker-custom.yaml"];
    mco(&examples).assert().code(1).stderr_eq(str![[r#"
...
error: the input contains no Node
hint: pipe `kubectl get mc,mcp,nodes,pods,pdb -A -o yaml` into -f -, or add --nodes N

"#]]);
}
