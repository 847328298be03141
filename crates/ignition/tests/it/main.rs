//! The crate from outside: against recorded answers of the reference.

mod accept;
mod oracle;
