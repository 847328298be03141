//! Pure decision logic of the operator, the controller, the daemon and the command line.
//!
//! Nothing here reads a file, a clock, the environment or the network. Every input of a decision is
//! an argument, every result a plain value.

pub mod adopt;
pub mod api_routes;
pub mod certs;
pub mod check;
pub mod cluster_settings;
pub mod container_runtime;
pub mod controller_config;
pub mod diff;
pub mod doctor;
pub mod drain;
pub mod drift;
#[cfg(test)]
mod fixture;
pub mod force;
pub mod generated;
pub mod goyaml;
pub mod history;
pub mod image_config;
pub mod join;
pub mod kubelet;
pub mod lifecycle;
pub mod lint;
pub mod machine;
pub mod machine_config_node;
pub mod machine_configuration;
pub mod membership;
pub mod node_index;
pub mod plan;
pub mod progress;
pub mod prune;
pub mod redact;
pub mod render;
pub mod rollout;
pub mod served_config;
pub mod status;
pub mod takeover;
pub mod template;
pub mod toml;
pub mod yaml;
