//! x
pub(crate) mod secret;
pub(crate) mod unit;
