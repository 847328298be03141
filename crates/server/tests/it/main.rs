//! The server over real sockets, with real TLS and a real HTTP client.

#![expect(clippy::disallowed_methods, reason = "writes certificates to a temporary folder")]

mod answers;
mod authority;
mod client;
mod cluster;
mod fixture;
mod limits;
mod requests;
mod secure;
