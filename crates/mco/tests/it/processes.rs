//! Each process alone, as a child of the test, against the embedded API over HTTPS.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use k8s_openapi::{
    api::coordination::v1::Lease,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api,
    runtime::wait::{await_condition, conditions},
};
use mco_api::{ClusterOperator, MachineConfigPool, label};
use mco_cluster::client;
use rustix::process::{Pid, Signal, kill_process};

/// Long enough for a busy machine; nothing waits this long unless it is broken.
const PATIENCE: Duration = Duration::from_mins(1);

struct Process(Child);

impl Process {
    #[expect(clippy::disallowed_methods, reason = "the test is about processes")]
    fn start(args: &[&str], output: Stdio) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mco"));
        command.args(args).env_remove("KUBECONFIG").env_remove("RELEASE_VERSION");
        let quiet = command.stdout(output).stderr(Stdio::null());
        Self(quiet.spawn().expect("the binary starts"))
    }

    /// Asks it to stop, and waits until it has.
    fn stop(mut self) -> ExitStatus {
        let id = Pid::from_child(&self.0);
        kill_process(id, Signal::TERM).expect("it runs");
        self.0.wait().expect("it ends")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Only after a failure: otherwise it has stopped already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

async fn within<T>(what: &str, waited_for: impl Future<Output = T>) -> T {
    let found = tokio::time::timeout(PATIENCE, waited_for).await;
    found.unwrap_or_else(|_| panic!("{what}: did not happen"))
}

/// What the API server says once it listens: where its kubeconfig is.
async fn kubeconfig(api: &mut Process) -> PathBuf {
    let output = BufReader::new(api.0.stdout.take().expect("its output is ours"));
    let said = tokio::task::spawn_blocking(move || {
        let mut lines = output.lines().map_while(Result::ok);
        lines.find_map(|line| line.strip_prefix("kubeconfig: ").map(PathBuf::from))
    });
    within("the API server says that it listens", said).await.expect("read").expect("a path")
}

// covers: PROC-1, PROC-4
#[tokio::test]
async fn operator_and_controller_furnish_a_cluster_and_stop_when_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = folder.path().to_str().expect("plain text");
    let listen = ["apiserver", "--dir", dir, "--listen", "127.0.0.1:0"];
    let mut api = Process::start(&listen, Stdio::piped());
    let file = kubeconfig(&mut api).await;
    let file = file.to_str().expect("plain text");
    let listen = ["--kubeconfig", file, "--metrics-listen-address", "127.0.0.1:0"];
    let start =
        |process: &str| Process::start(&[&[process, "start"], &listen[..]].concat(), Stdio::null());
    let (operator, controller) = (start("operator"), start("controller"));

    let client = client::connect(Some(Path::new(file))).await.expect("a client");
    let operators = Api::<ClusterOperator>::all(client.clone());
    // Until the operator has installed the kind there is nothing to watch.
    let kinds = Api::<CustomResourceDefinition>::all(client.clone());
    let kind = "clusteroperators.config.openshift.io";
    let installed = await_condition(kinds, kind, conditions::is_crd_established());
    within("the operator installs its kind", installed).await.expect("a watch");
    let has_version = |found: Option<&ClusterOperator>| {
        let status = found.and_then(|found| found.status.as_ref());
        status.is_some_and(|status| !status.versions.is_empty())
    };
    let settled = await_condition(operators.clone(), label::CLUSTER_OPERATOR, has_version);
    within("the operator reaches its version", settled).await.expect("a watch");
    let pools = Api::<MachineConfigPool>::all(client.clone());
    let master = pools.get("master").await.expect("made by the operator");
    let name = master.status.expect("written by the controller").configuration.rendered.name;
    assert!(name.starts_with("rendered-master-"), "{name}");

    assert!(controller.stop().success() && operator.stop().success());
    for (namespace, name) in
        [("kube-system", "machine-config-controller"), (label::NAMESPACE, "machine-config")]
    {
        let lease = Api::<Lease>::namespaced(client.clone(), namespace).get(name).await;
        let spec = lease.expect("the process led").spec.unwrap_or_default();
        assert_eq!(spec.holder_identity.as_deref(), Some(""), "{name} is free again");
    }
    assert!(api.stop().success());
}
