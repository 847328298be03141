//! Reproducible tar archives: the bytes do not depend on the time, the machine or the user.

use std::io::Write;

use anyhow::{Context as _, bail};

const BLOCK: usize = 512;

/// A member of an archive.
#[derive(Clone, Debug)]
pub(super) enum Entry {
    /// A directory.
    Folder,
    /// A symbolic link with its target.
    Link(String),
    /// A regular file.
    File { bytes: Vec<u8>, mode: u32 },
}

impl Entry {
    /// Returns a regular file.
    pub(super) fn file(bytes: &[u8], mode: u32) -> Self {
        Self::File { bytes: bytes.to_vec(), mode }
    }
}

/// A tar archive that is being written.
#[derive(Debug)]
pub(super) struct Archive<W> {
    out: W,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out }
    }

    /// Adds a member at `path`.
    pub(super) fn add(&mut self, path: &str, entry: &Entry) -> anyhow::Result<()> {
        let (kind, mode, target, bytes): (u8, u32, &str, &[u8]) = match entry {
            Entry::Folder => (b'5', 0o755, "", &[]),
            Entry::Link(target) => (b'2', 0o777, target, &[]),
            Entry::File { bytes, mode } => (b'0', *mode, "", bytes),
        };
        let header = header(path, kind, mode, target, bytes.len())?;
        self.out.write_all(&header)?;
        self.out.write_all(bytes)?;
        let rest = bytes.len().next_multiple_of(BLOCK) - bytes.len();
        self.out.write_all(&vec![0; rest]).with_context(|| format!("failed to write {path}"))
    }

    /// Writes the end of the archive.
    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        self.end()
    }

    fn end(&mut self) -> anyhow::Result<()> {
        self.out.write_all(&[0; 2 * BLOCK])?;
        self.out.flush().context("failed to finish the archive")
    }
}

impl Archive<Vec<u8>> {
    /// Writes the end of the archive and returns its bytes.
    pub(super) fn into_inner(mut self) -> anyhow::Result<Vec<u8>> {
        self.end()?;
        Ok(self.out)
    }
}

/// Returns the ustar header of a member, owned by root and dated at the Unix epoch.
fn header(
    path: &str,
    kind: u8,
    mode: u32,
    target: &str,
    size: usize,
) -> anyhow::Result<[u8; BLOCK]> {
    if path.len() > 100 || target.len() > 100 {
        bail!("path {path} is too long for a tar archive");
    }
    let mut fields: Vec<(usize, Vec<u8>)> = vec![
        (100, path.into()),
        (8, format!("{mode:07o}").into()),
        (8, format!("{:07o}", 0).into()),
        (8, format!("{:07o}", 0).into()),
        (12, format!("{size:011o}").into()),
        (12, format!("{:011o}", 0).into()),
        // The checksum counts its own field as spaces.
        (8, b"        ".to_vec()),
        (1, vec![kind]),
        (100, target.into()),
        (8, b"ustar\x0000".to_vec()),
    ];
    let sum: u32 = fields.iter().flat_map(|(_, text)| text).map(|byte| u32::from(*byte)).sum();
    if let Some((_, text)) = fields.get_mut(6) {
        *text = format!("{sum:06o}\0 ").into();
    }
    let mut block = Vec::with_capacity(BLOCK);
    for (width, text) in fields {
        block.extend(&text);
        block.extend(vec![0; width.saturating_sub(text.len())]);
    }
    block.resize(BLOCK, 0);
    block.try_into().ok().with_context(|| format!("the tar header of {path} is too long"))
}
