//! Tests of the controllers, each on the embedded API server and on a real kube-apiserver. There
//! are no kubelets and no daemons: the tests act as the daemons by writing their annotations.

#[cfg(test)]
mod certificate;
#[cfg(test)]
mod container_runtime_config;
#[cfg(test)]
mod daemons;
#[cfg(test)]
mod drain;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod fetch;
#[cfg(test)]
mod fleet;
#[cfg(test)]
mod handshake;
#[cfg(test)]
mod image;
#[cfg(test)]
mod image_config;
#[cfg(test)]
mod joins;
#[cfg(test)]
mod kubelet_config;
#[cfg(test)]
mod leader;
#[cfg(test)]
mod machine_config_node;
#[cfg(test)]
mod pinned;
#[cfg(test)]
mod pools;
#[cfg(test)]
mod races;
#[cfg(test)]
mod remote;
#[cfg(test)]
mod rendered;
#[cfg(test)]
mod rendering;
#[cfg(test)]
mod rollout;
#[cfg(test)]
mod server;
#[cfg(test)]
mod takeover;
#[cfg(test)]
mod template;
#[cfg(test)]
mod unsupported;
#[cfg(test)]
mod web;
#[cfg(test)]
mod writes;
