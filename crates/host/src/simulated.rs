//! A simulated machine in a directory: files are real, units are links, and a boot is a new boot
//! id.
//!
//! State that a real machine keeps outside its files (the booted and the staged deployment) is kept
//! in one file of the tree, so that it survives the process. Nothing reboots by itself: the caller
//! calls [`SimulatedSystem::boot`] after a reboot was requested.

use std::{
    collections::BTreeSet,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};

use crate::{
    os::finalize,
    root::{Root, RootError},
    system::{CheckResult, HostFacts, MachineRole, Packaged, Restored, System, SystemError},
    unit,
};

const STATE: &str = "/var/lib/mco-simulated/state.json";

/// Log of the last boot's finalization; a test may write it.
const LAST_BOOT_LOG: &str = "/var/lib/mco-simulated/last-boot.log";

/// The call that [`CallLog::fail`] makes the kubelet unhealthy by.
const KUBELET_CHECK: &str = "kubelet healthz";

/// Units of a machine before any config is applied.
const UNITS: [(&str, &str); 4] = [
    (
        "kubelet.service",
        "[Unit]\nDescription=Kubelet\n[Service]\nExecStart=/usr/bin/kubelet\n[Install]\nWantedBy=multi-user.target\n",
    ),
    (
        "crio.service",
        "[Unit]\nDescription=Container engine\n[Service]\nExecStart=/usr/bin/crio\n[Install]\nWantedBy=multi-user.target\n",
    ),
    (
        "chronyd.service",
        "[Unit]\nDescription=Clock\n[Service]\nExecStart=/usr/sbin/chronyd\n[Install]\nWantedBy=multi-user.target\n",
    ),
    (
        "sshd.service",
        "[Unit]\nDescription=Remote login\n[Service]\nExecStart=/usr/sbin/sshd\n[Install]\nWantedBy=multi-user.target\n",
    ),
];

/// Files of a machine before any config is applied; existing ones are kept.
const FILES: [(&str, &str, u32); 5] = [
    ("/etc/os-release", "ID=mco-simulated\nPRETTY_NAME=\"Simulated node\"\n", 0o644),
    (
        "/etc/passwd",
        "root:x:0:0:root:/root:/bin/bash\ncore:x:1000:1000:core:/home/core:/bin/bash\n",
        0o644,
    ),
    ("/etc/group", "root:x:0:\ncore:x:1000:\n", 0o644),
    ("/etc/kubernetes/kubeconfig", "", 0o600),
    ("/usr/lib/systemd/system-preset/99-default.preset", "disable *\n", 0o644),
];

/// A deployment: the properties that change with a boot only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Deployment {
    image: String,
    kernel: String,
    kernel_arguments: Vec<String>,
    extensions: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct State {
    boot_id: String,
    booted: Deployment,
    staged: Option<Deployment>,
    reboot: Option<String>,
    password: Option<String>,
}

#[derive(Debug, Default)]
struct CallRecord {
    calls: Vec<String>,
    failing: BTreeSet<String>,
    checked: BTreeSet<String>,
    held: BTreeSet<String>,
}

/// The recorded calls to a simulated machine, and faults to inject; clones share it.
#[derive(Clone, Debug, Default)]
pub struct CallLog(Arc<(Mutex<CallRecord>, Condvar)>);

/// The services of a simulated machine.
#[derive(Debug)]
pub struct SimulatedSystem {
    root: Root,
    state: State,
    journal: CallLog,
    /// Paths that packages own, if the machine keeps a list of them.
    packages: Option<BTreeSet<String>>,
}

/// The boot state of a simulated machine, readable without opening it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootState {
    /// Id of the current boot.
    pub boot_id: String,
    /// True while a reboot is requested and has not happened.
    pub rebooting: bool,
}

impl CallLog {
    /// Returns all calls since the start, such as `reload crio`.
    #[must_use]
    pub fn calls(&self) -> Vec<String> {
        self.record().calls.clone()
    }

    /// Makes this call fail from now on.
    pub fn fail(&self, call: &str) {
        self.record().failing.insert(call.to_owned());
    }

    /// Makes this call succeed again.
    pub fn succeed(&self, call: &str) {
        self.record().failing.remove(call);
    }

    /// Makes this call block from now on.
    pub fn hold(&self, call: &str) {
        self.record().held.insert(call.to_owned());
    }

    /// Unblocks this call.
    pub fn release(&self, call: &str) {
        self.record().held.remove(call);
        self.0.1.notify_all();
    }

    /// Makes the machine run this check, which passes unless it is made to fail.
    pub fn answer(&self, check: &str) {
        self.record().checked.insert(check.to_owned());
    }

    fn record(&self) -> MutexGuard<'_, CallRecord> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call(&self, call: &str) -> Result<(), SystemError> {
        let mut record = self.record();
        record.calls.push(call.to_owned());
        let is_held = |record: &mut CallRecord| record.held.contains(call);
        let record = self.0.1.wait_while(record, is_held).unwrap_or_else(PoisonError::into_inner);
        if record.failing.contains(call) {
            let command = format!("systemctl {call}");
            return Err(SystemError::Command { command, fault: "exit status 1".to_owned() });
        }
        Ok(())
    }
}

impl SimulatedSystem {
    /// Opens the machine in this tree in its last state.
    pub fn open(root: &Root) -> Result<Self, SystemError> {
        let root = root.try_clone()?;
        let found = read(&root)?;
        let is_new = found.is_none();
        let state = found.unwrap_or_else(|| State { boot_id: new_boot_id(), ..State::default() });
        let system =
            Self { root, state, journal: CallLog::default(), packages: Some(BTreeSet::new()) };
        if is_new {
            system.save()?;
        }
        Ok(system)
    }

    /// Reads the boot state of the machine in this tree; `None` until it was first opened.
    pub fn boot_state(root: &Root) -> Result<Option<BootState>, SystemError> {
        let seen =
            |state: State| BootState { boot_id: state.boot_id, rebooting: state.reboot.is_some() };
        Ok(read(root)?.map(seen))
    }

    /// Writes the files of a machine before any config is applied; existing files are kept.
    pub fn write_base_files(root: &Root) -> Result<(), RootError> {
        for (path, text, mode) in FILES {
            if root.stat(path)?.is_none() {
                root.write(path, text.as_bytes(), mode)?;
            }
        }
        for (unit, text) in UNITS {
            let path = format!("/usr/lib/systemd/system/{unit}");
            if root.stat(&path)?.is_none() {
                root.write(&path, text.as_bytes(), 0o644)?;
            }
        }
        for folder in ["/run", "/home/core", "/etc/machine-config-daemon"] {
            root.create_directory(folder)?;
        }
        Ok(())
    }

    /// Sets the paths that packages own, for as long as this value lives; `None` simulates a
    /// machine without a list of packages.
    pub fn set_packaged_paths(&mut self, paths: Option<BTreeSet<String>>) {
        self.packages = paths;
    }

    /// Returns true if a reboot is requested and has not happened.
    #[must_use]
    pub fn wants_reboot(&self) -> bool {
        self.state.reboot.is_some()
    }

    /// Boots the staged deployment, empties `/run`, and creates a new boot id.
    pub fn boot(&mut self) -> Result<(), SystemError> {
        for name in self.root.list("/run")? {
            let path = format!("/run/{name}");
            match self.root.stat(&path)? {
                Some(stat) if stat.is_directory() => self.root.remove_tree(&path)?,
                _ => drop(self.root.remove(&path)?),
            }
        }
        if let Some(staged) = self.state.staged.take() {
            self.state.booted = staged;
        }
        self.state.reboot = None;
        self.state.boot_id = new_boot_id();
        self.save()
    }

    /// Returns the recorded calls.
    #[must_use]
    pub fn call_log(&self) -> CallLog {
        self.journal.clone()
    }

    fn stage(&mut self, change: impl FnOnce(&mut Deployment)) -> Result<(), SystemError> {
        let booted = &self.state.booted;
        change(self.state.staged.get_or_insert_with(|| booted.clone()));
        self.save()
    }

    fn save(&self) -> Result<(), SystemError> {
        let bytes = serde_json::to_vec_pretty(&self.state).expect("plain values are JSON");
        Ok(self.root.write(STATE, &bytes, 0o600)?)
    }
}

fn read(root: &Root) -> Result<Option<State>, SystemError> {
    let Some(bytes) = root.read(STATE)? else { return Ok(None) };
    let state = serde_json::from_slice(&bytes).map_err(|error| SystemError::Command {
        command: format!("read {STATE}"),
        fault: error.to_string(),
    })?;
    Ok(Some(state))
}

impl System for SimulatedSystem {
    fn facts(&self) -> Result<HostFacts, SystemError> {
        Ok(HostFacts {
            boot_id: self.state.boot_id.clone(),
            booted_image: Some(self.state.booted.image.clone()),
            kernel_arguments: self.state.booted.kernel_arguments.clone(),
            kernel_fips: None,
        })
    }

    fn packaged(&self, path: &str) -> Result<Packaged, SystemError> {
        Ok(match &self.packages {
            None => Packaged::Unknown,
            Some(paths) if paths.contains(path) => Packaged::Yes,
            Some(_) => Packaged::No,
        })
    }

    fn unit_state(&self, unit: &str) -> Result<String, SystemError> {
        Ok(unit::state(&self.root, unit)?.to_owned())
    }

    fn has_unit(&self, unit: &str) -> Result<bool, SystemError> {
        Ok(unit::exists(&self.root, unit)?)
    }

    fn enable(&mut self, unit: &str) -> Result<(), SystemError> {
        self.journal.call(&format!("enable {unit}"))?;
        Ok(unit::enable_replacing(&self.root, unit)?)
    }

    fn disable(&mut self, unit: &str) -> Result<(), SystemError> {
        self.journal.call(&format!("disable {unit}"))?;
        Ok(unit::disable(&self.root, unit)?)
    }

    fn preset(&mut self, unit: &str) -> Result<(), SystemError> {
        self.journal.call(&format!("preset {unit}"))?;
        Ok(unit::preset(&self.root, unit)?)
    }

    fn reload_systemd(&mut self) -> Result<(), SystemError> {
        self.journal.call("daemon-reload")
    }

    fn reload(&mut self, service: &str) -> Result<(), SystemError> {
        self.journal.call(&format!("reload {service}"))
    }

    fn restart(&mut self, service: &str) -> Result<(), SystemError> {
        self.journal.call(&format!("restart {service}"))
    }

    fn password(&self, _: &str) -> Result<Option<String>, SystemError> {
        Ok(Some(self.state.password.clone().unwrap_or_else(|| "*".to_owned())))
    }

    fn set_password(&mut self, user: &str, hash: &str) -> Result<(), SystemError> {
        if self.state.password.as_deref() == Some(hash) {
            return Ok(());
        }
        self.journal.call(&format!("password {user}"))?;
        self.state.password = Some(hash.to_owned());
        self.save()?;
        tracing::info!("Password has been configured");
        Ok(())
    }

    fn stage_os(&mut self, image: &str) -> Result<(), SystemError> {
        self.journal.call(&format!("stage-os {image}"))?;
        self.stage(|staged| image.clone_into(&mut staged.image))
    }

    fn stage_kernel_arguments(
        &mut self,
        remove: &[String],
        add: &[String],
    ) -> Result<(), SystemError> {
        self.journal.call(&format!("stage-kargs -[{}] +[{}]", remove.join(" "), add.join(" ")))?;
        let booted = self.state.booted.kernel_arguments.clone();
        self.stage(|staged| {
            // Based on the booted ones, so that a repeated call adds nothing twice.
            let tokens = |list: &[String]| -> Vec<String> {
                list.iter().flat_map(|text| text.split_whitespace()).map(str::to_owned).collect()
            };
            let gone = tokens(remove);
            staged.kernel_arguments =
                booted.into_iter().filter(|old| !gone.contains(old)).collect();
            staged.kernel_arguments.extend(tokens(add));
        })
    }

    fn stage_kernel(&mut self, kernel: &str) -> Result<(), SystemError> {
        self.journal.call(&format!("stage-kernel {kernel}"))?;
        self.stage(|staged| kernel.clone_into(&mut staged.kernel))
    }

    fn stage_extensions(&mut self, remove: &[String], add: &[String]) -> Result<(), SystemError> {
        self.journal.call(&format!(
            "stage-extensions -[{}] +[{}]",
            remove.join(" "),
            add.join(" ")
        ))?;
        self.stage(|staged| add.clone_into(&mut staged.extensions))
    }

    fn staged(&self) -> Result<Option<String>, SystemError> {
        let both = (&self.state.booted, &self.state.staged);
        Ok(Some(serde_json::to_string(&both).expect("plain values are JSON")))
    }

    fn has_staged(&self) -> Result<bool, SystemError> {
        // One that equals the booted one cannot be told from it after a boot.
        Ok(self.state.staged.as_ref().is_some_and(|staged| *staged != self.state.booted))
    }

    fn restore_staged(&mut self, staged: &str) -> Result<Restored, SystemError> {
        let (booted, next): (Deployment, Option<Deployment>) = serde_json::from_str(staged)
            .map_err(|error| SystemError::Command {
                command: "restage".to_owned(),
                fault: error.to_string(),
            })?;
        let (staged, result) = if booted == self.state.booted {
            (next, Restored::Done)
        } else {
            (Some(next.unwrap_or(booted)), Restored::NeedsReboot)
        };
        if self.state.staged != staged {
            self.journal.call("restage")?;
            self.state.staged = staged;
            self.save()?;
        }
        Ok(result)
    }

    fn prepare(&mut self, role: MachineRole) -> Result<(), SystemError> {
        let role = match role {
            MachineRole::ControlPlane => "control-plane",
            MachineRole::Worker => "worker",
        };
        self.journal.call(&format!("prepare {role}"))
    }

    fn finalization_fault(&self) -> Result<Option<String>, SystemError> {
        let text = self.root.read(LAST_BOOT_LOG)?.unwrap_or_default();
        Ok(finalize::first_error(&String::from_utf8_lossy(&text)))
    }

    fn provide_packages(&mut self, image: &str) -> Result<(), SystemError> {
        self.journal.call(&format!("provide-packages {image}"))
    }

    fn withdraw_packages(&mut self) -> Result<(), SystemError> {
        self.journal.call("withdraw-packages")
    }

    fn check_kubelet(&self) -> CheckResult {
        let record = self.journal.record();
        if record.failing.contains(KUBELET_CHECK) {
            CheckResult::Failed(format!("{KUBELET_CHECK} fails"))
        } else if record.checked.contains(KUBELET_CHECK) {
            CheckResult::Passed
        } else {
            CheckResult::Skipped
        }
    }

    fn reboot(&mut self, why: &str) -> Result<(), SystemError> {
        self.journal.call("reboot")?;
        self.state.reboot = Some(why.to_owned());
        self.save()
    }
}

fn new_boot_id() -> String {
    // The kernel generates a new one for each read.
    let random = std::fs::read_to_string("/proc/sys/kernel/random/uuid");
    random.map_or_else(
        |_| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            format!("boot-{}", now.map_or(0, |since| since.as_nanos()))
        },
        |text| text.trim().to_owned(),
    )
}
