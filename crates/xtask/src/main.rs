//! Development tasks. `cargo run -p xtask -- gen` writes every generated file, `… -- image PROGRAM
//! ARCHIVE` a container image of the binary, and `… -- layout PROGRAM FOLDER ORDER` the order in
//! which its functions best lie.

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
        ["layout", program, folder, order] => {
            xtask::layout::write(Path::new(program), Path::new(folder), Path::new(order))
                .with_context(|| format!("cannot watch {program}"))
        }
        ["trace", list, program, words @ ..] => {
            xtask::layout::trace(Path::new(list), Path::new(program), words)
        }
        _ => bail!(
            "usage: cargo run -p xtask -- gen | image PROGRAM ARCHIVE | layout PROGRAM FOLDER ORDER"
        ),
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
