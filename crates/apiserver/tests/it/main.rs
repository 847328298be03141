//! Integration tests of the embedded API server.

// `cfg(test)` tells clippy that these modules are tests.
#[cfg(test)]
mod collection;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod crds;
#[cfg(test)]
mod deletion;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod inproc;
#[cfg(test)]
mod kubectl;
#[cfg(test)]
mod listening;
#[cfg(test)]
mod logs;
#[cfg(test)]
mod nonsense;
#[cfg(test)]
mod outage;
#[cfg(test)]
mod property;
#[cfg(test)]
mod racing;
#[cfg(test)]
mod request_rules;
#[cfg(test)]
mod rights;
#[cfg(test)]
mod slow;
#[cfg(test)]
mod watching;
