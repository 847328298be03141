//! The operator against the embedded API server.

#[cfg(test)]
mod install;
