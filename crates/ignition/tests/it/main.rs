//! The crate from outside: against recorded answers of the reference.

mod accept;
mod convert;
mod datafile;
mod oracle;
mod parse;
