//! The API server's side of the world, and how every process words what it reports.
//!
//! The only crate that makes a client. Nothing here decides: it watches, writes what it is told to
//! write, holds the lease, and tells people. There are no globals, so that several processes can run
//! inside one, and time comes from a value, so that tests need not wait.

pub mod admin;
pub mod apply;
pub mod cache;
pub mod client;
pub mod clock;
pub mod error;
pub mod lease;
pub mod queue;
pub mod report;
pub mod shutdown;
pub mod telemetry;

pub use cache::Cache;
pub use clock::Clock;
pub use error::CallError;
pub use queue::Queue;
pub use report::{Level, Note, NoteCount, Reporter};
pub use shutdown::Shutdown;
