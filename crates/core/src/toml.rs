//! TOML as the reference reads and writes it.
//!
//! Files are read with a real parser into typed values, and written from typed values, so that equal
//! settings always give equal bytes.

pub(crate) mod read;
pub(crate) mod write;

pub use self::read::TomlFault;
