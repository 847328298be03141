//! This process itself.

use std::{ffi::OsString, io, os::unix::process::CommandExt as _, process::Command};

/// Replaces this process by itself with other arguments and one more variable in its environment.
/// Returns only if that fails.
///
/// A secret in the arguments is visible to all users of the machine; one in the environment only to
/// the same user.
#[must_use]
pub fn restart_with(arguments: &[OsString], variable: &str, value: &str) -> io::Error {
    Command::new("/proc/self/exe").args(arguments).env(variable, value).exec()
}
