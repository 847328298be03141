//! The controllers against the embedded API server. There are no kubelets and no daemons: the tests
//! play the daemons by writing their annotations.

mod drain;
mod fleet;
mod rollout;
