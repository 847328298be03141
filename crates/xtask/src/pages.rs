//! The parts of documentation pages that are generated from code.

/// Path of the page about the embedded API server, below the root of the workspace.
pub const API_SERVER: &str = "docs/apiserver.md";

const START: &str = "<!-- Written by `make gen`. -->\n";
const END: &str = "<!-- End of the generated part. -->\n";

/// Returns the page about the embedded API server with the kinds that it serves now. Returns none if
/// the page has no generated part.
#[must_use]
pub fn api_server(page: &str) -> Option<String> {
    let (before, rest) = page.split_once(START)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{START}\n{}\n{END}{after}", mco_apiserver::kinds_table()))
}
