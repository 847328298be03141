//! Integration tests of the Ignition crate: properties, and comparison with other parsers.

mod generate;
mod other_readers;
mod properties;
