//! The server over real sockets, with real TLS and a real HTTP client.

#![expect(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "this whole program is a test, which writes to a temporary folder"
)]

mod admission;
mod api_server;
mod authority;
mod bootstrap;
mod client;
mod cluster;
mod fairness;
mod fixture;
mod ignition;
mod limits;
mod metrics;
mod oracle;
mod property;
mod request_rules;
mod requests;
mod responses;
mod rotation;
mod secure;
mod unkind;
