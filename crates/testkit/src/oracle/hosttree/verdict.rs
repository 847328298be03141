//! How the disk is judged against a config, and where we judge otherwise on purpose.

use std::collections::BTreeSet;

use mco_core::{
    drift::{self, Want},
    machine::Machine,
};
use mco_daemon::verify;

use super::Simulated;

const OK: &str = "ok";
const GZIP: &str = "could not create gzip reader";

/// What we say of the disk, in the recording's words.
pub(super) fn of(host: &Simulated, config: &Machine) -> String {
    // The reference means to notice a unit that is off and should be on, and cannot: it loses what
    // systemctl says when that fails. We notice. It does not look at owners at all; we do.
    let counts = |drift: &drift::Drift| {
        !matches!(drift, drift::Drift::Enablement { want: true, .. } | drift::Drift::Owner { .. })
    };
    let found = verify::all_files(host, config).into_iter().find(counts);
    found.map_or(OK.to_owned(), |drift| drift.to_string())
}

/// Compares what we say of the disk with what the reference said.
pub(super) fn judge(
    host: &Simulated,
    config: &Machine,
    want: &str,
    aside: &BTreeSet<String>,
) -> Result<(), String> {
    let found = of(host, config);
    // What follows are the words of a library.
    let want = want.find(GZIP).map_or(want, |at| want.get(..at + GZIP.len()).unwrap_or(want));
    if found == want || is_better(&found, want, config, aside) {
        return Ok(());
    }
    Err(format!("validates as {found:?}, expected {want:?}"))
}

fn is_better(found: &str, want: &str, config: &Machine, aside: &BTreeSet<String>) -> bool {
    if found != OK {
        return false;
    }
    // Something that a failed step of the reference left behind, where we leave nothing.
    let is_left = aside.iter().any(|path| want.contains(&format!("{path:?}")));
    // Reading a 2.x config, the reference wants a drop-in without contents to be on the disk, and never
    // writes one: such a node could never be done.
    let is_empty = |expected: &drift::Expected| {
        expected.want == Want::EmptyOrAbsent
            && want.starts_with(&format!("could not stat file {:?}", expected.path))
    };
    is_left || drift::expected(config).iter().any(is_empty)
}
