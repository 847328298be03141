//! The store's file, and the one thread that writes to it.
//!
//! Writes that arrive while one is being made durable go to disk together with the next flush, so
//! many clients share the cost of one.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
};

use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use tokio::sync::{mpsc, oneshot};

use super::{Change, Happened, Key, Object, Shared, Write, WriteError, prepare};

const OBJECTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("objects");
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");
const VERSION: &str = "version";

/// Separates the parts of a key on disk; no name can contain it.
const SEPARATOR: char = '\0';

/// How many writes one flush carries at most; bounds the time the first of them waits.
const BATCH: usize = 256;

/// Why the state on disk cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    #[error("cannot open the database {path}")]
    Open { path: PathBuf, source: Box<redb::Error> },
    #[error("the database {path} holds an object that cannot be read: {key}")]
    Corrupt { path: PathBuf, key: String, source: serde_json::Error },
    #[error("cannot start the writer of the database")]
    Thread { source: std::io::Error },
}

/// A stored object with its place.
pub(super) type Loaded = (Arc<str>, Key, Object);

/// Opens the file, creating it where it is missing, and reads everything.
pub(super) fn load(path: &Path) -> Result<(Database, u64, Vec<Loaded>), OpenError> {
    let failed =
        |source: redb::Error| OpenError::Open { path: path.to_owned(), source: Box::new(source) };
    let database = Database::create(path).map_err(|error| failed(error.into()))?;
    let (version, raw) = read_all(&database).map_err(failed)?;
    let mut objects = Vec::with_capacity(raw.len());
    for (place, bytes) in raw {
        let corrupt =
            |source| OpenError::Corrupt { path: path.to_owned(), key: place.clone(), source };
        let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(corrupt)?;
        let stored = crate::object::meta(&value, "resourceVersion").parse().unwrap_or(0);
        let mut parts = place.splitn(3, SEPARATOR);
        let mut part = || parts.next().unwrap_or_default();
        let (track, namespace, name) = (part(), part(), part());
        let object = Object { value, bytes: bytes.into(), version: stored };
        objects.push((track.into(), Key::new(namespace, name), object));
    }
    Ok((database, version, objects))
}

/// The latest version, and each object's place and text.
type Raw = (u64, Vec<(String, Vec<u8>)>);

fn read_all(database: &Database) -> Result<Raw, redb::Error> {
    // Opening a table for reading fails before its first write, so both are made here.
    let write = database.begin_write()?;
    write.open_table(OBJECTS)?;
    write.open_table(NUMBERS)?;
    write.commit()?;
    let read = database.begin_read()?;
    let version = read.open_table(NUMBERS)?.get(VERSION)?.map_or(1, |found| found.value());
    let table = read.open_table(OBJECTS)?;
    let mut raw = Vec::new();
    for entry in table.iter()? {
        let (key, value) = entry?;
        raw.push((key.value().to_owned(), value.value().to_vec()));
    }
    Ok((version, raw))
}

#[derive(Debug)]
struct Job {
    write: Write,
    done: oneshot::Sender<Result<Arc<Object>, WriteError>>,
}

/// The writing thread; dropping it waits until everything accepted is on disk.
#[derive(Debug)]
pub(super) struct Committer {
    queue: Option<mpsc::UnboundedSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Committer {
    pub(super) fn start(database: Database, shared: Arc<Shared>) -> Result<Self, OpenError> {
        let (queue, jobs) = mpsc::unbounded_channel();
        let thread = std::thread::Builder::new()
            .name("apiserver-store".into())
            .spawn(move || work(&database, &shared, jobs))
            .map_err(|source| OpenError::Thread { source })?;
        Ok(Self { queue: Some(queue), thread: Some(thread) })
    }

    pub(super) async fn commit(&self, write: Write) -> Result<Arc<Object>, WriteError> {
        let stopped = || WriteError::Disk("its writer has stopped".to_owned());
        let (done, result) = oneshot::channel();
        let queue = self.queue.as_ref().ok_or_else(stopped)?;
        queue.send(Job { write, done }).map_err(|_| stopped())?;
        result.await.map_err(|_| stopped())?
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn work(database: &Database, shared: &Shared, mut jobs: mpsc::UnboundedReceiver<Job>) {
    let mut batch = Vec::new();
    while jobs.blocking_recv_many(&mut batch, BATCH) > 0 {
        flush(database, shared, std::mem::take(&mut batch));
    }
}

/// A write with its version, on its way to disk.
struct Accepted {
    place: (Arc<str>, Key),
    change: Change,
    done: oneshot::Sender<Result<Arc<Object>, WriteError>>,
}

fn flush(database: &Database, shared: &Shared, batch: Vec<Job>) {
    let accepted = check(shared, batch);
    if accepted.is_empty() {
        return;
    }
    if let Err(error) = persist(database, &accepted) {
        tracing::error!(%error, "The API server's database cannot be written");
        for one in accepted {
            let _ = one.done.send(Err(WriteError::Disk(error.to_string())));
        }
        return;
    }
    let mut state = shared.state.write().expect("no holder of this lock panics");
    let mut answers = Vec::with_capacity(accepted.len());
    for Accepted { place: (track, key), change, done } in accepted {
        answers.push((done, Arc::clone(&change.object)));
        state.publish(track, key, change, shared.remembered);
    }
    drop(state);
    for (done, object) in answers {
        let _ = done.send(Ok(object));
    }
}

/// Numbers the writes that fit what is stored and what comes before them in the batch.
fn check(shared: &Shared, batch: Vec<Job>) -> Vec<Accepted> {
    let state = shared.read();
    let mut version = state.version;
    let mut pending: HashMap<(Arc<str>, Key), Option<Arc<Object>>> = HashMap::new();
    let mut accepted = Vec::with_capacity(batch.len());
    for Job { write, done } in batch {
        let place = (write.track, write.key);
        let before = match pending.get(&place) {
            Some(object) => object.clone(),
            None => state.current(&place.0, &place.1),
        };
        match prepare(write.expect, write.put, before, version + 1) {
            Err(error) => {
                let _ = done.send(Err(error));
            }
            Ok(change) => {
                version += 1;
                let left =
                    (change.happened != Happened::Deleted).then(|| Arc::clone(&change.object));
                pending.insert(place.clone(), left);
                accepted.push(Accepted { place, change, done });
            }
        }
    }
    accepted
}

fn persist(database: &Database, accepted: &[Accepted]) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut objects = transaction.open_table(OBJECTS)?;
        let mut numbers = transaction.open_table(NUMBERS)?;
        for Accepted { place: (track, Key { namespace, name }), change, .. } in accepted {
            let place = format!("{track}{SEPARATOR}{namespace}{SEPARATOR}{name}");
            if change.happened == Happened::Deleted {
                objects.remove(place.as_str())?;
            } else {
                objects.insert(place.as_str(), change.object.bytes.as_ref())?;
            }
            numbers.insert(VERSION, change.object.version)?;
        }
    }
    transaction.commit()?;
    Ok(())
}
