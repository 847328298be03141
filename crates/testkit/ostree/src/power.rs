//! A power cut at a chosen moment, for tests.

use std::{fs, io::Write as _};

use rustix::system::{RebootCommand, reboot};

/// Contains the number of moments that are still survived. Without the file none cuts the power.
const COUNTDOWN: &str = "/run/power-cut";
/// Names of the moments that have passed, a line each.
const PASSED: &str = "/run/power-cut.passed";

/// Passes a moment at which the power may be cut. The machine then starts again at once.
pub(crate) fn moment(name: &str) {
    let Some(left) = fs::read_to_string(COUNTDOWN).ok().and_then(|text| text.trim().parse().ok())
    else {
        return;
    };
    let left: u32 = left;
    if let Ok(mut passed) = fs::File::options().create(true).append(true).open(PASSED) {
        _ = writeln!(passed, "{name}");
    }
    if left == 0 {
        // In a container this ends all of its processes at once: nothing is finalized.
        _ = reboot(RebootCommand::Restart);
        loop {
            std::thread::park();
        }
    }
    _ = fs::write(COUNTDOWN, (left - 1).to_string());
}
