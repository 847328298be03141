//! API servers for tests: the embedded one and the real one, behind one trait.
//!
//! Both run as child processes, which end with the test: when it ends, when it panics, and when it
//! is killed.

mod account;
mod audit;
mod child;
mod embedded;
mod programs;
mod real;
mod shared;

use std::path::Path;

pub use self::{
    account::{account, account_kubeconfig, install, install_in},
    audit::AuditedRequest,
    child::{Process, command, wait},
    embedded::Embedded,
    programs::{MissingProgram, Programs, find_helm},
    real::{KubeApiServer, Settings, Snapshot},
    shared::shared,
};

/// A running API server.
pub trait ApiServer {
    /// Returns the URL of the API server.
    fn url(&self) -> &str;

    /// Returns the path of the administrator's kubeconfig.
    fn kubeconfig(&self) -> &Path;
}
