//! The crate from outside: against recorded answers of the reference.

#![expect(clippy::indexing_slicing, reason = "a test may panic, and says where")]

mod accept;
mod convert;
mod datafile;
mod generate;
mod oracle;
mod other_readers;
mod parse;
mod properties;
