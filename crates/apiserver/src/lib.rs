//! An embedded Kubernetes API server for one machine.
//!
//! [`ApiServer`] is a `tower` service that `kube::Client` calls in process. A request goes from its
//! path (`path`) to the resource (`resource`), through the rules of the kind (`admit`, `schema`,
//! `patch`), into the store (`store`). All modules except `server` and `store` are pure.

mod admit;
mod authorize;
mod body;
mod budget;
mod clock;
mod discovery;
mod failure;
mod field_path;
mod form;
mod kubelets;
mod listen;
mod object;
mod openapi;
mod outage;
mod page;
mod patch;
mod path;
mod policy;
mod query;
mod resource;
mod review;
mod schema;
mod select;
mod server;
mod service;
mod store;
mod table;
mod token;
mod types;

pub use clock::{Clock, Entropy, FixedClock, SystemClock, system_entropy};
pub use kubelets::{Kubelets, Log};
pub use listen::{ListenError, Listener};
pub use page::kinds_table;
pub use server::Body;
pub use service::{
    ApiServer, Authorization, Controllers, OnDenied, PodDeletion, Settings, StartError,
};
