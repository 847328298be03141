//! The machine: a directory tree that is changed safely, and the files a person hands us.

pub mod input;
mod root;

pub use root::{Root, RootError};
