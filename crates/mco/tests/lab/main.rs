//! Our processes on a real cluster of three machines with real kubelets, systemd and reboots.

#![expect(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test looks at files and the clock as a person would, and one that panics has failed"
)]

mod application;
mod fleet;
mod rollout;
mod trouble;

use std::path::{Path, PathBuf};

use mco_testkit::lab::{Ingredients, Lab, Plan};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Ends the test with the whole chain of reasons.
fn done<T>(result: anyhow::Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("{error:#}"))
}

/// A lab that has our image, or a line that says why this test proves nothing here.
async fn lab() -> Option<Lab> {
    match Ingredients::find() {
        Ok(ingredients) => {
            let mco = Some(PathBuf::from(env!("CARGO_BIN_EXE_mco")));
            Some(done(Lab::up(&ingredients, &Plan { machines: 3, mco }).await))
        }
        Err(missing) => {
            eprintln!("skipped: {missing}");
            None
        }
    }
}
