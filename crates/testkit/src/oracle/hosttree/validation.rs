//! Validates the disk against a config and compares the result with the reference's, with the
//! intended differences.

use std::collections::BTreeSet;

use mco_apply::verify;
use mco_core::{
    drift::{self, Want},
    machine::Machine,
};

use super::Simulated;

const OK: &str = "ok";
const GZIP: &str = "could not create gzip reader";

/// Validates the disk. Returns the first drift in the recording's words.
pub(super) fn of(host: &Simulated, config: &Machine) -> String {
    // The reference intends to detect a disabled unit that should be enabled, but fails to: it
    // drops the output of systemctl when the command fails. `mco` detects it. The reference ignores
    // owners; `mco` checks them.
    let counts = |drift: &drift::Drift| {
        !matches!(drift, drift::Drift::Enablement { want: true, .. } | drift::Drift::Owner { .. })
    };
    let found = verify::file_differences(host, config).into_iter().find(counts);
    found.map_or(OK.to_owned(), |drift| drift.to_string())
}

/// Compares the validation of the disk with the reference's.
pub(super) fn compare(
    host: &Simulated,
    config: &Machine,
    want: &str,
    excluded: &BTreeSet<String>,
) -> Result<(), String> {
    let found = of(host, config);
    // The rest of the text comes from a library.
    let want = want.find(GZIP).map_or(want, |at| want.get(..at + GZIP.len()).unwrap_or(want));
    if found == want || is_improvement(&found, want, config, excluded) {
        return Ok(());
    }
    Err(format!("validates as {found:?}, expected {want:?}"))
}

fn is_improvement(found: &str, want: &str, config: &Machine, excluded: &BTreeSet<String>) -> bool {
    if found != OK {
        return false;
    }
    // A failed step of the reference left this path behind; `mco` leaves nothing.
    let is_left = excluded.iter().any(|path| want.contains(&format!("{path:?}")));
    // For a 2.x config, the reference requires a drop-in without contents to exist on disk, but
    // never writes one: such a node could never complete.
    let is_empty = |expected: &drift::Expected| {
        expected.want == Want::EmptyOrAbsent
            && want.starts_with(&format!("could not stat file {:?}", expected.path))
    };
    is_left || drift::expected(config).iter().any(is_empty)
}
