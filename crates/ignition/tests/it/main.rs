//! The crate from outside: its laws, and what other readers of the format say.

mod generate;
mod other_readers;
mod properties;
