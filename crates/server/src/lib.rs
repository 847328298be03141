//! Hands a new machine the config of its pool, over HTTPS, as Ignition asks for it.
//!
//! What to answer is decided in [`answer`] and [`document`], which are pure. A document is built once
//! for each config and Ignition version and then served from the same bytes ([`bodies`]). The rest
//! is the network: `listener`, `tls` and `service`.

pub mod answer;
pub mod bodies;
pub mod document;
mod kubeconfig;
mod listener;
mod server;
mod service;
pub mod settings;
pub mod source;
pub mod tls;

pub use server::{Server, StartError, run};
pub use settings::{Limits, Settings};
pub use source::{Cluster, Fixed, Source};
pub use tls::Certificate;
