//! The Ignition format: read, checked, translated, merged and written.
//!
//! Pure: nothing here touches a file, the network or a clock.

pub mod accept;
pub mod config;
pub mod content;
pub mod data_url;
pub mod gzip;
mod json;
mod merge;
mod object;
mod parse;
pub mod report;
mod spec;
mod target;
pub mod tree;
mod validate;
mod value;

pub use accept::negotiate;
pub use config::Config;
pub use merge::merge;
pub use parse::{CheckError, Document, ModeError, ReadError, UpgradeError, V3, check, read};
pub use report::Report;
pub use spec::Spec;
pub use target::{Target, UnknownTarget};
pub use validate::validate;
