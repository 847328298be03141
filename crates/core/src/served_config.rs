//! The config that the config server gives a new machine, read by a machine that has no Ignition: the
//! whole document to apply, the MachineConfig to record, and the parts that a running system cannot
//! apply.

use mco_api::{MachineConfig, RawConfig};
use mco_ignition::{
    Config, ReadError, UpgradeError,
    config::{File, Unit},
};

use crate::machine;

/// The MachineConfig in a served document.
const SERVED_CONFIG: &str = "/etc/mcs-machine-config-content.json";
/// The MachineConfig without its Ignition config, for the unit that completes a first boot. A machine
/// without Ignition needs neither: the unit would roll back the unfinished update.
const ENCAPSULATED: &str = "/etc/ignition-machine-config-encapsulated.json";
/// Credentials of the kubelet for its bootstrap.
pub const KUBECONFIG: &str = "/etc/kubernetes/kubeconfig";

/// Files that only root may read, whatever mode the server gives them.
const PRIVATE: [&str; 2] = [SERVED_CONFIG, KUBECONFIG];

/// The user that configs may change.
const USER: &str = "core";

/// A served document, ready to be applied.
#[derive(Clone, Debug)]
pub struct ServedConfig {
    /// Config to apply: that of the pool, with the files that only a new machine gets.
    pub target: MachineConfig,
    /// Config to record: that of the pool.
    pub recorded: MachineConfig,
    /// Units that start with the machine, the kubelet last.
    pub units: Vec<String>,
    /// True if the document has credentials for the kubelet.
    pub has_kubeconfig: bool,
}

/// A part of a document that a running system cannot apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// Path of the part in the document.
    pub path: String,
    /// The reason.
    pub reason: String,
}

/// The reason why a document cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum ServedConfigError {
    /// The document is no Ignition config.
    #[error("the served document is no Ignition config")]
    Read(#[from] ReadError),
    /// The document has an old version and cannot be upgraded.
    #[error("the served document cannot be upgraded")]
    Upgrade(#[from] UpgradeError),
    /// The document was not made by a config server.
    #[error("the served document has no file {SERVED_CONFIG}, which every config server adds")]
    NoMachineConfig,
    /// The MachineConfig in the document cannot be decoded.
    #[error("{SERVED_CONFIG} in the served document is no MachineConfig")]
    MachineConfig(#[source] serde_json::Error),
    /// A running system cannot apply parts of the document.
    #[error("a running system cannot apply {}", list(.0))]
    Unsupported(Vec<Unsupported>),
}

fn list(parts: &[Unsupported]) -> String {
    let texts = parts.iter().map(|part| format!("{} ({})", part.path, part.reason));
    texts.collect::<Vec<_>>().join(", ")
}

/// Reads a served document.
pub fn read(bytes: &[u8]) -> Result<ServedConfig, ServedConfigError> {
    let mut config = mco_ignition::read(bytes)?.upgrade()?;
    let served = config.storage.files.iter().find(|file| file.path == SERVED_CONFIG);
    let served = served.ok_or(ServedConfigError::NoMachineConfig)?;
    let served = machine::contents(served).unwrap_or_default();
    let recorded: MachineConfig =
        serde_json::from_slice(&served).map_err(ServedConfigError::MachineConfig)?;
    let parts = unsupported(&config);
    if !parts.is_empty() {
        return Err(ServedConfigError::Unsupported(parts));
    }
    config.storage.files.retain(|file| file.path != ENCAPSULATED);
    for file in &mut config.storage.files {
        if PRIVATE.contains(&file.path.as_str()) {
            file.mode = Some(0o600);
        }
    }
    let mut target = recorded.clone();
    // Ignition would set these itself.
    let arguments = std::mem::take(&mut config.kernel_arguments).should_exist;
    target.spec.kernel_arguments.extend(arguments);
    let has_kubeconfig = config.storage.files.iter().any(|file| file.path == KUBECONFIG);
    let units = units(&config.systemd.units);
    let text = String::from_utf8(config.to_json()).expect("serialized JSON is UTF-8");
    let raw = RawConfig::from_json(text).map_err(ServedConfigError::MachineConfig)?;
    target.spec.config = Some(raw);
    Ok(ServedConfig { target, recorded, units, has_kubeconfig })
}

/// Returns the units that start with the machine, the kubelet last, because it needs the others.
fn units(units: &[Unit]) -> Vec<String> {
    let enabled = units.iter().filter(|unit| unit.enabled == Some(true) && unit.mask != Some(true));
    let mut names: Vec<String> = enabled.map(|unit| unit.name.clone()).collect();
    names.sort_by_key(|name| name == "kubelet.service");
    names
}

fn unsupported(config: &Config) -> Vec<Unsupported> {
    let storage = &config.storage;
    let mut parts = Vec::new();
    let mut refuse = |path: String, reason: &str| {
        parts.push(Unsupported { path, reason: reason.to_owned() });
    };
    let sections = [
        ("disks", storage.disks.len()),
        ("raid", storage.raid.len()),
        ("filesystems", storage.filesystems.len()),
        ("luks", storage.luks.len()),
    ];
    for (name, count) in sections {
        for index in 0..count {
            let reason = "only Ignition can set up disks, before the system boots";
            refuse(format!("storage.{name}[{index}]"), reason);
        }
    }
    let others = [("directories", storage.directories.len()), ("links", storage.links.len())];
    for (name, count) in others {
        for index in 0..count {
            refuse(format!("storage.{name}[{index}]"), "only Ignition creates these");
        }
    }
    for (index, user) in config.passwd.users.iter().enumerate() {
        if user.name != USER {
            let reason = format!("user {:?}: only Ignition creates users", user.name);
            refuse(format!("passwd.users[{index}]"), &reason);
        }
    }
    for index in 0..config.passwd.groups.len() {
        refuse(format!("passwd.groups[{index}]"), "only Ignition creates groups");
    }
    if !config.kernel_arguments.should_not_exist.is_empty() {
        refuse("kernelArguments.shouldNotExist".to_owned(), "only Ignition removes arguments");
    }
    for (index, file) in storage.files.iter().enumerate() {
        if let Some(reason) = unsupported_file(file) {
            refuse(format!("storage.files[{index}]"), &format!("{}: {reason}", file.path));
        }
    }
    parts
}

fn unsupported_file(file: &File) -> Option<String> {
    if !file.append.is_empty() {
        return Some("only Ignition appends to files".to_owned());
    }
    machine::contents(file).err().map(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::machine::Machine;

    fn document(storage: &Value, more: &Value) -> Vec<u8> {
        let served = json!({
            "metadata": {"name": "rendered-worker-1"},
            "spec": {"kernelArguments": ["quiet"], "config": {"ignition": {"version": "3.5.0"}}},
        });
        let url = mco_ignition::data_url::encode(served.to_string().as_bytes());
        let mut storage = storage.clone();
        let files = storage.as_object_mut().unwrap().entry("files").or_insert(json!([]));
        let files = files.as_array_mut().unwrap();
        for path in [SERVED_CONFIG, ENCAPSULATED, KUBECONFIG] {
            files.push(json!({"path": path, "mode": 420, "contents": {"source": url}}));
        }
        let mut document = json!({"ignition": {"version": "3.5.0"}, "storage": storage});
        for (key, value) in more.as_object().unwrap() {
            document[key] = value.clone();
        }
        document.to_string().into_bytes()
    }

    #[test]
    fn a_document_becomes_a_config_to_apply_and_one_to_record() {
        let units = json!([
            {"name": "kubelet.service", "enabled": true, "contents": "[Service]"},
            {"name": "a.service", "enabled": true, "contents": "[Service]"},
            {"name": "b.service", "enabled": false, "contents": "[Service]"},
            {"name": "c.service", "enabled": true, "mask": true},
        ]);
        let more = json!({
            "systemd": {"units": units},
            "kernelArguments": {"shouldExist": ["nosmt"]},
        });
        let storage = json!({"files": [{"path": "/etc/a", "contents": {"source": "data:,1"}}]});
        let served = read(&document(&storage, &more)).unwrap();
        assert!(served.has_kubeconfig);
        assert_eq!(served.units, ["a.service", "kubelet.service"]);
        assert_eq!(served.recorded.metadata.name.as_deref(), Some("rendered-worker-1"));
        assert_eq!(served.target.metadata.name.as_deref(), Some("rendered-worker-1"));
        assert_eq!(served.target.spec.kernel_arguments, ["quiet", "nosmt"]);
        assert_eq!(served.recorded.spec.kernel_arguments, ["quiet"]);
        let target = Machine::read(&served.target).unwrap();
        assert!(target.file("/etc/a").is_some());
        for path in PRIVATE {
            assert_eq!(machine::mode(target.file(path).unwrap()), 0o600, "{path}");
        }
        assert!(target.file(ENCAPSULATED).is_none(), "there is nothing left to complete");
        assert!(Machine::read(&served.recorded).unwrap().file(KUBECONFIG).is_none());
    }

    #[test]
    fn parts_that_need_ignition_are_refused_with_their_paths() {
        let storage = json!({
            "disks": [{"device": "/dev/sda", "wipeTable": true}],
            "raid": [{"name": "a", "level": "raid1", "devices": ["/dev/sda", "/dev/sdb"]}],
            "filesystems": [{"device": "/dev/sda1", "format": "ext4"}],
            "luks": [{"name": "a", "device": "/dev/sda2"}],
            "directories": [{"path": "/var/a"}],
            "links": [{"path": "/etc/l", "target": "/etc/a"}],
            "files": [
                {"path": "/etc/b", "append": [{"source": "data:,1"}]},
                {"path": "/etc/c", "contents": {"source": "https://a.test/c"}},
            ],
        });
        let more = json!({
            "passwd": {
                "users": [{"name": "core", "sshAuthorizedKeys": ["k"]}, {"name": "anna"}],
                "groups": [{"name": "wheel"}],
            },
            "kernelArguments": {"shouldNotExist": ["quiet"]},
        });
        let error = read(&document(&storage, &more)).unwrap_err();
        let ServedConfigError::Unsupported(parts) = &error else { panic!("{error:?}") };
        let paths: Vec<&str> = parts.iter().map(|part| part.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "storage.disks[0]",
                "storage.raid[0]",
                "storage.filesystems[0]",
                "storage.luks[0]",
                "storage.directories[0]",
                "storage.links[0]",
                "passwd.users[1]",
                "passwd.groups[0]",
                "kernelArguments.shouldNotExist",
                "storage.files[0]",
                "storage.files[1]",
            ]
        );
        assert!(error.to_string().contains("/etc/c"), "{error}");
    }

    #[test]
    fn other_documents_are_refused() {
        let plain = br#"{"ignition": {"version": "3.5.0"}}"#;
        assert!(matches!(read(plain), Err(ServedConfigError::NoMachineConfig)));
        assert!(matches!(read(b"<html>"), Err(ServedConfigError::Read(_))));
    }
}
