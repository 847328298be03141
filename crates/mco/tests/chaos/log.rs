//! The requests that a log names.

use http::Method;
use mco_testkit::log::Lines;

/// Returns true if a line names the request of this method and path as repeated, failed or given up.
pub(crate) fn has_request(lines: &Lines, method: &Method, path: &str) -> bool {
    let messages = [
        "Retrying a request to the API server",
        "Request to the API server failed",
        "Gave up a request to the API server",
    ];
    let is_it = |line: &str| {
        messages.iter().any(|message| line.contains(message))
            && line.contains(&format!("method={method} "))
            && line.contains(&format!("path=\"{path}\""))
    };
    lines.text().lines().any(is_it)
}
