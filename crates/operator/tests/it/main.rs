//! The operator against the embedded API server.

#[cfg(test)]
mod install;
#[cfg(test)]
mod joining;
#[cfg(test)]
mod keep;
#[cfg(test)]
mod lease;
#[cfg(test)]
mod support;
