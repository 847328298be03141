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
        cgroup::Groups,
        furnish::Identity,
        place::born,
        space::{KUBE, LAB, Space, child},
    },
};

/// What nspawn says when the machine asked for a reboot.
const REBOOT: i32 = 133;

/// How often a boot that says nothing is checked for having died.
const CHECK: Duration = Duration::from_millis(500);

/// The power of one machine.
#[derive(Debug)]
pub(super) struct Power {
    identity: Identity,
    space: Arc<Space>,
    groups: Arc<Groups>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    phase: Phase,
    /// How often it has come up.
    boots: u32,
    network: Option<Network>,
    /// Whether it is to stay off, also where it asked for a reboot.
    is_cut: bool,
    /// Why it is off, if nobody asked for it.
    ended: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Off,
    Booting,
    /// Its first process and when that was started, so that no other is ever mistaken for it.
    Up {
        leader: u32,
        born: String,
    },
}

impl Power {
    pub(super) fn new(identity: Identity, space: Arc<Space>, groups: Arc<Groups>) -> Self {
        Self { identity, space, groups, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Boots it and lets a thread look after it until it is off.
    pub(super) fn switch_on(self: &Arc<Self>) -> anyhow::Result<()> {
        if self.lock().phase != Phase::Off {
            return Ok(());
        }
        self.change(|state| state.is_cut = false);
        let first = self.spawn()?;
        let power = self.clone();
        thread::spawn(move || {
            let mut running = Ok(first);
            let ended = loop {
                match running.and_then(|(child, notes)| power.look_after(child, &notes)) {
                    Ok(status) if status.code() == Some(REBOOT) && !power.lock().is_cut => {
                        running = power.spawn();
                    }
                    Ok(status) => break status.to_string(),
                    Err(error) => break format!("{error:#}"),
                }
            };
            power.change(|state| {
                state.phase = Phase::Off;
                state.ended = ended;
            });
        });
        Ok(())
    }

    /// How often it has come up.
    pub(super) fn boots(&self) -> u32 {
        self.lock().boots
    }

    /// Waits until it is up.
    pub(super) fn wait_up(&self) -> anyhow::Result<()> {
        self.wait("come up", |state| matches!(state.phase, Phase::Up { .. }))
    }

    /// Waits until it has come up once more than `boots` times.
    pub(super) fn wait_boot_after(&self, boots: u32) -> anyhow::Result<()> {
        self.wait("come up again", |state| state.boots > boots)
    }

    /// Kills its first process, and with it all others.
    pub(super) fn cut(&self) -> anyhow::Result<()> {
        self.change(|state| state.is_cut = true);
        loop {
            // It may be between two boots, which is no time to find its first process.
            self.wait("come up or go off", |state| state.phase != Phase::Booting)?;
            let phase = self.lock().phase.clone();
            if phase == Phase::Off {
                return Ok(());
            }
            // One that cannot be found or killed is on its way down by itself.
            let leader = self.leader().ok().and_then(|leader| Pid::from_raw(leader.cast_signed()));
            if let Some(leader) = leader {
                _ = kill_process(leader, Signal::KILL);
            }
            self.wait("go off", |state| state.phase != phase)?;
        }
    }

    /// Its first process, as the host numbers it.
    pub(super) fn leader(&self) -> anyhow::Result<u32> {
        let state = self.lock();
        if let Phase::Up { leader, born: noted } = &state.phase
            && born(*leader).is_ok_and(|born| born == *noted)
        {
            return Ok(*leader);
        }
        let name = &self.identity.name;
        bail!("{name} is not up {}", state.ended)
    }

    /// Connects it to the lab's network or cuts it off; that holds over reboots.
    pub(super) fn set_network(&self, network: Network) -> anyhow::Result<()> {
        self.change(|state| state.network = Some(network));
        self.connect()
    }

    /// What was written to its terminal.
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
        self.space.shell(&format!("setting the network of {name} {state}"), &script).map(drop)
    }

    fn spawn(&self) -> anyhow::Result<(Child, UnixDatagram)> {
        let name = &self.identity.name;
        self.change(|state| state.phase = Phase::Booting);
        self.groups.clear(name);
        self.space.shell(&format!("making the network of {name}"), &self.network())?;
        self.connect()?;
        let notes = self.file("notes");
        drop(fs::remove_file(&notes));
        let socket = UnixDatagram::bind(&notes).context("cannot listen to a machine")?;
        socket.set_read_timeout(Some(CHECK)).context("cannot listen to a machine")?;
        let console = File::options().create(true).append(true).open(self.file("console"));
        let console = console.context("cannot open a machine's console")?;
        let again = console.try_clone().context("cannot open a machine's console")?;
        let child = self.nspawn().stdout(console).stderr(again).spawn();
        Ok((child.with_context(|| format!("cannot boot {name}"))?, socket))
    }

    fn nspawn(&self) -> Command {
        let Identity { name, .. } = &self.identity;
        let mut command = self.space.enter(name);
        command.arg("systemd-nspawn").args([
            "--quiet",
            "--boot",
            // There is no systemd outside that should know of it.
            "--register=no",
            "--keep-unit",
            "--notify-ready=yes",
            "--console=pipe",
            // What kubelet and runc need and a container does not have by itself.
            "--capability=all",
            "--system-call-filter=@keyring",
            "--bind=/dev/kmsg",
        ]);
        command.args([
            format!("--machine={name}"),
            format!("--hostname={name}"),
            format!("--directory={LAB}/{name}/root"),
            format!("--network-namespace-path=/run/netns/{name}"),
            format!("--bind-ro={KUBE}:/opt/lab/kube"),
            format!("--bind-ro={LAB}/images:/opt/lab/images"),
        ]);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("NOTIFY_SOCKET", format!("{LAB}/{name}/notes")).stdin(Stdio::null());
        command
    }

    /// A boot finds no links of the one before: pods' bridges and their ends are gone with it.
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

    /// Waits for one boot to come up and to end.
    fn look_after(&self, mut child: Child, notes: &UnixDatagram) -> anyhow::Result<ExitStatus> {
        let what = || format!("cannot look after {}", self.identity.name);
        let mut buffer = [0; 4096];
        loop {
            let length = notes.recv(&mut buffer).unwrap_or_default();
            let note = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default());
            if note.lines().any(|line| line == "READY=1") {
                let leader = leader(child.id())?;
                let born = born(leader).with_context(what)?;
                self.change(|state| {
                    state.phase = Phase::Up { leader, born };
                    state.boots += 1;
                });
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
            "{name}: waited {PATIENCE:?} in vain for it to {what}; it is {phase:?} after {boots} boots {ended}\n\
             its terminal:\n{}",
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
        self.space.path(&format!("{LAB}/{}/{name}", self.identity.name))
    }
}

/// The first process of the machine that `nsenter` has started nspawn for.
fn leader(nsenter: u32) -> anyhow::Result<u32> {
    child(child(nsenter)?)
}
