//! The controllers, each claim on the embedded API server and on the real one. There are no kubelets
//! and no daemons: the tests play the daemons by writing their annotations.

#[cfg(test)]
mod daemons;
#[cfg(test)]
mod drain;
#[cfg(test)]
mod fleet;
#[cfg(test)]
mod leader;
#[cfg(test)]
mod pools;
#[cfg(test)]
mod progress;
#[cfg(test)]
mod rendered;
#[cfg(test)]
mod rollout;
#[cfg(test)]
mod server;
#[cfg(test)]
mod writes;
