//! Serves each new machine the config of its pool, over HTTPS, as Ignition requests it.
//!
//! [`route`] and [`document`] decide the response; both are pure. A document is built once for each
//! config and Ignition version and then served from the same bytes ([`document_cache`]). The rest
//! is the network: `listener`, `tls`, `exchange` and `service`. `connection_table` shares the connections between
//! addresses.

mod activity;
pub mod admission;
pub mod api_url;
mod connection_table;
pub mod content_coding;
pub mod document;
pub mod document_cache;
pub mod entity_tag;
mod exchange;
mod kubeconfig;
mod listener;
pub mod metrics;
mod refusal;
pub mod route;
mod server;
mod service;
pub mod settings;
pub mod source;
pub mod tls;

pub use admission::Admission;
pub use metrics::Metrics;
pub use server::{Server, StartError, run};
pub use settings::{Limits, Settings};
pub use source::{BootstrapSource, ClusterSource, FixedSource, Source};
pub use tls::Certificate;
