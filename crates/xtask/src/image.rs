//! Writes a container image from one program, without a registry and without other tools: an OCI
//! archive whose one layer holds the program, the libraries it is linked to, and its other names.
//!
//! The same input gives the same bytes: order, owners, modes and times are fixed.

mod archive;

use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};
use flate2::{Compression, write::GzEncoder};
use ring::digest::{SHA256, digest};
use serde_json::json;

use self::archive::{Archive, Entry};
use crate::hex;

/// A container image to write.
#[derive(Clone, Debug)]
pub struct Image<'i> {
    /// The image's name with its tag, such as `localhost/mco:latest`.
    pub name: &'i str,
    /// The program, a file of this machine.
    pub program: &'i Path,
    /// Path of the program in the image, and the image's entry point.
    pub path: &'i str,
    /// Arguments of the entry point.
    pub arguments: &'i [&'i str],
    /// Other names of the program, symbolic links in the same directory.
    pub names: &'i [&'i str],
    /// Storage of the layer.
    pub layer: Layer,
}

/// The storage format of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// Uncompressed: quick to write and to read.
    Plain,
    /// Compressed with gzip.
    Gzip,
}

/// Returns the image of `mco`: the binary, under all names of the reference's processes.
#[must_use]
pub fn mco(program: &Path, layer: Layer) -> Image<'_> {
    Image {
        name: mco_operator::manifests::IMAGE,
        program,
        path: "/usr/bin/mco",
        arguments: &[],
        names: &[
            "apiserver-watcher",
            "machine-config-controller",
            "machine-config-daemon",
            "machine-config-operator",
            "machine-config-server",
        ],
        layer,
    }
}

/// Writes the image as an OCI archive, for `ctr images import` and other tools.
pub fn write(image: &Image<'_>, out: impl Write) -> anyhow::Result<()> {
    let plain = layer(image)?;
    let unpacked = sha256(&plain);
    let (layer, layer_type) = match image.layer {
        Layer::Plain => (plain, "application/vnd.oci.image.layer.v1.tar"),
        Layer::Gzip => (gzip(&plain)?, "application/vnd.oci.image.layer.v1.tar+gzip"),
    };
    let entry: Vec<&str> =
        [image.path].into_iter().chain(image.arguments.iter().copied()).collect();
    let architecture = architecture()?;
    let config = json!({
        "architecture": architecture,
        "os": "linux",
        "config": {"Entrypoint": entry, "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", TRIM]},
        "rootfs": {"type": "layers", "diff_ids": [unpacked]},
    })
    .to_string();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": describe("application/vnd.oci.image.config.v1+json", config.as_bytes()),
        "layers": [describe(layer_type, &layer)],
    })
    .to_string();
    let tag = image.name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
    let described = json!({
        "mediaType": MANIFEST,
        "digest": sha256(manifest.as_bytes()),
        "size": manifest.len(),
        "platform": {"architecture": architecture, "os": "linux"},
        // containerd reads the name from the first annotation, other tools from the second.
        "annotations": {
            "io.containerd.image.name": image.name,
            "org.opencontainers.image.ref.name": tag,
        },
    });
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [described]});
    let mut archive = Archive::new(out);
    archive.add("oci-layout", &Entry::file(br#"{"imageLayoutVersion":"1.0.0"}"#, 0o644))?;
    archive.add("index.json", &Entry::file(index.to_string().as_bytes(), 0o644))?;
    for blob in [layer.as_slice(), config.as_bytes(), manifest.as_bytes()] {
        let name = sha256(blob).replace(':', "/");
        archive.add(&format!("blobs/{name}"), &Entry::file(blob, 0o644))?;
    }
    archive.finish()
}

/// Has the C library's allocator return freed memory to the kernel.
///
/// Left alone, it keeps twice the largest block that was ever freed: a daemon that has once read a
/// large config would keep more memory than all it needs. The C library reads this only when a
/// process starts.
pub const TRIM: &str = "MALLOC_TRIM_THRESHOLD_=131072";

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

fn describe(kind: &str, bytes: &[u8]) -> serde_json::Value {
    json!({"mediaType": kind, "digest": sha256(bytes), "size": bytes.len()})
}

fn sha256(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(digest(&SHA256, bytes).as_ref()))
}

fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut writer = GzEncoder::new(Vec::new(), Compression::best());
    writer.write_all(bytes)?;
    writer.finish()
}

/// Returns the architecture by its name in image manifests.
fn architecture() -> anyhow::Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => bail!("architecture {other} is not supported in images"),
    }
}

/// Returns the files of the image as a tar archive.
#[expect(clippy::disallowed_methods, reason = "a development tool reads what it packs")]
fn layer(image: &Image<'_>) -> anyhow::Result<Vec<u8>> {
    let mut files = BTreeMap::new();
    let programs = [(PathBuf::from(image.path), image.program.to_owned(), 0o755)];
    let libraries = libraries(image.program)?.into_iter().map(|path| (path.clone(), path, 0o755));
    for (to, from, mode) in programs.into_iter().chain(libraries) {
        let bytes =
            std::fs::read(&from).with_context(|| format!("failed to read {}", from.display()))?;
        files.insert(inside(&to)?, Entry::File { bytes, mode });
    }
    let program = Path::new(image.path);
    let own =
        program.file_name().context("the image's program has no file name")?.to_string_lossy();
    for name in image.names {
        files.insert(inside(&program.with_file_name(name))?, Entry::Link(own.to_string()));
    }
    let folders: Vec<String> = files.keys().flat_map(|path| above(path)).collect();
    files.extend(folders.into_iter().map(|folder| (folder, Entry::Folder)));
    let mut archive = Archive::new(Vec::new());
    for (path, entry) in &files {
        archive.add(path, entry)?;
    }
    archive.into_inner()
}

/// Returns a path in the image without its leading slash.
fn inside(path: &Path) -> anyhow::Result<String> {
    let text = path.to_str().with_context(|| format!("path {} is not UTF-8", path.display()))?;
    Ok(text.trim_start_matches('/').to_owned())
}

/// Returns every directory above a path.
fn above(path: &str) -> Vec<String> {
    path.match_indices('/').filter_map(|(at, _)| path.get(..at)).map(str::to_owned).collect()
}

/// Returns the files that the dynamic linker loads for a program; none for a static one.
#[expect(clippy::disallowed_methods, reason = "a development tool asks the linker")]
fn libraries(program: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let asked = Command::new("ldd").arg(program).output().context("failed to run ldd")?;
    let said = String::from_utf8_lossy(&asked.stdout);
    let complaint = String::from_utf8_lossy(&asked.stderr);
    if said.contains("statically linked") || complaint.contains("not a dynamic executable") {
        return Ok(Vec::new());
    }
    if !asked.status.success() {
        bail!("ldd failed on {}: {}", program.display(), complaint.trim());
    }
    let mut libraries = Vec::new();
    for line in said.lines().map(str::trim) {
        let (name, rest) = line.split_once(" => ").unwrap_or((line, line));
        if rest.starts_with("not found") {
            bail!("{} needs the library {name}, which is not installed", program.display());
        }
        // The vDSO has no file.
        libraries
            .extend(rest.split(' ').next().filter(|path| path.starts_with('/')).map(PathBuf::from));
    }
    Ok(libraries)
}
