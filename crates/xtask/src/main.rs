//! Development tasks. `cargo run -p xtask -- gen` writes every generated file.

use std::path::Path;

use anyhow::{Context, bail};

mod generate;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["gen"] => generate::all(&root).context("cannot write the generated files"),
        _ => bail!("usage: cargo run -p xtask -- gen"),
    }
}
