//! The controllers against the embedded API server. There are no kubelets and no daemons: the tests
//! play the daemons by writing their annotations.

#[cfg(test)]
mod drain;
#[cfg(test)]
mod fleet;
#[cfg(test)]
mod pools;
#[cfg(test)]
mod progress;
#[cfg(test)]
mod rendered;
#[cfg(test)]
mod rollout;
