//! Whole rollouts while requests to the API server fail: each single fault at each request, random
//! mixes, and etcd restored from a backup. Operator, controller, server and daemons are the real ones.

#[cfg(test)]
mod cluster;
#[cfg(test)]
mod enumerate;
#[cfg(test)]
mod history;
#[cfg(test)]
mod log;
#[cfg(test)]
mod mixes;
#[cfg(test)]
mod real;
#[cfg(test)]
mod revert;
#[cfg(test)]
mod run;
