//! The processes on a cluster of three machines with real kubelets, systemd and reboots.

#![expect(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "the test reads files and the clock, and a panic fails it"
)]

mod application;
mod fleet;
mod install;
mod join;
mod rollout;
mod settings;
mod trouble;
mod upgrade;

use std::path::{Path, PathBuf};

use mco_testkit::lab::{Lab, LabPrerequisites, Plan};
use tokio::sync::Mutex;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Panics with the error and its sources.
fn done<T>(result: anyhow::Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("{error:#}"))
}

/// One lab at a time: machines that get no CPU for long would look like lost ones.
static TURN: Mutex<()> = Mutex::const_new(());

/// Returns a lab with the image; prints a line and returns `None` if the test cannot run here.
async fn lab() -> Option<Lab> {
    match LabPrerequisites::find() {
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
