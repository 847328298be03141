//! The tables of `kubectl get`, on both API servers.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::Stdio,
};

use mco_cluster::client;
use mco_testkit::{
    PATIENCE,
    api::{ApiServer, Embedded, KubeApiServer, Programs, command, wait},
    objects,
};
use serde_json::{Value, json};

const GROUP: &str = "machineconfiguration.openshift.io";

/// Returns kubectl; prints a line and returns `None` if it is not installed.
fn kubectl() -> Option<PathBuf> {
    match Programs::find() {
        Ok(programs) => Some(programs.kubernetes("kubectl")),
        Err(absent) => {
            let _ = writeln!(std::io::stderr(), "skipped: {absent}");
            None
        }
    }
}

/// A cluster with the kinds.
struct Cluster<'a> {
    api: &'a dyn ApiServer,
    kubectl: &'a Path,
}

impl Cluster<'_> {
    fn ask(&self, words: &[&str], input: &str) -> Result<String, String> {
        let mut run = command(self.kubectl);
        run.arg("--kubeconfig").arg(self.api.kubeconfig()).args(words);
        run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = run.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    /// Creates an object and its status. A new kind is served with a delay.
    fn create(&self, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let kind = object["kind"].as_str().unwrap();
        let text = object.to_string();
        let mut refusal = String::new();
        let created = wait("the kind to be served", PATIENCE, || {
            self.ask(&["apply", "-f", "-"], &text).map_err(|error| refusal = error).ok()
        });
        assert!(created.is_ok(), "{kind} {name}: {refusal}");
        if let Some(status) = object.get("status") {
            let patch = json!({"status": status}).to_string();
            let words = ["patch", kind, name, "--subresource=status", "--type=merge", "-p", &patch];
            self.ask(&words, "").unwrap();
        }
    }

    /// Returns the table of kinds, without the values of the column AGE, which is the last one, and
    /// without spaces at the ends of lines.
    fn table(&self, kinds: &str) -> String {
        let table = self.ask(&["get", kinds], "").unwrap();
        let lines = table.lines().map(|line| match line.rsplit_once("   ") {
            Some((row, age)) if age.ends_with('s') && !age.contains(' ') => row.trim_end(),
            _ => line.trim_end(),
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn conditions(states: &[(&str, &str)]) -> Value {
    let time = "2026-01-01T00:00:00Z";
    let condition = |(kind, status): &(&str, &str)| {
        json!({"type": kind, "status": status, "reason": "Test", "message": "",
            "lastTransitionTime": time})
    };
    states.iter().map(condition).collect()
}

fn machine_config(name: &str, build: Option<&str>, version: &str) -> Value {
    let mut config =
        object("MachineConfig", name, &json!({"config": {"ignition": {"version": version}}}));
    if let Some(build) = build {
        let key = format!("{GROUP}/generated-by-controller-version");
        config["metadata"]["annotations"] = json!({key: build});
    }
    config
}

fn pool(name: &str, config: &str, states: [&str; 3], counts: [i32; 4]) -> Value {
    let states = [("Updated", states[0]), ("Updating", states[1]), ("Degraded", states[2])];
    let mut pool = object("MachineConfigPool", name, &json!({"machineConfigSelector": {}}));
    pool["status"] = json!({
        "configuration": {"name": config}, "conditions": conditions(&states),
        "machineCount": counts[0], "readyMachineCount": counts[1],
        "updatedMachineCount": counts[2], "degradedMachineCount": counts[3],
    });
    pool
}

fn node(name: &str) -> Value {
    let spec = json!({"node": {"name": name}, "pool": {"name": "worker"},
        "configVersion": {"desired": "rendered-worker-2"}});
    let mut node = object("MachineConfigNode", name, &spec);
    node["status"] = json!({"configVersion": {"current": "rendered-worker-1",
        "desired": "rendered-worker-2"}, "conditions": conditions(&[("Updated", "False")])});
    node
}

/// The tables have the columns, and the bytes, of the documents about the reference.
async fn tables_are_those_of_the_reference(api: &dyn ApiServer, kubectl: &Path) {
    let cluster = Cluster { api, kubectl };
    let kinds: Vec<Value> = mco_api::crds().iter().map(|kind| json!(kind)).collect();
    let kinds = json!({"apiVersion": "v1", "kind": "List", "items": kinds});
    cluster.ask(&["apply", "--server-side", "-f", "-"], &kinds.to_string()).unwrap();

    let build = Some("a537783ea4a0cd3b4fe2a02626ab27887307ea51");
    cluster.create(&machine_config("00-master", build, "3.2.0"));
    cluster.create(&machine_config("99-worker-ssh", None, "3.2.0"));
    let rendered = "rendered-worker-53656729c24a74935907c4fba2adc90a";
    cluster.create(&machine_config(rendered, build, "3.2.0"));
    assert_eq!(
        cluster.table("mc"),
        "\
NAME                                               GENERATEDBYCONTROLLER                      IGNITIONVERSION   AGE
00-master                                          a537783ea4a0cd3b4fe2a02626ab27887307ea51   3.2.0
99-worker-ssh                                                                                 3.2.0
rendered-worker-53656729c24a74935907c4fba2adc90a   a537783ea4a0cd3b4fe2a02626ab27887307ea51   3.2.0"
    );

    let master = "rendered-master-27bede19f36ea39ad1cbbed327b73cf1";
    cluster.create(&pool("master", master, ["True", "False", "False"], [3, 3, 3, 0]));
    let worker = "rendered-worker-794f2fc90cae4c5192cbb909b181a419";
    cluster.create(&pool("worker", worker, ["False", "True", "True"], [11, 0, 0, 11]));
    assert_eq!(
        cluster.table("mcp"),
        "\
NAME     CONFIG                                             UPDATED   UPDATING   DEGRADED   MACHINECOUNT   READYMACHINECOUNT   UPDATEDMACHINECOUNT   DEGRADEDMACHINECOUNT   AGE
master   rendered-master-27bede19f36ea39ad1cbbed327b73cf1   True      False      False      3              3                   3                     0
worker   rendered-worker-794f2fc90cae4c5192cbb909b181a419   False     True       True       11             0                   0                     11"
    );

    cluster.create(&node("w-0"));
    assert_eq!(
        cluster.table("machineconfignodes"),
        "\
NAME   POOLNAME   DESIREDCONFIG       CURRENTCONFIG       UPDATED   AGE
w-0    worker     rendered-worker-2   rendered-worker-1   False"
    );

    cluster.create(&object("KubeletConfig", "a", &json!({})));
    let spec = json!({"containerRuntimeConfig": {}});
    cluster.create(&object("ContainerRuntimeConfig", "a", &spec));
    for kinds in ["kubeletconfigs", "containerruntimeconfigs", "ctrcfg"] {
        assert_eq!(cluster.table(kinds), "NAME   AGE\na", "{kinds}");
    }
    let client = client::connect(Some(api.kubeconfig())).await.unwrap();
    objects::create_controller_config(&client, "v1").await.unwrap();
    let table = cluster.table("controllerconfigs");
    assert_eq!(table, "NAME                        AGE\nmachine-config-controller");

    let states = [("Available", "True"), ("Progressing", "False"), ("Degraded", "False")];
    cluster.create(&json!({
        "apiVersion": "config.openshift.io/v1", "kind": "ClusterOperator",
        "metadata": {"name": "machine-config"}, "spec": {},
        "status": {"conditions": conditions(&states),
            "versions": [{"name": "operator", "version": "4.14.0"}]},
    }));
    let table = cluster.ask(&["get", "co", "machine-config"], "").unwrap();
    let (header, row) = table.split_once('\n').unwrap();
    assert!(
        header.starts_with("NAME             VERSION   AVAILABLE   PROGRESSING   DEGRADED   SINCE")
            && header.trim_end().ends_with("MESSAGE"),
        "{header}"
    );
    let expected = "machine-config   4.14.0    True        False         False      ";
    assert!(row.starts_with(expected), "{row}");
}

// covers: CRD C02
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_are_those_of_the_reference_on_the_embedded_api_server() {
    let Some(kubectl) = kubectl() else { return };
    let folder = tempfile::tempdir().unwrap();
    let api = Embedded::start(Path::new(env!("CARGO_BIN_EXE_mco")), folder.path()).unwrap();
    tables_are_those_of_the_reference(&api, &kubectl).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_are_those_of_the_reference_on_a_real_kube_apiserver() {
    let folder = tempfile::tempdir().unwrap();
    let Some(api) = KubeApiServer::alone(folder.path()).unwrap() else { return };
    tables_are_those_of_the_reference(&api, api.kubectl()).await;
}
