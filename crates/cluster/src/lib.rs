//! Access to the Kubernetes API: client, caches, queues, leader election, events, logs and metrics.
//!
//! This is the only crate that creates a client. It makes no decisions. It has no globals, so that
//! several processes can run inside one, and time comes from a value, so that tests need not wait.

pub mod admin;
pub mod api;
pub mod apply;
pub mod cache;
pub mod client;
pub mod clock;
pub mod config_server;
pub mod error;
pub mod health;
pub mod lease;
pub mod permission;
pub mod probe;
pub mod queue;
pub mod report;
pub mod shutdown;
pub mod telemetry;
pub mod tls;
pub mod watch;

pub use api::{Api, Object};
pub use cache::Cache;
pub use clock::Clock;
pub use error::CallError;
pub use health::Health;
pub use queue::Queue;
pub use report::{Level, Note, NoteCount, Reporter};
pub use shutdown::Shutdown;
