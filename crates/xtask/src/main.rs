//! Development tasks. `cargo run -p xtask -- gen` writes every generated file, and `… -- image
//! PROGRAM ARCHIVE` a container image of the binary.

use std::{
    io::BufWriter,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};

mod generate;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["gen"] => generate::all(&root).context("cannot write the generated files"),
        ["image", program, archive] => image(Path::new(program), Path::new(archive))
            .with_context(|| format!("cannot write the image {archive}")),
        _ => bail!("usage: cargo run -p xtask -- gen | image PROGRAM ARCHIVE"),
    }
}

/// Writes beside the archive first, so that nobody ever reads half of one.
#[expect(clippy::disallowed_methods, reason = "a development tool writes where it is told to")]
fn image(program: &Path, archive: &Path) -> anyhow::Result<()> {
    let mut partial = archive.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let out = BufWriter::new(std::fs::File::create(&partial)?);
    xtask::image::write(&xtask::image::mco(program, xtask::image::Layer::Gzip), out)?;
    std::fs::rename(&partial, archive)?;
    Ok(())
}
