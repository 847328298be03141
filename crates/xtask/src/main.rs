//! Development tasks, run as `cargo run -p xtask -- TASK`:
//!
//! - `gen` writes every generated file;
//! - `image PROGRAM ARCHIVE` writes a container image of the binary;
//! - `layout PROGRAM FOLDER ORDER` writes the order in which the linker places its functions;
//! - `mutants [NAME…]` applies single changes to a copy of the code and runs the tests that must notice;
//! - `release FOLDER` writes the files of a release that are not built;
//! - `test [PACKAGE…]` runs all tests of the workspace, or of some packages;
//! - `version` prints the version of the workspace.

use std::{
    io::{BufWriter, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};

mod generate;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["version"] => {
            writeln!(std::io::stdout(), "{}", xtask::release::version()).context("standard output")
        }
        ["release", folder] => xtask::release::write(&root, Path::new(folder))
            .with_context(|| format!("failed to write the release files to {folder}")),
        ["test", packages @ ..] => xtask::suite::run(&root, packages),
        ["gen"] => generate::all(&root).context("failed to write the generated files"),
        ["mutants", names @ ..] => xtask::mutants::run(&root, names),
        ["image", program, archive] => image(Path::new(program), Path::new(archive))
            .with_context(|| format!("failed to write the image {archive}")),
        ["layout", program, folder, order] => {
            xtask::layout::write(Path::new(program), Path::new(folder), Path::new(order))
                .with_context(|| format!("failed to trace {program}"))
        }
        ["trace", list, program, words @ ..] => {
            xtask::layout::trace(Path::new(list), Path::new(program), words)
        }
        _ => bail!(
            "usage: cargo run -p xtask -- gen | image PROGRAM ARCHIVE | layout PROGRAM FOLDER ORDER | \
             mutants [NAME…] | release FOLDER | test [PACKAGE…] | version"
        ),
    }
}

/// Writes the image, under another name first, so that no reader ever sees half of an archive.
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
