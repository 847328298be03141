//! Boots a machine, and boots it again when it reboots by itself.

use std::{
    fs::{self, File},
    os::unix::net::UnixDatagram,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::Network;
use crate::{
    PATIENCE,
    lab::{
        cgroup::Cgroups,
        disk::Identity,
        folder::start_time,
        namespaces::{KUBE, LAB, Namespaces, child},
        ostree::BootLoader,
    },
};

/// Exit code of nspawn when the machine requested a reboot.
const REBOOT: i32 = 133;

/// Interval between two checks that a silent boot is still alive.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// The power switch of one machine.
#[derive(Debug)]
pub(super) struct Power {
    identity: Identity,
    namespaces: Arc<Namespaces>,
    cgroups: Arc<Cgroups>,
    /// Puts the root together before each boot, if the machine has ostree deployments.
    loader: Option<BootLoader>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    phase: PowerState,
    /// Number of completed boots.
    boots: u32,
    network: Option<Network>,
    /// True if the machine must stay off, even if it requests a reboot.
    stays_off: bool,
    /// Reason of an unexpected end.
    ended: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum PowerState {
    #[default]
    Off,
    Booting,
    /// The first process, with its start time, so that no later process with the same id is
    /// mistaken for it.
    Up {
        leader: u32,
        start_time: String,
    },
}

impl Power {
    pub(super) fn new(
        identity: Identity,
        namespaces: Arc<Namespaces>,
        cgroups: Arc<Cgroups>,
        loader: Option<BootLoader>,
    ) -> Self {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Self { identity, namespaces, cgroups, loader, state, changed }
    }

    /// Boots the machine. A thread supervises the machine until it is off.
    pub(super) fn power_on(self: &Arc<Self>) -> anyhow::Result<()> {
        if self.lock().phase != PowerState::Off {
            return Ok(());
        }
        self.change(|state| state.stays_off = false);
        let first = self.spawn()?;
        let power = self.clone();
        thread::spawn(move || {
            let mut running = Ok(first);
            let ended = loop {
                match running.and_then(|(child, notes)| power.supervise(child, &notes)) {
                    Ok(status) if status.code() == Some(REBOOT) && !power.lock().stays_off => {
                        running = power.spawn();
                    }
                    Ok(status) => break status.to_string(),
                    Err(error) => break format!("{error:#}"),
                }
            };
            power.change(|state| {
                state.phase = PowerState::Off;
                state.ended = ended;
            });
        });
        Ok(())
    }

    /// Returns the number of completed boots.
    pub(super) fn boots(&self) -> u32 {
        self.lock().boots
    }

    /// Waits until the machine is up.
    pub(super) fn wait_up(&self) -> anyhow::Result<()> {
        self.wait("start", |state| matches!(state.phase, PowerState::Up { .. }))
    }

    /// Waits until the machine has booted more than `boots` times.
    pub(super) fn wait_boot_after(&self, boots: u32) -> anyhow::Result<()> {
        self.wait("start again", |state| state.boots > boots)
    }

    /// Kills the machine's first process, and with it all others.
    pub(super) fn cut(&self) -> anyhow::Result<()> {
        self.change(|state| state.stays_off = true);
        loop {
            // Between two boots the first process cannot be found.
            self.wait("start or stop", |state| state.phase != PowerState::Booting)?;
            let phase = self.lock().phase.clone();
            if phase == PowerState::Off {
                return Ok(());
            }
            // A machine whose first process cannot be found or killed is already shutting down.
            let leader = self.leader().ok().and_then(|leader| Pid::from_raw(leader.cast_signed()));
            if let Some(leader) = leader {
                _ = kill_process(leader, Signal::KILL);
            }
            self.wait("stop", |state| state.phase != phase)?;
        }
    }

    /// Returns the host's process id of the machine's first process.
    pub(super) fn leader(&self) -> anyhow::Result<u32> {
        let state = self.lock();
        if let PowerState::Up { leader, start_time: noted } = &state.phase
            && start_time(*leader).is_ok_and(|start_time| start_time == *noted)
        {
            return Ok(*leader);
        }
        let name = &self.identity.name;
        bail!("{name} is not running {}", state.ended)
    }

    /// Connects or disconnects the network. The setting survives reboots.
    pub(super) fn set_network(&self, network: Network) -> anyhow::Result<()> {
        self.change(|state| state.network = Some(network));
        self.connect()
    }

    /// Returns the console output.
    pub(super) fn console(&self) -> String {
        fs::read_to_string(self.file("console")).unwrap_or_default()
    }

    fn connect(&self) -> anyhow::Result<()> {
        let name = &self.identity.name;
        let state = match self.lock().network {
            Some(Network::Cut) => "down",
            Some(Network::Connected) | None => "up",
        };
        let script = format!("ip link set v-{name} {state}");
        self.namespaces.shell(&format!("setting the network of {name} {state}"), &script).map(drop)
    }

    fn spawn(&self) -> anyhow::Result<(Child, UnixDatagram)> {
        let name = &self.identity.name;
        self.change(|state| state.phase = PowerState::Booting);
        self.cgroups.clear(name);
        self.namespaces.shell(&format!("creating the network of {name}"), &self.network())?;
        self.connect()?;
        if let Some(loader) = &self.loader {
            loader.load(&self.namespaces)?;
        }
        let notes = self.file("notes");
        drop(fs::remove_file(&notes));
        let socket =
            UnixDatagram::bind(&notes).context("failed to open the notify socket of a machine")?;
        socket
            .set_read_timeout(Some(CHECK_INTERVAL))
            .context("failed to open the notify socket of a machine")?;
        let console = File::options().create(true).append(true).open(self.file("console"));
        let console = console.context("failed to open a machine's console")?;
        let again = console.try_clone().context("failed to open a machine's console")?;
        let child = self.nspawn().stdout(console).stderr(again).spawn();
        Ok((child.with_context(|| format!("failed to boot {name}"))?, socket))
    }

    fn nspawn(&self) -> Command {
        let Identity { name, .. } = &self.identity;
        let mut command = self.namespaces.enter(name);
        command.arg("systemd-nspawn").args([
            "--quiet",
            "--boot",
            // The host's systemd, if any, must not know about the machine.
            "--register=no",
            "--keep-unit",
            "--notify-ready=yes",
            "--console=pipe",
            // The kubelet and runc need more than a container's default privileges.
            "--capability=all",
            "--system-call-filter=@keyring",
            "--bind=/dev/kmsg",
        ]);
        command.args([
            format!("--machine={name}"),
            format!("--hostname={name}"),
            format!("--directory={LAB}/{name}/root"),
            format!("--network-namespace-path=/run/netns/{name}"),
        ]);
        match &self.loader {
            Some(loader) => command.args(loader.mounts()),
            None => command.args([
                format!("--bind-ro={KUBE}:/opt/lab/kube"),
                format!("--bind-ro={LAB}/images:/opt/lab/images"),
            ]),
        };
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("NOTIFY_SOCKET", format!("{LAB}/{name}/notes")).stdin(Stdio::null());
        command
    }

    /// Returns the script that sets up the network for a boot. Links of the previous boot are
    /// removed with its namespace.
    fn network(&self) -> String {
        let Identity { name, address, pods } = &self.identity;
        format!(
            "ip netns del {name} 2>/dev/null || true\n\
             ip link del v-{name} 2>/dev/null || true\n\
             ip netns add {name}\n\
             ip link add v-{name} type veth peer name eth0 netns {name}\n\
             ip link set v-{name} master br0\n\
             ip -n {name} link set lo up\n\
             ip -n {name} addr add {address}/24 dev eth0\n\
             ip -n {name} link set eth0 up\n\
             ip -n {name} route add default via 10.77.0.1\n\
             ip route replace {pods} via {address}"
        )
    }

    /// Waits until one boot is up, and then until it ends.
    fn supervise(&self, mut child: Child, notes: &UnixDatagram) -> anyhow::Result<ExitStatus> {
        let what = || format!("failed to supervise {}", self.identity.name);
        let mut buffer = [0; 4096];
        loop {
            let length = notes.recv(&mut buffer).unwrap_or_default();
            let note = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default());
            if note.lines().any(|line| line == "READY=1") {
                let found = leader(child.id()).ok();
                let found = found.and_then(|leader| Some((leader, start_time(leader).ok()?)));
                // A machine that reboots at the end of its boot may be down by now.
                if let Some((leader, start_time)) = found {
                    self.change(|state| {
                        state.phase = PowerState::Up { leader, start_time };
                        state.boots += 1;
                    });
                }
                break;
            }
            if let Some(status) = child.try_wait().with_context(what)? {
                return Ok(status);
            }
        }
        child.wait().with_context(what)
    }

    fn wait(&self, what: &str, done: impl Fn(&State) -> bool) -> anyhow::Result<()> {
        let waiting = |state: &mut State| !done(state);
        let state = self.lock();
        let (state, late) = self
            .changed
            .wait_timeout_while(state, PATIENCE, waiting)
            .unwrap_or_else(PoisonError::into_inner);
        if !late.timed_out() {
            return Ok(());
        }
        let State { phase, boots, ended, .. } = &*state;
        let name = &self.identity.name;
        bail!(
            "{name}: timed out after {PATIENCE:?} waiting for it to {what}; state {phase:?} after {boots} boots {ended}\n\
             console:\n{}",
            self.console()
        )
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.namespaces.path(&format!("{LAB}/{}/{name}", self.identity.name))
    }
}

/// Returns the first process of the machine whose nspawn was started through `nsenter`.
fn leader(nsenter: u32) -> anyhow::Result<u32> {
    child(child(nsenter)?)
}
