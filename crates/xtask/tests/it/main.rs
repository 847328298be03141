//! Checks of the source tree itself.

#![expect(clippy::disallowed_methods, reason = "reads the source tree; nothing ships this")]

mod deploy;
mod image;
mod layers;
mod layout;
mod mutants;
mod pages;
mod release;
mod sources;
mod words;

use std::path::{Path, PathBuf};

fn workspace() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().and_then(Path::parent).expect("crates/xtask is two levels down").to_owned()
}
