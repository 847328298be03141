//! Everything that looks at the crate from outside.

mod oracle;
mod parse;
