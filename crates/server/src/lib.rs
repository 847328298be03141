//! Serves each new machine the config of its pool, over HTTPS, as Ignition requests it.
//!
//! [`route`] and [`document`] decide the response; both are pure. A document is built once for each
//! config and Ignition version and then served from the same bytes ([`document_cache`]). The rest
//! is the network: `listener`, `tls` and `service`.

pub mod admission;
pub mod document;
pub mod document_cache;
mod kubeconfig;
mod listener;
pub mod route;
mod server;
mod service;
pub mod settings;
pub mod source;
pub mod tls;

pub use admission::Admission;
pub use server::{Server, StartError, run};
pub use settings::{Limits, Settings};
pub use source::{ClusterSource, FixedSource, Source};
pub use tls::Certificate;
