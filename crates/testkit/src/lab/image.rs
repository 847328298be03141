//! The images of a lab, made on the spot from programs of this machine: there is no registry.

use std::{
    fs::{self, File},
    io::BufWriter,
    path::Path,
    process::Command,
};

use anyhow::Context as _;
use xtask::image::{Image, Layer, mco, write};

use super::run::run;

/// An image that does nothing, for pods that only have to be there.
pub const SLEEP: &str = "localhost/sleep:lab";

/// What holds the namespaces of a pod; the name is in the machines' `containerd.toml`.
const PAUSE: &str = "localhost/pause:lab";

/// Writes the images into `folder`: always the two above, and ours if there is a binary.
pub(super) fn make(folder: &Path, binary: Option<&Path>) -> anyhow::Result<()> {
    fs::create_dir(folder).with_context(|| format!("cannot make {}", folder.display()))?;
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
    if let Some(binary) = binary {
        // A binary for tests is many times as large as what runs of it.
        let small = folder.join("mco");
        let mut strip = Command::new("strip");
        run("strip", strip.arg("--strip-debug").arg("-o").arg(&small).arg(binary))?;
        pack(&mco(&small, Layer::Plain), &folder.join("mco.tar"))?;
        fs::remove_file(&small).context("cannot remove the stripped binary")?;
    }
    Ok(())
}

fn pack(image: &Image<'_>, archive: &Path) -> anyhow::Result<()> {
    let file = File::create(archive);
    let file = file.with_context(|| format!("cannot make {}", archive.display()))?;
    write(image, BufWriter::new(file)).with_context(|| format!("cannot make image {}", image.name))
}
