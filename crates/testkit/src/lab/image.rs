//! The container images of a lab, built from programs of the host. There is no registry.

use std::{
    fs::{self, File},
    io::BufWriter,
    path::Path,
    process::Command,
};

use anyhow::Context as _;
use xtask::image::{Image, Layer, mco, write};

use super::run::run;

/// An image that only sleeps, for pods without a purpose of their own.
pub const SLEEP: &str = "localhost/sleep:lab";

/// The pause image, which holds the namespaces of a pod. `containerd.toml` of the machines names
/// it.
const PAUSE: &str = "localhost/pause:lab";

/// Writes the images into `folder`: the two above, and that of `mco` if a binary is given.
pub(super) fn make(folder: &Path, binary: Option<&Path>) -> anyhow::Result<()> {
    fs::create_dir(folder).with_context(|| format!("failed to create {}", folder.display()))?;
    for (file, name) in [("pause.tar", PAUSE), ("sleep.tar", SLEEP)] {
        let image = Image {
            name,
            program: Path::new("/usr/bin/sleep"),
            path: "/usr/bin/sleep",
            arguments: &["infinity"],
            names: &[],
            layer: Layer::Plain,
        };
        pack(&image, &folder.join(file))?;
    }
    binary.map_or(Ok(()), |binary| make_mco(folder, "mco.tar", None, binary))
}

/// Writes the image of an `mco` into `folder`, under another name if one is given.
pub(super) fn make_mco(
    folder: &Path,
    file: &str,
    name: Option<&str>,
    binary: &Path,
) -> anyhow::Result<()> {
    // Strips debug information, which makes a test binary many times larger.
    let small = folder.join("mco");
    let mut strip = Command::new("strip");
    run("strip", strip.arg("--strip-debug").arg("-o").arg(&small).arg(binary))?;
    let image = mco(&small, Layer::Plain);
    let name = name.unwrap_or(image.name);
    pack(&Image { name, ..image }, &folder.join(file))?;
    fs::remove_file(&small).context("failed to remove the stripped binary")
}

fn pack(image: &Image<'_>, archive: &Path) -> anyhow::Result<()> {
    let file = File::create(archive);
    let file = file.with_context(|| format!("failed to create {}", archive.display()))?;
    write(image, BufWriter::new(file))
        .with_context(|| format!("failed to create image {}", image.name))
}
