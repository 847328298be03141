//! The database file of the store, and the thread that writes to it.
//!
//! Writes that arrive during a flush go to disk together with the next one, so that many clients
//! share the cost of one flush.

use std::{
    collections::{BTreeSet, HashMap},
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
};

use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use tokio::sync::{mpsc, oneshot};

use super::{Change, ChangeKind, Key, Object, Shared, Write, WriteError, prepare};

const OBJECTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("objects");
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");
const VERSION: &str = "version";

/// Separates the parts of a key on disk. No name contains it.
const SEPARATOR: char = '\0';

/// Maximum number of writes per flush. Bounds the time that the first of them waits.
const MAX_BATCH: usize = 256;

/// Size of the database's cache. All objects are in memory, so that writes alone read pages.
const CACHE: usize = 16 * 1024 * 1024;

/// An error that prevents the database from being opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    #[error("failed to open the database {path}")]
    Open { path: PathBuf, source: Box<redb::Error> },
    #[error("failed to parse the object {key} in the database {path}")]
    Corrupt { path: PathBuf, key: String, source: serde_json::Error },
    #[error("failed to start the database's writer thread")]
    Thread { source: std::io::Error },
}

/// A stored object with its collection and key.
pub(super) type LoadedObject = (Arc<str>, Key, Object);

/// Opens the file, which is created if it is missing, and reads all objects.
pub(super) fn load(path: &Path) -> Result<(Database, u64, Vec<LoadedObject>), OpenError> {
    let failed =
        |source: redb::Error| OpenError::Open { path: path.to_owned(), source: Box::new(source) };
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE);
    let database = builder.create(path).map_err(|error| failed(error.into()))?;
    let (version, raw) = read_all(&database).map_err(failed)?;
    let mut objects = Vec::with_capacity(raw.len());
    for (place, bytes) in raw {
        let corrupt =
            |source| OpenError::Corrupt { path: path.to_owned(), key: place.clone(), source };
        let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(corrupt)?;
        let stored = crate::object::meta(&value, "resourceVersion").parse().unwrap_or(0);
        let mut parts = place.splitn(3, SEPARATOR);
        let mut part = || parts.next().unwrap_or_default();
        let (collection, namespace, name) = (part(), part(), part());
        let object = Object::new(collection, value, bytes, stored);
        objects.push((collection.into(), Key::new(namespace, name), object));
    }
    Ok((database, version, objects))
}

/// The latest version, and each object's key and text.
type RawState = (u64, Vec<(String, Vec<u8>)>);

fn read_all(database: &Database) -> Result<RawState, redb::Error> {
    // Opening a table for reading fails before its first write, so both tables are created here.
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

/// The writer thread. Dropping it waits until all accepted writes are on disk.
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
        let stopped = || WriteError::Disk("the writer thread has stopped".to_owned());
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
    while jobs.blocking_recv_many(&mut batch, MAX_BATCH) > 0 {
        flush(database, shared, std::mem::take(&mut batch));
    }
}

/// A checked write with its version, not yet on disk.
struct Accepted {
    place: (Arc<str>, Key),
    change: Change,
    done: oneshot::Sender<Result<Arc<Object>, WriteError>>,
}

fn flush(database: &Database, shared: &Shared, batch: Vec<Job>) {
    let (accepted, refused) = check(shared, batch);
    if !accepted.is_empty() {
        write_all(database, shared, accepted);
    }
    // A refused writer that reads the object again sees the write to which it lost.
    for (done, error) in refused {
        let _ = done.send(Err(error));
    }
}

/// Writes to disk, then publishes the changes.
fn write_all(database: &Database, shared: &Shared, accepted: Vec<Accepted>) {
    if let Err(error) = persist(database, &accepted) {
        tracing::error!(%error, "Failed to write to the API server's database");
        for one in accepted {
            let _ = one.done.send(Err(WriteError::Disk(error.to_string())));
        }
        return;
    }
    let mut state = shared.state.write().expect("no holder of this lock panics");
    let mut answers = Vec::with_capacity(accepted.len());
    let mut changed = BTreeSet::new();
    for Accepted { place: (collection, key), change, done } in accepted {
        answers.push((done, Arc::clone(&change.object)));
        changed.insert(Arc::clone(&collection));
        state.publish(collection, key, change, shared.watch_history);
    }
    drop(state);
    for collection in &changed {
        shared.announce(collection);
    }
    for (done, object) in answers {
        let _ = done.send(Ok(object));
    }
}

/// The answer to a write that is refused.
type Refused = (oneshot::Sender<Result<Arc<Object>, WriteError>>, WriteError);

/// Assigns versions to the writes whose preconditions hold against the store and the earlier writes
/// of the batch.
fn check(shared: &Shared, batch: Vec<Job>) -> (Vec<Accepted>, Vec<Refused>) {
    // Only this thread changes the state, so that no lock is needed while the objects are encoded.
    let (mut version, stored) = {
        let state = shared.read();
        let current = |job: &Job| state.current(&job.write.collection, &job.write.key);
        (state.version, batch.iter().map(current).collect::<Vec<_>>())
    };
    let mut pending: HashMap<(Arc<str>, Key), Option<Arc<Object>>> = HashMap::new();
    let mut accepted = Vec::with_capacity(batch.len());
    let mut refused = Vec::new();
    for (Job { write, done }, stored) in batch.into_iter().zip(stored) {
        let place = (write.collection, write.key);
        let before = match pending.get(&place) {
            Some(object) => object.clone(),
            None => stored,
        };
        match prepare(&place.0, write.expect, write.put, before, version + 1) {
            Err(error) => refused.push((done, error)),
            Ok(change) => {
                version += 1;
                let left = (change.kind != ChangeKind::Deleted).then(|| Arc::clone(&change.object));
                pending.insert(place.clone(), left);
                accepted.push(Accepted { place, change, done });
            }
        }
    }
    (accepted, refused)
}

fn persist(database: &Database, accepted: &[Accepted]) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut objects = transaction.open_table(OBJECTS)?;
        let mut numbers = transaction.open_table(NUMBERS)?;
        for Accepted { place: (collection, Key { namespace, name }), change, .. } in accepted {
            let place = format!("{collection}{SEPARATOR}{namespace}{SEPARATOR}{name}");
            if change.kind == ChangeKind::Deleted {
                objects.remove(place.as_str())?;
            } else {
                objects.insert(place.as_str(), change.object.bytes.as_ref())?;
            }
        }
        if let Some(last) = accepted.last() {
            numbers.insert(VERSION, last.change.object.version)?;
        }
    }
    transaction.commit()?;
    Ok(())
}
