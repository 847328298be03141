//! Decisions about new machines: who gets a config, whose certificate is approved, and which pool a
//! new node belongs to.
//!
//! - [`token`]: the text of a join token, its hash, and its Secret;
//! - [`machine`]: the headers by which a machine describes itself;
//! - [`mod@authorize`]: admits a request or refuses it with a reason;
//! - [`approval`]: checks the certificate request of a kubelet;
//! - [`pool`]: the labels of a new node;
//! - [`report`]: the report of a machine that failed to join;
//! - [`mod@pointer`]: the config that makes a machine fetch its first config.

pub mod approval;
pub mod authorize;
#[cfg(test)]
mod fixture;
pub mod machine;
pub mod pointer;
pub mod pool;
pub mod report;
pub mod state;
pub mod token;

pub use self::{
    approval::{CertificateRequest, approve},
    authorize::{Admission, Refusal, authorize},
    machine::{MachineFacts, parse_binding},
    state::TokenState,
    token::{StoredToken, TokenText},
};
