//! The embedded Kubernetes API for one machine.
//!
//! One [`ApiServer`] is a `tower` service that `kube::Client` uses in process. Requests go from the
//! path (`path`) to the resource (`resource`), through the rules of its kind (`admit`, `schema`,
//! `patch`) into the store (`store`). Everything but `server` and `store` is pure.

mod admit;
mod budget;
mod clock;
mod discovery;
mod failure;
mod form;
mod listen;
mod object;
mod openapi;
mod patch;
mod path;
mod query;
mod resource;
mod review;
mod schema;
mod select;
mod server;
mod service;
mod store;
mod table;

pub use clock::{Clock, Entropy, FixedClock, SystemClock, system_entropy};
pub use listen::{ListenError, Listener};
pub use server::Body;
pub use service::{ApiServer, PodDeletion, Settings, StartError};
