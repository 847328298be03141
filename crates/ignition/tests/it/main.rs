//! The crate from outside: its laws, and what other readers of the format say.

#![expect(clippy::indexing_slicing, reason = "a test may panic, and says where")]

mod generate;
mod other_readers;
mod properties;
