//! The real Ignition client (Debian's package `ignition`) fetches its config from the server and writes
//! the files to a folder.

use std::{
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mco_api::{ControllerConfig, MachineConfig};
use mco_ignition::data_url;
use mco_server::FixedSource;
use serde_json::{Value, json};
use tokio::{task::spawn_blocking, time::timeout};

use crate::{
    client::{plain, request},
    fixture::{PATIENCE, Running, start},
};

/// Path of the client in Debian's package; its command line is that of the initial file system.
const CLIENT: &str = "/usr/lib/dracut/modules.d/30ignition/ignition";

/// Returns true if the client can run here; otherwise says what is missing.
fn can_run() -> bool {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|facts| {
        use std::os::unix::fs::MetadataExt as _;
        facts.uid() == 0
    });
    if !is_root {
        eprintln!("skipped: Ignition writes files only as root");
    } else if !Path::new(CLIENT).exists() {
        eprintln!("skipped: {CLIENT} is not installed (Debian: apt install ignition)");
    } else {
        return true;
    }
    false
}

/// Returns a config with files of every kind of contents, directories, links and units.
fn worker() -> MachineConfig {
    let binary: Vec<u8> = (0..=255).collect();
    let base64 = format!("data:;base64,{}", STANDARD.encode(&binary));
    let text = data_url::encode("a line\nwith % and \u{e9}\n".as_bytes());
    let large = data_url::encode("0123456789abcdef".repeat(8_000).as_bytes());
    let file = |path: &str, mode: u32, source: &str| json!({"path": path, "mode": mode, "overwrite": true, "contents": {"source": source}});
    let ignition = json!({
        "ignition": {"version": "3.5.0"},
        "storage": {
            "files": [
                file("/etc/motd", 0o644, &text),
                file("/etc/secret/key", 0o600, &base64),
                file("/usr/local/bin/tool", 0o755, &large),
                file("/etc/empty", 0o444, "data:,"),
            ],
            "directories": [{"path": "/var/lib/data", "mode": 0o750}],
            "links": [{"path": "/etc/link", "target": "/etc/motd"}]
        },
        "systemd": {"units": [{
            "name": "a.service", "enabled": true,
            "contents": "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n",
            "dropins": [{"name": "10-b.conf", "contents": "[Service]\nNice=5\n"}]
        }]}
    });
    let object = json!({
        "metadata": {"name": "rendered-worker-1"},
        "spec": {"config": ignition, "kernelArguments": ["nosmt"]}
    });
    serde_json::from_value(object).unwrap()
}

fn controller() -> ControllerConfig {
    let mut controller = ControllerConfig::default();
    controller.spec.kube_api_server_serving_ca_data = b"--ca--".to_vec().into();
    controller
}

async fn serve() -> Running {
    start(FixedSource::default().joining("worker", worker(), controller()), |_| {}).await
}

/// A machine before its first boot: a root, and the pointer config of its user data.
struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    fn new(server: &Running, pool: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let machine = Self { folder };
        let ca = data_url::encode(server.authority.pem().as_bytes());
        let pointer = json!({"ignition": {
            "version": "3.2.0",
            "config": {"merge": [{
                "source": format!("https://localhost:{}/config/{pool}", server.secure.port()),
                "httpHeaders": [{"name": "Authorization", "value": "Bearer abcdefgh.secret"}]
            }]},
            "security": {"tls": {"certificateAuthorities": [{"source": ca}]}}
        }});
        std::fs::write(machine.path("pointer.ign"), pointer.to_string()).unwrap();
        // Debian's client labels files for SELinux. A machine without SELinux has no `setfiles`.
        for folder in ["bin", "root/etc/selinux"] {
            std::fs::create_dir_all(machine.path(folder)).unwrap();
        }
        let selinux = "SELINUX=disabled\nSELINUXTYPE=targeted\n";
        std::fs::write(machine.path("root/etc/selinux/config"), selinux).unwrap();
        let setfiles = machine.path("bin/setfiles");
        std::fs::write(&setfiles, "#!/bin/sh\nexec cat >/dev/null\n").unwrap();
        std::fs::set_permissions(&setfiles, std::fs::Permissions::from_mode(0o755)).unwrap();
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts a stage.
    fn start(&self, stage: &str) -> RunningStage {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(CLIENT);
        command.args(["--platform", "file", "--log-to-stdout", "--stage", stage]);
        let files = [("config-cache", "config.json"), ("state-file", "state"), ("neednet", "net")];
        for (flag, file) in files {
            command.arg(format!("--{flag}")).arg(self.path(file));
        }
        command.arg("--root").arg(self.path("root"));
        command.env("IGNITION_CONFIG_FILE", self.path("pointer.ign"));
        command.env("PATH", format!("{}:{path}", self.path("bin").display()));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        RunningStage(command.spawn().unwrap())
    }

    /// Runs a stage to its end; returns its success and its log.
    async fn run(&self, stage: &str) -> (bool, String) {
        let mut stage = self.start(stage);
        let (_, log) = stage.read_until("the end of the log").await;
        (stage.0.wait().unwrap().success(), log)
    }
}

/// A stage of the client, which is killed when the value is dropped.
struct RunningStage(Child);

impl RunningStage {
    /// Reads the log until a line contains `text`; returns false at the end of the log.
    async fn read_until(&mut self, text: &'static str) -> (bool, String) {
        let lines = BufReader::new(self.0.stdout.take().unwrap()).lines();
        let read = spawn_blocking(move || {
            let mut log = String::new();
            for line in lines.map_while(Result::ok) {
                log.push_str(&line);
                log.push('\n');
                if line.contains(text) {
                    return (true, log);
                }
            }
            (false, log)
        });
        timeout(PATIENCE, read).await.expect("the client logs or ends").unwrap()
    }
}

impl Drop for RunningStage {
    fn drop(&mut self) {
        // A stage that has ended is not there any more.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Checks that a file of the machine has the contents and the mode that the config gives it.
fn check_file(root: &Path, file: &Value) {
    let path = file["path"].as_str().unwrap();
    let source = file["contents"]["source"].as_str().unwrap();
    let on_disk = root.join(path.trim_start_matches('/'));
    let contents = std::fs::read(&on_disk).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert_eq!(contents, data_url::decode(source).unwrap(), "{path}");
    let mode = std::fs::metadata(&on_disk).unwrap().permissions().mode() & 0o7777;
    assert_eq!(u64::from(mode), file["mode"].as_u64().unwrap(), "{path}");
}

#[tokio::test]
async fn the_real_client_writes_every_file_as_served() {
    if !can_run() {
        return;
    }
    let server = serve().await;
    let machine = Machine::new(&server, "worker");
    for stage in ["fetch", "files"] {
        let (is_success, log) = machine.run(stage).await;
        assert!(is_success, "stage {stage}:\n{log}");
    }

    let accept = ["application/vnd.coreos.ignition+json;version=3.3.0"];
    let document = plain(server.plain, request("GET", "/config/worker", &accept)).await.json();
    let files = document["storage"]["files"].as_array().unwrap();
    assert_eq!(files.len(), 4 + 4, "of the config, and of the first boot");
    let root = machine.path("root");
    for file in files {
        check_file(&root, file);
    }
    let annotations = root.join("etc/machine-config-daemon/node-annotations.json");
    let annotations: Value = serde_json::from_slice(&std::fs::read(annotations).unwrap()).unwrap();
    let current = &annotations["machineconfiguration.openshift.io/currentConfig"];
    assert_eq!(current, "rendered-worker-1");
    let mode = std::fs::metadata(root.join("var/lib/data")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o750);
    assert_eq!(std::fs::read_link(root.join("etc/link")).unwrap(), Path::new("/etc/motd"));
    let units = root.join("etc/systemd");
    let unit = std::fs::read_to_string(units.join("system/a.service")).unwrap();
    assert_eq!(unit, document["systemd"]["units"][0]["contents"].as_str().unwrap());
    let drop_in = std::fs::read_to_string(units.join("system/a.service.d/10-b.conf")).unwrap();
    assert_eq!(drop_in, "[Service]\nNice=5\n");
    let preset = std::fs::read_to_string(units.join("system-preset/20-ignition.preset")).unwrap();
    assert_eq!(preset, "enable a.service\n");
    server.stop().await;
}

#[tokio::test]
async fn the_real_client_retries_a_pool_that_does_not_exist_yet() {
    if !can_run() {
        return;
    }
    let server = serve().await;
    let machine = Machine::new(&server, "unknown");
    let mut stage = machine.start("fetch");
    let (retried, log) = stage.read_until("attempt #3").await;
    drop(stage);
    assert!(retried, "{log}");
    assert!(log.contains("Service Unavailable"), "{log}");
    server.stop().await;
}

#[tokio::test]
async fn the_real_client_gives_up_on_a_pool_that_can_never_exist() {
    if !can_run() {
        return;
    }
    let server = serve().await;
    let machine = Machine::new(&server, "Not_A_Name");
    let (is_success, log) = machine.run("fetch").await;
    assert!(!is_success, "{log}");
    assert!(log.contains("Not Found"), "{log}");
    server.stop().await;
}

/// Returns true if `ignition-validate` accepts the config; `None` if it is not installed.
fn validate(folder: &Path, config: &[u8]) -> Option<(bool, String)> {
    let file = folder.join("config.ign");
    std::fs::write(&file, config).unwrap();
    let output = Command::new("ignition-validate").arg(&file).output().ok()?;
    let report = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&report).into_owned()))
}

// covers: S16, S18
#[tokio::test]
async fn the_real_validator_accepts_what_is_served() {
    let server = serve().await;
    let folder = tempfile::tempdir().unwrap();
    if validate(folder.path(), b"{}").is_none() {
        eprintln!("skipped: ignition-validate is not installed (Debian: apt install ignition)");
        return;
    }
    // Debian's validator knows 3.0 to 3.3.
    let rows = [
        ("2.2.0", 200, None),
        ("3.0.0", 500, None),
        ("3.1.0", 200, Some(true)),
        ("3.2.0", 200, Some(true)),
        ("3.3.0", 200, Some(true)),
        ("3.4.0", 200, None),
        ("3.5.0", 200, None),
    ];
    for (version, status, valid) in rows {
        let accept = format!("application/vnd.coreos.ignition+json;version={version}");
        let reply = plain(server.plain, request("GET", "/config/worker", &[&accept])).await;
        assert_eq!(reply.status.as_u16(), status, "{version}");
        if status == 200 {
            assert_eq!(reply.json()["ignition"]["version"], version);
        }
        if let Some(valid) = valid {
            let (found, report) = validate(folder.path(), &reply.body).unwrap();
            assert_eq!(found, valid, "{version}: {report}");
        }
    }
    server.stop().await;
}
