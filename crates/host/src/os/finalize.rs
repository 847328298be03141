//! Reads the error of the last deployment's finalization, which runs when the machine shuts down.
//!
//! Compat: the query is that of rpm-ostree's own client, which the reference runs.

use super::CommandRunner;
use crate::system::SystemError;

const JOURNALCTL: &str = "/usr/bin/journalctl";
/// Finalizes a staged deployment at shutdown.
pub(crate) const UNIT: &str = "ostree-finalize-staged.service";

/// Returns the error of the finalization at the end of the previous boot; none if it succeeded.
pub(crate) fn fault(runner: &dyn CommandRunner) -> Result<Option<String>, SystemError> {
    let text = runner.run(&[JOURNALCTL, "-b", "-1", "-o", "cat", "_UID=0", "-u", UNIT])?;
    Ok(first_error(&text))
}

/// Returns the first line with an error.
pub(crate) fn first_error(text: &str) -> Option<String> {
    text.lines().find(|line| line.starts_with("error:")).map(|line| line.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: C33
    #[test]
    fn the_first_error_of_the_finalization_is_returned() {
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
