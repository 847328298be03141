//! The controllers against the embedded API server. There are no kubelets and no daemons: the tests
//! play the daemons by writing their annotations.

#[cfg(test)]
mod certificate;
#[cfg(test)]
mod drain;
#[cfg(test)]
mod fetch;
#[cfg(test)]
mod fleet;
#[cfg(test)]
mod pinned;
#[cfg(test)]
mod progress;
#[cfg(test)]
mod remote;
#[cfg(test)]
mod rendered;
#[cfg(test)]
mod rendering;
#[cfg(test)]
mod rollout;
#[cfg(test)]
mod web;
