//! Calls a machine's systemd over the machine's own message bus.
//!
//! Calls block. The connection lives on a runtime of its own, which runs only during calls, so that
//! an idle daemon costs nothing; it is opened on the first call and reopened once it does not
//! respond.

use std::{
    io::Read as _,
    os::fd::OwnedFd,
    path::Path,
    sync::{Arc, Mutex, PoisonError, mpsc},
    time::Duration,
};

use super::command::{OrphanDecision, decide_orphans};
use futures::StreamExt as _;
use tokio::runtime::Runtime;
use tracing::info;
use zbus::{DynamicType, OwnedObjectPath, Proxy, Variant, connection::Builder};

/// Longer than any unit's default timeout to start or stop.
const JOB_LIMIT: Duration = Duration::from_mins(10);
/// Time that systemd has to kill a command that timed out.
const KILL_LIMIT: Duration = Duration::from_mins(2);
/// Time for the output of a command that has ended: a process that it left may hold the pipe open.
const OUTPUT_GRACE: Duration = Duration::from_secs(5);
/// Interval at which a command that still runs is logged.
const PROGRESS_INTERVAL: Duration = Duration::from_mins(1);
/// Interval at which the commands of an earlier process are looked up.
const ORPHAN_INTERVAL: Duration = Duration::from_secs(1);
/// Longest output of a command that is kept: lists of images are long.
const OUTPUT_LIMIT: usize = 8 << 20;
/// Longest error output that is kept.
const STDERR_LIMIT: usize = 64 << 10;

const SYSTEMD: &str = "org.freedesktop.systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
/// The error name of a repeated subscription.
const SUBSCRIBED: &str = "org.freedesktop.systemd1.AlreadySubscribed";
const PEER: &str = "org.freedesktop.DBus.Peer";
const SERVICE: &str = "org.freedesktop.systemd1.Service";

/// A failed call, in systemd's words.
#[derive(Debug, thiserror::Error)]
pub(super) enum BusError {
    /// The bus does not respond.
    #[error("failed to reach systemd at {address}")]
    Connect { address: String, source: zbus::Error },
    /// systemd refused.
    #[error("{text}")]
    Refused { name: String, text: String },
    /// The connection was lost.
    #[error("lost the connection to systemd")]
    Lost(#[source] zbus::Error),
    /// The job failed.
    #[error("Job for {unit} {}", describe_result(.result))]
    Job { unit: String, result: String },
    /// The job timed out.
    #[error("Job for {unit} did not end in time")]
    Timeout { unit: String },
    /// A pipe for a command cannot be created.
    #[error("failed to create a pipe")]
    Pipe(#[source] std::io::Error),
}

/// A command to run as a transient unit.
pub(super) struct TransientUnit<'a> {
    /// Name of the transient unit.
    pub(super) unit: &'a str,
    /// Description in `systemctl status` and the journal.
    pub(super) description: &'a str,
    /// Program and arguments.
    pub(super) command: &'a [&'a str],
    /// Units that must have run before.
    pub(super) after: &'a [&'a str],
    /// Time after which systemd kills the command; none for no limit.
    pub(super) limit: Option<Duration>,
}

/// The result of a command.
#[derive(Debug)]
pub(super) struct Output {
    /// Exit code.
    pub(super) status: i32,
    /// Beginning of its standard output.
    pub(super) text: String,
    /// Beginning of its standard error.
    pub(super) stderr: String,
}

/// The systemd of one machine.
pub(super) struct Bus {
    /// None only while it is dropped.
    runtime: Option<Runtime>,
    address: String,
    /// Reused by later calls.
    manager: Mutex<Option<Proxy<'static>>>,
}

impl Bus {
    /// Builds the client for the systemd of the machine below `root`.
    pub(super) fn new(root: &Path) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let socket = root.join("run/dbus/system_bus_socket");
        let address = format!("unix:path={}", socket.display());
        Ok(Self { runtime: Some(runtime), address, manager: Mutex::default() })
    }

    /// Calls a method of the manager and drops the result.
    pub(super) fn call<B>(&self, method: &str, body: &B) -> Result<(), BusError>
    where
        B: serde::Serialize + DynamicType,
    {
        self.with(async |manager| manager.call_method(method, body).await.map(drop))
    }

    /// Calls a method of the manager that returns a string.
    pub(super) fn query(&self, method: &str, unit: &str) -> Result<String, BusError> {
        self.with(async |manager| manager.call(method, &(unit,)).await)
    }

    /// Starts a job for a unit and waits for its end.
    pub(super) fn job(&self, method: &str, unit: &str) -> Result<(), BusError> {
        let result = self.with(async |manager| {
            let mut ended = subscribe_to_jobs(manager).await?;
            let job: OwnedObjectPath = manager.call(method, &(unit, "replace")).await?;
            wait_for_job(&mut ended, &job, JOB_LIMIT).await
        })?;
        check_result(unit, result)
    }

    /// Starts a command without waiting for its end.
    pub(super) fn start(&self, task: &TransientUnit<'_>) -> Result<(), BusError> {
        self.with(async |manager| {
            let mut properties = properties(task, "exec");
            if let Some(limit) = task.limit {
                // A service of this type has started once its program runs.
                properties.push(("RuntimeMaxUSec", microseconds(limit)));
            }
            // A failed unit must not block the next attempt.
            properties.push(("CollectMode", Variant::from("inactive-or-failed")));
            // A list, not an array: an empty array has another signature on the bus.
            let none: Vec<(&str, Vec<(&str, Variant<'_>)>)> = Vec::new();
            let body = (task.unit, "fail", properties, none);
            manager.call_method("StartTransientUnit", &body).await.map(drop)
        })
    }

    /// Runs a command with `input` on its standard input, and waits for its end.
    pub(super) fn run(&self, task: &TransientUnit<'_>, input: &[u8]) -> Result<Output, BusError> {
        let (reader, writer) = std::io::pipe().map_err(BusError::Pipe)?;
        let (stderr_reader, stderr) = std::io::pipe().map_err(BusError::Pipe)?;
        let (stdin, mut feed) = std::io::pipe().map_err(BusError::Pipe)?;
        let input = input.to_vec();
        let feeder = std::thread::spawn(move || {
            // A command that does not read all input shows so by its exit code.
            let _ = std::io::Write::write_all(&mut feed, &input);
        });
        let readers = [(reader, OUTPUT_LIMIT), (stderr_reader, STDERR_LIMIT)].map(read_pipe);
        let ended = self.finish(task, stdin.into(), writer.into(), stderr.into());
        // The feeder is not awaited: it ends with the last reader of its pipe.
        drop(feeder);
        let [text, stderr] = readers.map(|reader| reader.finish(OUTPUT_GRACE));
        Ok(Output { status: ended?, text, stderr })
    }

    /// Waits until no other unit than those of `own` matches `pattern`, at most for `limit`. Returns
    /// the units that are still there.
    pub(super) fn await_units(
        &self,
        pattern: &str,
        own: &str,
        limit: Duration,
    ) -> Result<Vec<String>, BusError> {
        let states = ["active", "activating", "reloading", "deactivating"].as_slice();
        let patterns = [pattern];
        let body = (states, patterns.as_slice());
        self.with(async |manager| {
            let mut waited = Duration::ZERO;
            loop {
                let found: Vec<Listed> = manager.call("ListUnitsByPatterns", &body).await?;
                let running = found.into_iter().map(|unit| unit.0).collect();
                match decide_orphans(running, own, waited, limit) {
                    OrphanDecision::Proceed => return Ok(Vec::new()),
                    OrphanDecision::GiveUp(units) => return Ok(units),
                    OrphanDecision::Wait(units) if waited.is_zero() => {
                        let units = units.join(" ");
                        info!(units, "Waiting for commands of an earlier process");
                    }
                    OrphanDecision::Wait(_) => {}
                }
                tokio::time::sleep(ORPHAN_INTERVAL).await;
                waited += ORPHAN_INTERVAL;
            }
        })
    }

    fn finish(
        &self,
        task: &TransientUnit<'_>,
        stdin: OwnedFd,
        output: OwnedFd,
        stderr: OwnedFd,
    ) -> Result<i32, BusError> {
        let result = self.with(async move |manager| {
            let mut ended = subscribe_to_jobs(manager).await?;
            let mut properties = properties(task, "oneshot");
            let fd = |fd: OwnedFd| Variant::from(zbus::Fd::from(fd));
            properties.push(("StandardInputFileDescriptor", fd(stdin)));
            properties.push(("StandardOutputFileDescriptor", fd(output)));
            properties.push(("StandardErrorFileDescriptor", fd(stderr)));
            // A list, not an array: an empty array has another signature on the bus.
            let none: Vec<(&str, Vec<(&str, Variant<'_>)>)> = Vec::new();
            let body = (task.unit, "fail", properties, none);
            let job: OwnedObjectPath = manager.call("StartTransientUnit", &body).await?;
            drop(body);
            let limit = task.limit.unwrap_or(Duration::MAX).saturating_add(KILL_LIMIT);
            wait_for_command(task, &mut ended, &job, limit).await
        })?;
        match result.as_deref() {
            Some("failed") => self.exit_code(task.unit),
            _ => check_result(task.unit, result).map(|()| 0),
        }
    }

    /// Returns the exit code of a failed command, and resets its unit.
    fn exit_code(&self, unit: &str) -> Result<i32, BusError> {
        let (result, status) = self.with(async |manager| {
            let path: OwnedObjectPath = manager.call("GetUnit", &(unit,)).await?;
            let service = Proxy::new(manager.connection(), SYSTEMD, path, SERVICE).await?;
            let result: String = service.get_property("Result").await?;
            let status: i32 = service.get_property("ExecMainStatus").await?;
            manager.call_method("ResetFailedUnit", &(unit,)).await?;
            Ok((result, if status == 0 { -1 } else { status }))
        })?;
        match result.as_str() {
            "timeout" => Err(BusError::Timeout { unit: unit.to_owned() }),
            _ => Ok(status),
        }
    }

    fn with<T>(
        &self,
        work: impl AsyncFnOnce(&Proxy<'static>) -> Result<T, zbus::Error>,
    ) -> Result<T, BusError> {
        let mut kept = self.manager.lock().unwrap_or_else(PoisonError::into_inner);
        let runtime = self.runtime.as_ref().expect("the runtime is only taken on drop");
        runtime.block_on(async {
            let manager = match kept.take() {
                Some(manager) if is_alive(&manager).await => manager,
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
        // The daemon drops this value in an async context, in which dropping a runtime would panic.
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

/// A unit in systemd's list; the first member is its name.
type Listed =
    (String, String, String, String, String, String, OwnedObjectPath, u32, String, OwnedObjectPath);

/// A thread that reads a pipe.
struct PipeText {
    text: Arc<Mutex<Vec<u8>>>,
    ended: mpsc::Receiver<()>,
}

impl PipeText {
    /// Returns what was read when the pipe is closed, or after `grace`.
    fn finish(self, grace: Duration) -> String {
        let _ = self.ended.recv_timeout(grace);
        let text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// Reads the beginning of a pipe, and discards the rest.
fn read_pipe((mut reader, limit): (std::io::PipeReader, usize)) -> PipeText {
    let text = Arc::new(Mutex::new(Vec::new()));
    let (end, ended) = mpsc::channel();
    let kept = Arc::clone(&text);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(length @ 1..) = reader.read(&mut buffer) {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            let room = limit.saturating_sub(kept.len()).min(length);
            kept.extend_from_slice(buffer.get(..room).unwrap_or_default());
        }
        let _ = end.send(());
    });
    PipeText { text, ended }
}

fn properties<'a>(task: &TransientUnit<'a>, kind: &'a str) -> Vec<(&'static str, Variant<'a>)> {
    let words: Vec<String> = task.command.iter().map(|&word| word.to_owned()).collect();
    let program = words.first().cloned().unwrap_or_default();
    let mut properties = vec![
        ("Description", Variant::from(task.description.to_owned())),
        ("Type", Variant::from(kind.to_owned())),
        ("ExecStart", Variant::from(vec![(program, words, false)])),
    ];
    if let Some(limit) = task.limit {
        properties.push(("TimeoutStartUSec", microseconds(limit)));
    }
    if !task.after.is_empty() {
        let after: Vec<String> = task.after.iter().map(|&unit| unit.to_owned()).collect();
        properties.push(("Requires", Variant::from(after.clone())));
        properties.push(("After", Variant::from(after)));
    }
    properties
}

fn microseconds(limit: Duration) -> Variant<'static> {
    Variant::from(u64::try_from(limit.as_micros()).unwrap_or(u64::MAX))
}

/// Returns true if a connection still works; the bus may have been restarted meanwhile.
async fn is_alive(manager: &Proxy<'static>) -> bool {
    manager
        .connection()
        .call_method(Some(SYSTEMD), MANAGER_PATH, Some(PEER), "Ping", &())
        .await
        .is_ok()
}

async fn subscribe_to_jobs(
    manager: &Proxy<'static>,
) -> Result<zbus::proxy::SignalStream<'static>, zbus::Error> {
    let stream = manager.receive_signal("JobRemoved").await?;
    match manager.call_method("Subscribe", &()).await {
        Ok(_) => Ok(stream),
        // Subscribed by an earlier job of this connection.
        Err(zbus::Error::MethodError(name, ..)) if name.as_str() == SUBSCRIBED => Ok(stream),
        Err(error) => Err(error),
    }
}

/// Waits for the end of a command, and logs while it runs; returns none if it times out.
async fn wait_for_command(
    task: &TransientUnit<'_>,
    ended: &mut zbus::proxy::SignalStream<'static>,
    job: &OwnedObjectPath,
    limit: Duration,
) -> Result<Option<String>, zbus::Error> {
    let mut waited = Duration::ZERO;
    while waited < limit {
        if let Some(result) = wait_for_job(ended, job, PROGRESS_INTERVAL).await? {
            return Ok(Some(result));
        }
        waited += PROGRESS_INTERVAL;
        info!(unit = task.unit, minutes = waited.as_secs() / 60, "Command still runs");
    }
    Ok(None)
}

/// Waits for the end of a job; returns none if it times out.
async fn wait_for_job(
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

fn check_result(unit: &str, result: Option<String>) -> Result<(), BusError> {
    match result {
        Some(result) if matches!(result.as_str(), "done" | "skipped") => Ok(()),
        Some(result) => Err(BusError::Job { unit: unit.to_owned(), result }),
        None => Err(BusError::Timeout { unit: unit.to_owned() }),
    }
}

/// Describes the result of a job as `systemctl` does.
fn describe_result(result: &str) -> &str {
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
    fn a_task_is_ordered_after_its_prerequisites() {
        let task = TransientUnit {
            unit: "a",
            description: "b",
            command: &["/bin/true"],
            after: &["f.service"],
            limit: None,
        };
        let names = |task: &TransientUnit<'_>| -> Vec<&str> {
            properties(task, "exec").iter().map(|(name, _)| *name).collect()
        };
        assert_eq!(names(&task), ["Description", "Type", "ExecStart", "Requires", "After"]);
        let limited = TransientUnit { after: &[], limit: Some(Duration::from_mins(1)), ..task };
        assert_eq!(names(&limited), ["Description", "Type", "ExecStart", "TimeoutStartUSec"]);
    }

    #[test]
    fn a_pipe_that_is_held_open_does_not_block_the_daemon() {
        use std::io::Write as _;
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"result").unwrap();
        // Another process keeps the other end.
        let held = writer.try_clone().unwrap();
        drop(writer);
        let text = read_pipe((reader, 3));
        let begun = std::time::Instant::now();
        while text.text.lock().unwrap().len() < 3 {
            assert!(begun.elapsed() < Duration::from_secs(30), "the bytes are not read");
            std::thread::yield_now();
        }
        assert_eq!(text.finish(Duration::ZERO), "res", "the beginning is kept");
        drop(held);
    }

    #[tokio::test]
    async fn the_bus_can_be_dropped_in_an_async_context() {
        let folder = tempfile::tempdir().unwrap();
        drop(Bus::new(folder.path()).unwrap());
    }
}
