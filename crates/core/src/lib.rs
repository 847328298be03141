//! Every decision, as pure functions over plain values.

pub mod goyaml;
