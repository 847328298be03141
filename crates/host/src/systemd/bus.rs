//! Talks to a machine's systemd over the machine's own message bus.
//!
//! Calls block. The connection lives on a runtime of its own, which runs only while a call does, so
//! that a daemon at rest costs nothing; it is made on the first call and made anew where it does not answer any longer.

use std::{
    io::Read as _,
    os::fd::OwnedFd,
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures::StreamExt as _;
use tokio::runtime::Runtime;
use zbus::{DynamicType, OwnedObjectPath, Proxy, Variant, connection::Builder};

/// Longer than any unit is given to start or stop by default.
const JOB_LIMIT: Duration = Duration::from_mins(10);
/// Longer than an image takes over a slow line.
const COMMAND_LIMIT: Duration = Duration::from_hours(2);
/// As much of what a command prints as is kept: lists of images are long.
const OUTPUT_LIMIT: u64 = 8 << 20;
/// As much of what it complains about.
const COMPLAINT_LIMIT: u64 = 64 << 10;

const SYSTEMD: &str = "org.freedesktop.systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
/// What systemd calls a second wish for its signals.
const SUBSCRIBED: &str = "org.freedesktop.systemd1.AlreadySubscribed";
const PEER: &str = "org.freedesktop.DBus.Peer";
const SERVICE: &str = "org.freedesktop.systemd1.Service";

/// Why systemd did not do what it was asked to, in its own words.
#[derive(Debug, thiserror::Error)]
pub(super) enum BusError {
    /// The bus does not answer.
    #[error("cannot reach systemd at {address}")]
    Connect { address: String, source: zbus::Error },
    /// systemd refused.
    #[error("{text}")]
    Refused { name: String, text: String },
    /// The bus broke.
    #[error("lost the connection to systemd")]
    Lost(#[source] zbus::Error),
    /// The job did not end well.
    #[error("Job for {unit} {}", ending(.result))]
    Job { unit: String, result: String },
    /// The job did not end in time.
    #[error("Job for {unit} did not end in time")]
    Late { unit: String },
    /// A pipe for a command cannot be made.
    #[error("cannot make a pipe")]
    Pipe(#[source] std::io::Error),
}

/// A command of the machine, as systemd is to run it.
pub(super) struct Task<'a> {
    /// The transient unit that it runs as.
    pub(super) unit: &'a str,
    /// What `systemctl status` and the journal say about it.
    pub(super) description: &'a str,
    /// The program and its arguments.
    pub(super) command: &'a [&'a str],
    /// Units that must have run before.
    pub(super) after: &'a [&'a str],
}

/// What a command came to.
#[derive(Debug)]
pub(super) struct Output {
    /// Its exit code.
    pub(super) status: i32,
    /// The beginning of what it printed.
    pub(super) text: String,
    /// The beginning of what it complained about.
    pub(super) complaints: String,
}

/// One machine's systemd.
pub(super) struct Bus {
    /// There until it is dropped.
    runtime: Option<Runtime>,
    address: String,
    /// Kept from call to call.
    manager: Mutex<Option<Proxy<'static>>>,
}

impl Bus {
    /// The systemd whose root this is.
    pub(super) fn new(root: &Path) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let socket = root.join("run/dbus/system_bus_socket");
        let address = format!("unix:path={}", socket.display());
        Ok(Self { runtime: Some(runtime), address, manager: Mutex::default() })
    }

    /// Calls a method of the manager and drops what it answers.
    pub(super) fn order<B>(&self, method: &str, body: &B) -> Result<(), BusError>
    where
        B: serde::Serialize + DynamicType,
    {
        self.with(async |manager| manager.call_method(method, body).await.map(drop))
    }

    /// Calls a method of the manager that answers with a text.
    pub(super) fn ask(&self, method: &str, unit: &str) -> Result<String, BusError> {
        self.with(async |manager| manager.call(method, &(unit,)).await)
    }

    /// Starts a job for a unit and waits until it ended.
    pub(super) fn job(&self, method: &str, unit: &str) -> Result<(), BusError> {
        let result = self.with(async |manager| {
            let mut ended = ends_of_jobs(manager).await?;
            let job: OwnedObjectPath = manager.call(method, &(unit, "replace")).await?;
            end_of(&mut ended, &job, JOB_LIMIT).await
        })?;
        judge(unit, result)
    }

    /// Has systemd run a command without waiting for its end.
    pub(super) fn start(&self, task: &Task<'_>) -> Result<(), BusError> {
        self.with(async |manager| {
            let mut properties = properties(task, "exec");
            // So that a failed try does not stand in the way of the next one.
            properties.push(("CollectMode", Variant::from("inactive-or-failed")));
            // A list, not an array: an array of none has another signature on the bus.
            let none: Vec<(&str, Vec<(&str, Variant<'_>)>)> = Vec::new();
            let body = (task.unit, "fail", properties, none);
            manager.call_method("StartTransientUnit", &body).await.map(drop)
        })
    }

    /// Has systemd run a command, hands it `input`, and waits for its end.
    pub(super) fn run(&self, task: &Task<'_>, input: &[u8]) -> Result<Output, BusError> {
        let (reader, writer) = std::io::pipe().map_err(BusError::Pipe)?;
        let (complained, complaints) = std::io::pipe().map_err(BusError::Pipe)?;
        let (stdin, mut feed) = std::io::pipe().map_err(BusError::Pipe)?;
        let input = input.to_vec();
        let feeder = std::thread::spawn(move || {
            // A command that does not read to the end says so by its exit code.
            let _ = std::io::Write::write_all(&mut feed, &input);
        });
        let listeners = [(reader, OUTPUT_LIMIT), (complained, COMPLAINT_LIMIT)].map(listen);
        let ended = self.finish(task, stdin.into(), writer.into(), complaints.into());
        // All end by themselves: every other end of the pipes is closed by now.
        let _ = feeder.join();
        let [text, complaints] = listeners.map(|it| it.join().unwrap_or_default());
        Ok(Output { status: ended?, text, complaints })
    }

    fn finish(
        &self,
        task: &Task<'_>,
        stdin: OwnedFd,
        output: OwnedFd,
        complaints: OwnedFd,
    ) -> Result<i32, BusError> {
        let result = self.with(async move |manager| {
            let mut ended = ends_of_jobs(manager).await?;
            let mut properties = properties(task, "oneshot");
            let fd = |fd: OwnedFd| Variant::from(zbus::Fd::from(fd));
            properties.push(("StandardInputFileDescriptor", fd(stdin)));
            properties.push(("StandardOutputFileDescriptor", fd(output)));
            properties.push(("StandardErrorFileDescriptor", fd(complaints)));
            // A list, not an array: an array of none has another signature on the bus.
            let none: Vec<(&str, Vec<(&str, Variant<'_>)>)> = Vec::new();
            let body = (task.unit, "fail", properties, none);
            let job: OwnedObjectPath = manager.call("StartTransientUnit", &body).await?;
            drop(body);
            end_of(&mut ended, &job, COMMAND_LIMIT).await
        })?;
        match result.as_deref() {
            Some("failed") => self.exit_code(task.unit),
            _ => judge(task.unit, result).map(|()| 0),
        }
    }

    /// How a command that failed ended; forgets the unit that it ran as.
    fn exit_code(&self, unit: &str) -> Result<i32, BusError> {
        self.with(async |manager| {
            let path: OwnedObjectPath = manager.call("GetUnit", &(unit,)).await?;
            let service = Proxy::new(manager.connection(), SYSTEMD, path, SERVICE).await?;
            let status: i32 = service.get_property("ExecMainStatus").await?;
            manager.call_method("ResetFailedUnit", &(unit,)).await?;
            Ok(if status == 0 { -1 } else { status })
        })
    }

    fn with<T>(
        &self,
        work: impl AsyncFnOnce(&Proxy<'static>) -> Result<T, zbus::Error>,
    ) -> Result<T, BusError> {
        let mut kept = self.manager.lock().unwrap_or_else(PoisonError::into_inner);
        let runtime = self.runtime.as_ref().expect("it is there until it is dropped");
        runtime.block_on(async {
            let manager = match kept.take() {
                Some(manager) if answers(&manager).await => manager,
                _ => self.connect().await?,
            };
            match work(&manager).await {
                Ok(done) => {
                    *kept = Some(manager);
                    Ok(done)
                }
                Err(zbus::Error::MethodError(name, text, _)) => {
                    *kept = Some(manager);
                    let name = name.to_string();
                    Err(BusError::Refused { text: text.unwrap_or_else(|| name.clone()), name })
                }
                Err(error) => Err(BusError::Lost(error)),
            }
        })
    }

    async fn connect(&self) -> Result<Proxy<'static>, BusError> {
        let manager = async {
            let connection = Builder::address(self.address.as_str()).build().await?;
            Proxy::new(&connection, SYSTEMD, MANAGER_PATH, MANAGER).await
        };
        let address = || self.address.clone();
        manager.await.map_err(|source| BusError::Connect { address: address(), source })
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        // The daemon ends where nothing may block, and dropping a runtime would.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl std::fmt::Debug for Bus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bus").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Reads the beginning of what comes through a pipe, and lets the rest pass.
fn listen((reader, limit): (std::io::PipeReader, u64)) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let mut reader = reader.take(limit);
        let _ = reader.read_to_end(&mut text);
        let _ = std::io::copy(&mut reader.into_inner(), &mut std::io::sink());
        String::from_utf8_lossy(&text).into_owned()
    })
}

fn properties<'a>(task: &Task<'a>, kind: &'a str) -> Vec<(&'static str, Variant<'a>)> {
    let words: Vec<String> = task.command.iter().map(|&word| word.to_owned()).collect();
    let program = words.first().cloned().unwrap_or_default();
    let mut properties = vec![
        ("Description", Variant::from(task.description.to_owned())),
        ("Type", Variant::from(kind.to_owned())),
        ("ExecStart", Variant::from(vec![(program, words, false)])),
    ];
    if !task.after.is_empty() {
        let after: Vec<String> = task.after.iter().map(|&unit| unit.to_owned()).collect();
        properties.push(("Requires", Variant::from(after.clone())));
        properties.push(("After", Variant::from(after)));
    }
    properties
}

/// Whether a connection kept from earlier still works; the bus may have been restarted meanwhile.
async fn answers(manager: &Proxy<'static>) -> bool {
    manager
        .connection()
        .call_method(Some(SYSTEMD), MANAGER_PATH, Some(PEER), "Ping", &())
        .await
        .is_ok()
}

async fn ends_of_jobs(
    manager: &Proxy<'static>,
) -> Result<zbus::proxy::SignalStream<'static>, zbus::Error> {
    let stream = manager.receive_signal("JobRemoved").await?;
    match manager.call_method("Subscribe", &()).await {
        Ok(_) => Ok(stream),
        // An earlier job of this connection asked for the signals already.
        Err(zbus::Error::MethodError(name, ..)) if name.as_str() == SUBSCRIBED => Ok(stream),
        Err(error) => Err(error),
    }
}

/// How a job ended; none if it did not in time.
async fn end_of(
    ended: &mut zbus::proxy::SignalStream<'static>,
    job: &OwnedObjectPath,
    limit: Duration,
) -> Result<Option<String>, zbus::Error> {
    let wait = async {
        while let Some(signal) = ended.next().await {
            let (_, path, _, result): (u32, OwnedObjectPath, String, String) =
                signal.body().deserialize()?;
            if path == *job {
                return Ok(Some(result));
            }
        }
        Err(zbus::Error::InputOutput(std::sync::Arc::new(
            std::io::ErrorKind::ConnectionReset.into(),
        )))
    };
    tokio::time::timeout(limit, wait).await.unwrap_or(Ok(None))
}

fn judge(unit: &str, result: Option<String>) -> Result<(), BusError> {
    match result {
        Some(result) if matches!(result.as_str(), "done" | "skipped") => Ok(()),
        Some(result) => Err(BusError::Job { unit: unit.to_owned(), result }),
        None => Err(BusError::Late { unit: unit.to_owned() }),
    }
}

/// What `systemctl` says of a job that ended so.
fn ending(result: &str) -> &str {
    match result {
        "timeout" => "timed out.",
        "canceled" => "was canceled.",
        "dependency" => "could not start because something that it depends on failed.",
        _ => "failed.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: C89
    #[test]
    fn what_must_come_before_a_task_is_waited_for() {
        let task =
            Task { unit: "a", description: "b", command: &["/bin/true"], after: &["f.service"] };
        let names: Vec<&str> = properties(&task, "exec").iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["Description", "Type", "ExecStart", "Requires", "After"]);
    }

    #[tokio::test]
    async fn a_machine_can_be_let_go_where_nothing_may_block() {
        let folder = tempfile::tempdir().unwrap();
        drop(Bus::new(folder.path()).unwrap());
    }
}
