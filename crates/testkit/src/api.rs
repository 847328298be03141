//! API servers for tests: the embedded one and the real one, behind one trait.
//!
//! Both run as child processes and are gone when the test is: at its end, when it panics, and when
//! it is killed.

mod child;
mod embedded;
mod programs;
mod real;
mod shared;

use std::path::Path;

pub use self::{
    child::{Process, command, wait},
    embedded::Embedded,
    programs::{Absent, Programs},
    real::{KubeApiServer, Settings},
    shared::shared,
};

/// A running API server.
pub trait ApiServer {
    /// Where it listens, as a URL.
    fn url(&self) -> &str;

    /// A file that lets its holder do everything.
    fn kubeconfig(&self) -> &Path;
}
