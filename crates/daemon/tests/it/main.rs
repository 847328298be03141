//! Tests the daemon against the embedded API server, with a real tree. The test plays the
//! controllers.

#![expect(clippy::disallowed_methods, reason = "the tests look at the tree from outside")]

// `cfg(test)` tells clippy that these modules are tests.
#[cfg(test)]
mod adopt;
#[cfg(test)]
mod cases;
#[cfg(test)]
mod certificates;
#[cfg(test)]
mod confirm;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod disk;
#[cfg(test)]
mod drift;
#[cfg(test)]
mod fleet;
#[cfg(test)]
mod log;
#[cfg(test)]
mod machine_config_node;
#[cfg(test)]
mod pinned;
#[cfg(test)]
mod protocol;
#[cfg(test)]
mod restore;
#[cfg(test)]
mod revert;
#[cfg(test)]
mod start;
#[cfg(test)]
mod timeouts;
#[cfg(test)]
mod update;
