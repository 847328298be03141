//! The state directory of the listener: private files, replaced atomically.

#![expect(
    clippy::disallowed_methods,
    reason = "this directory belongs to the API server alone; mco-host accesses the node's root"
)]

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use super::ListenError;

fn failed(path: &Path) -> impl FnOnce(io::Error) -> ListenError {
    let path = path.to_owned();
    move |source| ListenError::Directory { path, source }
}

/// Creates the directory with access for its owner only.
pub(super) fn make(dir: &Path) -> Result<(), ListenError> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed(dir))
}

/// Creates an empty file that only its owner can read, unless it exists. For files that will hold
/// secrets.
pub(super) fn reserve(dir: &Path, name: &str) -> Result<(), ListenError> {
    let path = dir.join(name);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    options.open(&path).map(drop).map_err(failed(&path))
}

/// Returns the content of a file, or `None` if the file is missing.
pub(super) fn read(dir: &Path, name: &str) -> Result<Option<String>, ListenError> {
    let path = dir.join(name);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(&path)(error)),
    }
}

/// Returns the content of a file. If the file is missing, `make` creates the content and the file
/// is written.
pub(super) fn read_or_create(
    dir: &Path,
    name: &str,
    make: impl FnOnce() -> Result<String, ListenError>,
) -> Result<String, ListenError> {
    if let Some(text) = read(dir, name)? {
        return Ok(text);
    }
    let text = make()?;
    write(dir, name, text.as_bytes())?;
    Ok(text)
}

/// Writes a file that only its owner can read.
pub(super) fn write(dir: &Path, name: &str, bytes: &[u8]) -> Result<PathBuf, ListenError> {
    let path = dir.join(name);
    let fresh = dir.join(format!(".{name}.new"));
    let put = || -> io::Result<()> {
        if fs::exists(&fresh)? {
            fs::remove_file(&fresh)?;
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&fresh, &path)
    };
    put().map_err(failed(&path))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn files_are_private_and_reused() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("a/b");
        make(&dir).unwrap();
        assert_eq!(read_or_create(&dir, "t", || Ok("first".into())).unwrap(), "first");
        assert_eq!(read_or_create(&dir, "t", || Ok("second".into())).unwrap(), "first");
        reserve(&dir, "r").unwrap();
        for name in ["t", "r"] {
            let mode = fs::metadata(dir.join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
