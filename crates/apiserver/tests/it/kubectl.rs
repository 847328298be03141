//! Runs `kubectl` against the listener. Without kubectl the tests print that they are skipped, and
//! pass.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use tempfile::TempDir;

use crate::{fixture::soon, listening::Running};

/// `kubectl` with the kubeconfig of a running listener.
#[derive(Clone)]
struct Kubectl {
    dir: PathBuf,
}

impl Kubectl {
    #[expect(clippy::disallowed_methods, reason = "these tests drive kubectl")]
    fn command(&self, args: &str) -> Command {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(self.dir.join("kubeconfig"));
        command.arg("--cache-dir").arg(self.dir.join("cache"));
        command.args(words(args)).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs kubectl to its end. Returns standard output, or standard error if it fails.
    async fn run(&self, args: &str, input: &str) -> Result<String, String> {
        let mut child = self.command(args).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_owned();
        let done = tokio::task::spawn_blocking(move || {
            let _ = stdin.write_all(input.as_bytes());
            drop(stdin);
            child.wait_with_output().unwrap()
        });
        let Output { status, stdout, stderr } = soon(args, done).await.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        if status.success() { Ok(text(stdout)) } else { Err(text(stderr)) }
    }

    async fn ok(&self, args: &str) -> String {
        self.run(args, "").await.unwrap_or_else(|error| panic!("kubectl {args}: {error}"))
    }

    async fn apply(&self, manifest: &str) -> String {
        self.run("apply -f -", manifest).await.unwrap_or_else(|error| panic!("apply: {error}"))
    }
}

/// Splits at spaces. Single quotes keep words together.
fn words(args: &str) -> Vec<String> {
    args.split('\'')
        .enumerate()
        .flat_map(|(at, part)| {
            if at % 2 == 1 {
                vec![part.to_owned()]
            } else {
                part.split_whitespace().map(str::to_owned).collect()
            }
        })
        .collect()
}

#[expect(clippy::disallowed_methods, reason = "these tests drive kubectl")]
fn installed() -> bool {
    let found = Command::new("kubectl").arg("version").arg("--client").output().is_ok();
    if !found {
        let _ = writeln!(std::io::stderr(), "skipped: kubectl is not installed");
    }
    found
}

async fn start() -> Option<(TempDir, Running, Kubectl)> {
    if !installed() {
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path()).await;
    let kubectl = Kubectl { dir: dir.path().to_owned() };
    Some((dir, running, kubectl))
}

fn crds() -> String {
    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": mco_api::crds()});
    list.to_string()
}

fn lines(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split_whitespace().collect()).collect()
}

const NODE: &str = r#"{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1",
    "labels": {"node-role.kubernetes.io/worker": ""}}}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_applied_labelled_cordoned_and_described() {
    let Some((_dir, running, kubectl)) = start().await else { return };
    assert_eq!(kubectl.apply(NODE).await, "node/n1 created\n");
    assert_eq!(kubectl.apply(NODE).await, "node/n1 unchanged\n");
    let typo = NODE.replace("\"metadata\"", "\"spec\": {\"unschedulabel\": true}, \"metadata\"");
    let refused = kubectl.run("apply -f -", &typo).await.unwrap_err();
    assert!(refused.contains("unknown field \"spec.unschedulabel\""), "{refused}");
    assert_eq!(kubectl.ok("label node n1 a=b").await, "node/n1 labeled\n");
    assert_eq!(kubectl.ok("annotate node n1 c=d").await, "node/n1 annotated\n");
    assert_eq!(kubectl.ok("cordon n1").await, "node/n1 cordoned\n");
    let shown = kubectl.ok("get nodes -l a=b").await;
    let shown = lines(&shown);
    assert_eq!(shown[0], ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]);
    assert_eq!(shown[1][..3], ["n1", "Unknown,SchedulingDisabled", "worker"]);
    assert_eq!(kubectl.ok("uncordon n1").await, "node/n1 uncordoned\n");
    let described = kubectl.ok("describe node n1").await;
    assert!(described.contains("Unschedulable:      false"), "{described}");
    let taint =
        r#"patch node n1 -p '{"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}'"#;
    kubectl.ok(taint).await;
    assert_eq!(kubectl.ok("taint node n1 k:NoSchedule-").await, "node/n1 untainted\n");
    assert_eq!(kubectl.ok("auth can-i delete nodes").await, "yes\n");
    assert!(kubectl.ok("auth whoami").await.contains("system:admin"));
    assert_eq!(kubectl.ok("delete node n1").await, "node \"n1\" deleted\n");
    let gone = kubectl.run("get node n1", "").await.unwrap_err();
    assert_eq!(gone, "Error from server (NotFound): nodes \"n1\" not found\n");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_kinds_are_installed_printed_and_validated() {
    let Some((_dir, running, kubectl)) = start().await else { return };
    kubectl.run("apply --server-side -f -", &crds()).await.unwrap();
    kubectl.ok("wait --for=condition=Established crd --all --timeout=5m").await;
    let pool = r#"{"apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfigPool", "metadata": {"name": "worker"}, "spec": {"paused": false}}"#;
    kubectl.apply(pool).await;
    let status = r#"{"status": {"machineCount": 3, "configuration": {"name": "rendered-worker-1"},
        "conditions": [{"type": "Updated", "status": "True"}]}}"#
        .replace('\n', " ");
    kubectl.ok(&format!("patch mcp worker --subresource status --type merge -p '{status}'")).await;
    let shown = kubectl.ok("get mcp").await;
    let shown = lines(&shown);
    assert_eq!(shown[0][..5], ["NAME", "CONFIG", "UPDATED", "UPDATING", "DEGRADED"]);
    assert_eq!(shown[1][..4], ["worker", "rendered-worker-1", "True", "3"]);
    kubectl.ok("wait mcp/worker --for=condition=Updated --timeout=5m").await;
    let changed = pool.replace("false", "true");
    let applied = kubectl.apply(&changed).await;
    assert_eq!(applied, "machineconfigpool.machineconfiguration.openshift.io/worker configured\n");
    let wrong = pool.replace("\"paused\"", "\"pause\"");
    let refused = kubectl.run("apply -f -", &wrong).await.unwrap_err();
    assert!(refused.contains("unknown field \"spec.pause\""), "{refused}");
    let refused = kubectl
        .run("patch mcp worker --type merge -p '{\"spec\": {\"paused\": \"x\"}}'", "")
        .await
        .unwrap_err();
    assert!(refused.contains("spec.paused in body must be of type boolean"), "{refused}");
    assert!(kubectl.ok("explain mcp.spec.paused").await.contains("<boolean>"));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_waits_for_the_budget() {
    let Some((_dir, running, kubectl)) = start().await else { return };
    kubectl.apply(NODE).await;
    let pod = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p",
        "namespace": "default", "labels": {"app": "a"}, "ownerReferences": [{"uid": "u",
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "controller": true}]},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}}"#;
    let budget = r#"{"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}}"#;
    kubectl.apply(pod).await;
    kubectl.apply(budget).await;
    let ready =
        r#"{"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}"#;
    kubectl.ok(&format!("patch pod p --subresource status --type merge -p '{ready}'")).await;
    let mut child = kubectl.command("drain n1").spawn().unwrap();
    let errors = BufReader::new(child.stderr.take().unwrap());
    let (sender, refused) = tokio::sync::oneshot::channel();
    let draining = tokio::task::spawn_blocking(move || {
        let wanted = "Cannot evict pod as it would violate the pod's disruption budget.";
        let mut lines = errors.lines().map_while(Result::ok);
        // If the line never appears, the dropped sender fails the wait below.
        let _ = lines.find(|line| line.contains(wanted)).map(|_| sender.send(()));
        // Reads the rest of the output, because kubectl blocks on a full pipe.
        lines.for_each(drop);
        child.wait_with_output().unwrap()
    });
    soon("the refusal", refused).await.expect("the budget refuses the eviction");
    kubectl.ok("delete pdb b").await;
    let Output { status, stdout, .. } = soon("the drain to end", draining).await.unwrap();
    let drained = String::from_utf8(stdout).unwrap();
    assert!(status.success() && drained.ends_with("node/n1 drained\n"), "{drained}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_watch_prints_changes() {
    let Some((_dir, running, kubectl)) = start().await else { return };
    kubectl.apply(NODE).await;
    let mut child = kubectl.command("get nodes -w").spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let (sender, mut shown) = tokio::sync::mpsc::unbounded_channel();
    let reading = tokio::task::spawn_blocking(move || {
        for line in output.lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    assert!(soon("the head", shown.recv()).await.unwrap().starts_with("NAME"));
    assert!(soon("the node", shown.recv()).await.unwrap().contains("Unknown"));
    kubectl.ok("cordon n1").await;
    let change = soon("the change", shown.recv()).await.unwrap();
    assert!(change.contains("SchedulingDisabled"), "{change}");
    running.stop().await;
    let _ = child.kill();
    let _ = child.wait();
    reading.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_apply_by_another_manager_is_a_conflict() {
    let Some((_dir, running, kubectl)) = start().await else { return };
    let map = |value: &str| {
        format!(
            r#"{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {{"name": "c",
               "namespace": "default"}}, "data": {{"k": "{value}"}}}}"#
        )
    };
    let apply = "apply --server-side -f - --field-manager";
    kubectl.run(&format!("{apply} one"), &map("1")).await.unwrap();
    let refused = kubectl.run(&format!("{apply} two"), &map("2")).await.unwrap_err();
    assert!(refused.contains("conflict with \"one\": .data.k"), "{refused}");
    let forced = format!("{apply} two --force-conflicts");
    kubectl.run(&forced, &map("2")).await.unwrap();
    assert_eq!(kubectl.ok("get cm c -o jsonpath={.data.k}").await, "2");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_created_and_scaled_by_command() {
    let Some((_dir, running, kubectl)) = start().await else { return };
    for (command, expected) in [
        ("create namespace n", "namespace/n created"),
        ("create configmap c --from-literal=k=v", "configmap/c created"),
        ("create secret generic s --from-literal=k=v", "secret/s created"),
        ("create serviceaccount a", "serviceaccount/a created"),
        ("create deployment d --image=i --replicas=2", "deployment.apps/d created"),
        ("scale deployment d --replicas=5", "deployment.apps/d scaled"),
        ("set image deployment/d i=j:2", "deployment.apps/d image updated"),
        ("run p --image=i --labels=app=p", "pod/p created"),
        (
            "create poddisruptionbudget b --selector=app=p --min-available=1",
            "poddisruptionbudget.policy/b created",
        ),
        ("label pod p x=y", "pod/p labeled"),
        ("delete pod p", "pod \"p\" deleted"),
        ("delete namespace n", "namespace \"n\" deleted"),
    ] {
        let printed = kubectl.ok(command).await;
        assert!(printed.starts_with(expected), "{command}: {printed}");
    }
    let value = kubectl.ok("get secret s -o jsonpath={.data.k}").await;
    assert_eq!(value, "dg==");
    let shown = kubectl.ok("get deployment d -o jsonpath={.spec.replicas}").await;
    assert_eq!(shown, "5");
    let image = "get deployment d -o jsonpath={.spec.template.spec.containers[0].image}";
    assert_eq!(kubectl.ok(image).await, "j:2");
    let refused = kubectl.run("create configmap c --from-literal=k=v", "").await.unwrap_err();
    assert!(refused.contains("configmaps \"c\" already exists"), "{refused}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_moves_from_client_side_to_server_side_apply() {
    let Some((_dir, running, kubectl)) = start().await else { return };
    let map = |data: &str| {
        format!(
            r#"{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {{"name": "c",
               "namespace": "default"}}, "data": {data}}}"#
        )
    };
    kubectl.apply(&map(r#"{"k": "1", "l": "1"}"#)).await;
    let managers =
        "get cm c -o jsonpath={.metadata.managedFields[*].manager} --show-managed-fields";
    assert_eq!(kubectl.ok(managers).await, "kubectl-client-side-apply");
    let apply = "apply --server-side -f -";
    kubectl.run(apply, &map(r#"{"k": "2"}"#)).await.unwrap();
    assert_eq!(kubectl.ok("get cm c -o jsonpath={.data}").await, r#"{"k":"2"}"#);
    let owners = kubectl.ok(managers).await;
    assert!(!owners.contains("kubectl-client-side-apply"), "{owners}");
    kubectl.ok("patch cm c --field-manager=other -p {\"data\":{\"k\":\"3\"}}").await;
    let refused = kubectl.run(apply, &map(r#"{"k": "2"}"#)).await.unwrap_err();
    assert!(refused.contains("conflict with \"other\" using v1: .data.k"), "{refused}");
    running.stop().await;
}
