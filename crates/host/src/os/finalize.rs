//! Why the system that was staged last did not come up: what its finalisation said when the machine
//! went down.
//!
//! Compat: the question is rpm-ostree's own client's, which the reference asks by.

use super::CommandRunner;
use crate::system::SystemError;

const JOURNALCTL: &str = "/usr/bin/journalctl";
/// Puts a staged system in place at shutdown.
pub(crate) const UNIT: &str = "ostree-finalize-staged.service";

/// What went wrong when the boot before this one ended; none if all went well.
pub(crate) fn fault(runner: &dyn CommandRunner) -> Result<Option<String>, SystemError> {
    let text = runner.run(&[JOURNALCTL, "-b", "-1", "-o", "cat", "_UID=0", "-u", UNIT])?;
    Ok(first_error(&text))
}

/// The first line that tells of an error.
pub(crate) fn first_error(text: &str) -> Option<String> {
    text.lines().find(|line| line.starts_with("error:")).map(|line| line.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: C33
    #[test]
    fn the_first_error_of_the_finalisation_is_told() {
        let cases = [
            ("", None),
            ("Finalizing staged deployment\nBootloader updated\n", None),
            ("a line with error: inside\n", None),
            (
                "Finalizing staged deployment\nerror: /boot is full\nerror: again\n",
                Some("error: /boot is full"),
            ),
        ];
        for (text, want) in cases {
            assert_eq!(first_error(text).as_deref(), want, "{text}");
        }
    }
}
