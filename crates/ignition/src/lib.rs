//! The Ignition config format: parsing, validation, translation between versions, merging and
//! writing.
//!
//! This crate is pure: it does not access files, the network or clocks.

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
pub mod scan;
mod spec;
mod target;
pub mod translate;
pub mod tree;
pub mod v2;
mod validate;
mod value;

pub use accept::negotiate;
pub use config::Config;
pub use merge::merge;
pub use parse::{CheckError, Document, ModeError, ReadError, V2, V3, check, read};
pub use report::Report;
pub use spec::Spec;
pub use target::{TargetVersion, UnknownTargetError};
pub use translate::{ConvertError, convert, convert_raw};
pub use v2::UpgradeError;
pub use validate::validate;
